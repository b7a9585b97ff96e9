package console_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/throttle"
)

// slowClient sends the body of a request, or reads its answer, only when the gate is open.
type slowClient struct {
	*httptest.ResponseRecorder
	begun     func()
	gate      <-chan struct{}
	deadlines int // how many were set
	most      int // bytes that were written within one of them
	within    int // bytes that were written within the last one
}

func (s *slowClient) Write(b []byte) (int, error) {
	s.begun()
	<-s.gate
	s.within += len(b)
	s.most = max(s.most, s.within)
	return s.ResponseRecorder.Write(b)
}

func (s *slowClient) Read([]byte) (int, error) {
	s.begun()
	<-s.gate
	return 0, io.EOF
}

// SetWriteDeadline is for http.ResponseController.
func (s *slowClient) SetWriteDeadline(time.Time) error {
	s.deadlines++
	s.within = 0
	return nil
}

// slowly serves requests with the cookies of a browser to slow clients, and returns when all of them wait.
func (r *rig) slowly(b *browser, n int, method, path string) (clients []*slowClient, release func()) {
	r.T.Helper()
	gate, begun := make(chan struct{}), make(chan struct{}, n)
	var serving sync.WaitGroup
	for range n {
		s := &slowClient{
			ResponseRecorder: httptest.NewRecorder(), gate: gate,
			begun: sync.OnceFunc(func() { begun <- struct{}{} }),
		}
		clients = append(clients, s)
		req := b.request(method, path, s)
		req.RequestURI = path
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		serving.Go(func() { r.console.ServeHTTP(s, req) })
	}
	for range n {
		<-begun
	}
	return clients, sync.OnceFunc(func() { close(gate); serving.Wait() })
}

// Clients that are slow to send or to read must not take the console from others.
func TestSlowClientsTakeNoPagesFromOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	task := r.NewTask()
	r.Append(r.ClaimTask(task), storetest.Artifact("a", "text"))
	at := "/console/tasks/" + task.String()
	ann, bob, carl := r.serve(), r.serve(), r.serve()
	ann.mustSignIn(r.keyOf("ann", everything...))
	bob.mustSignIn(r.keyOf("bob", everything...))
	carl.mustSignIn(r.keyOf("carl", everything...))
	for name, slow := range map[string]struct{ method, path string }{
		"to read a page": {http.MethodGet, at}, "to read a file": {http.MethodGet, at + "/files/0/0"},
		"to send a form": {http.MethodPost, at + "/cancel"},
	} {
		anns, releaseAnn := r.slowly(ann, console.MaxOwnPages, slow.method, slow.path)
		_, releaseBob := r.slowly(bob, console.MaxOwnPages, slow.method, slow.path)
		if status, body := carl.get("/console/tasks"); status != http.StatusOK {
			t.Errorf("with clients that are slow %s a page answered %d: %s", name, status, body)
		}
		releaseAnn()
		releaseBob()
		for _, s := range anns {
			if s.deadlines == 0 {
				t.Errorf("a client that is slow %s has no deadline", name)
			}
		}
	}
}

// A client on a slow line gets all of a large file, as long as it reads.
func TestSlowClientsHaveTimeForEachPieceOfAFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	task, text := r.NewTask(), strings.Repeat("text ", 100_000)
	r.Append(r.ClaimTask(task), storetest.Artifact("a", text))
	b := r.serve(open)
	clients, release := r.slowly(b, 1, http.MethodGet, "/console/tasks/"+task.String()+"/files/0/0")
	release()
	client := clients[0]
	if got := client.Body.String(); got != text {
		t.Errorf("the client got %d bytes of %d", len(got), len(text))
	}
	if client.most > console.Piece {
		t.Errorf("the client had one deadline for %d bytes", client.most)
	}
}

// Nobody is asked for the body of a form before the sign-in.
func TestStrangersSendNoFormsToPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve()
	stranger := &slowClient{ResponseRecorder: httptest.NewRecorder(), begun: func() { t.Fatal("the body is read") }}
	req := b.request(http.MethodPost, "/console/playground", stranger)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.console.ServeHTTP(stranger.ResponseRecorder, req)
	if stranger.Code != http.StatusSeeOther {
		t.Errorf("a stranger got %d", stranger.Code)
	}
}

// An owner has a share of the pages that are made or sent, and of those that are live.
func TestOwnersHaveAShareOfPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	signOut := url.Values{"form_token": {tokenField.FindStringSubmatch(b.page("/console/playground"))[1]}}
	_, release := r.slowly(b, console.MaxOwnPages, http.MethodGet, "/console/tasks")
	defer release()
	left, leave := context.WithCancel(t.Context())
	leave()        // so that the request does not wait for the others
	for range 20 { // if there were room, about half of them would get it
		out := httptest.NewRecorder()
		r.console.ServeHTTP(out, b.request(http.MethodGet, "/console/playground", nil).WithContext(left))
		if out.Code != http.StatusServiceUnavailable {
			t.Errorf("beyond its share an owner got %d", out.Code)
		}
	}
	if status, body := b.send(http.MethodPost, "/console/sign-out", signOut); status != http.StatusSeeOther {
		t.Errorf("beyond its share a sign-out of an owner answered %d: %s", status, body)
	}

	ann, bob := r.serve(), r.serve()
	ann.mustSignIn(r.keyOf("ann", everything...))
	bob.mustSignIn(r.keyOf("bob", everything...))
	bob.url = ann.url
	for range console.MaxOwnLive {
		ann.follow("/console/live")
	}
	if status := ann.begins("/console/live"); status != http.StatusServiceUnavailable {
		t.Errorf("beyond its share of live pages an owner got %d", status)
	}
	if status := bob.begins("/console/live"); status != http.StatusOK {
		t.Errorf("another owner got %d", status)
	}
}

// What a viewer sends and does counts against the limits of its owner, as over the API.
func TestWritesHaveTheLimitsOfTheAPI(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	limits := throttle.New(throttle.Limits{Sends: throttle.Rate{PerSecond: 0.001, Burst: 2}}, nil)
	b := r.serve(func(c *console.Config) {
		c.Admit = func(p auth.Principal, write bool) error {
			if !write {
				return nil
			}
			return limits.Admit(p, &a2a.CancelTask{})
		}
	})
	k := r.key(append(everything, auth.ScopeTasksWrite)...)
	b.mustSignIn(k) // the first write
	form := url.Values{"agent": {storetest.Agent}, "text": {"hi"}}
	if status, body := b.post("/console/playground", "/console/playground", form); status != http.StatusSeeOther {
		t.Fatalf("a message got %d: %s", status, body)
	}
	at := strings.Replace(b.last.Header.Get("Location"), "/playground/", "/tasks/", 1)
	for _, path := range []string{"/console/playground", at + "/answer", at + "/cancel", at + "/retry",
		"/console/tasks/bulk", "/console/agents/pause", "/console/keys/new"} {
		status, body := b.post("/console/tasks", path, form)
		if status != http.StatusTooManyRequests || b.last.Header.Get("Retry-After") == "" {
			t.Errorf("beyond the limit POST %s answered %d, %v: %s", path, status, b.last.Header, body)
		}
	}
	if n := r.Column(`SELECT count(*)::text FROM a2a.tasks`)[0]; n != "1" {
		t.Errorf("%s tasks were made, want 1", n)
	}
	if status, body := b.post("/console/tasks", "/console/sign-out", form); status != http.StatusSeeOther {
		t.Errorf("beyond the limit a sign-out answered %d: %s", status, body)
	}
	if n := r.Column(`SELECT count(*)::text FROM a2a.browser_sessions`)[0]; n != "0" || len(b.cookies) != 0 {
		t.Errorf("after the sign-out there are %s sessions, and cookies %v", n, b.cookies)
	}
	if status, _ := b.signIn(k); status != http.StatusTooManyRequests {
		t.Errorf("beyond the limit a sign-in answered %d", status)
	}
}
