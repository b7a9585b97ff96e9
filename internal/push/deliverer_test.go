package push

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

func TestEveryStateThatMattersArrivesInOrder(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, times(func(n int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader([]int{500, 404, 200}[n])
	}))
	task := b.task(a2a.PushConfig{URL: s.URL, Token: "tok", Schemes: []string{"Bearer"}, Credentials: "cred"})
	b.deliver()
	l := b.run(task, whole("a", "x"), status(a2a.StateInputRequired))
	b.awaitDelivered(task, l.LastSeq)
	in := tasks.Submission{Caller: ann, Agent: "words", Task: task,
		Message: a2a.Message{ID: "m2", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "go on"}}}}
	if _, err := b.Tasks.Submit(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	l = b.run(task, whole("b", "y"), status(a2a.StateCompleted))
	p := b.awaitState(task, "done")
	got := s.requests()
	seqs := inOrder(t, got)
	if !containsInt(seqs, 4) || seqs[len(seqs)-1] != int(l.LastSeq) || len(got) != 3*len(seqs) {
		t.Errorf("%d requests for events %v, want three each, for 4 and %d among them", len(got), seqs, l.LastSeq)
	}
	for _, r := range got {
		if r.header.Get("Authorization") != "Bearer cred" || r.header.Get("X-A2a-Notification-Token") != "tok" ||
			r.header.Get("A2a-Notification-Token") != "tok" ||
			r.header.Get("Webhook-Signature") == "" || r.header.Get("A2a-Version") != "0.3" {
			t.Errorf("headers %v", r.header)
		}
	}
	var last struct{ ID, Kind string }
	if err := json.Unmarshal([]byte(got[len(got)-1].body), &last); err != nil || last.Kind != "task" ||
		last.ID != task.String() {
		t.Errorf("body %s", got[len(got)-1].body)
	}
	if tries := b.tries(p); len(tries) != len(got) || tries[0].Outcome != "delivered" || tries[0].Attempt != 3 ||
		tries[1].Status != 404 || tries[2].Status != 500 {
		t.Errorf("ledger %+v", tries)
	}
	if text := b.logged(); strings.Contains(text, "cred\"") || strings.Contains(text, "=tok") ||
		strings.Contains(text, "Bearer") {
		t.Errorf("log with secrets:\n%s", text)
	}
}

func TestReceiversThatWantNoMore(t *testing.T) {
	t.Parallel()
	directive := func(d string, code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Webhook-Delivery", d)
			w.WriteHeader(code)
		}
	}
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		state   string
		tries   int
		outcome string
		reason  string
	}{
		"410":           {answer(410, ""), "disabled", 1, "failed", "answered 410 Gone"},
		"disable":       {directive("disable", 400), "disabled", 1, "failed", "answered 400 Bad Request"},
		"abort-message": {directive("abort-message", 400), "done", 1, "skipped", ""},
		"exhausted": {answer(503, ""), "dead", 5, "failed",
			"5 tries failed, the last one with: answered 503 Service Unavailable"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, "dead", 5, "failed",
			"5 tries failed, the last one with: answered 307 Temporary Redirect to http://127.0.0.1:1; " +
				"redirects are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			s := newSink(t, tt.handler)
			task := b.task(a2a.PushConfig{URL: s.URL})
			b.run(task, status(a2a.StateCompleted))
			b.deliver()
			p := b.awaitState(task, tt.state)
			tries := b.tries(p)
			if p.Reason != tt.reason || len(tries) != tt.tries || len(s.requests()) != tt.tries ||
				tries[0].Outcome != tt.outcome {
				t.Errorf("reason %q, %d requests, ledger %+v", p.Reason, len(s.requests()), tries)
			}
		})
	}
}

func TestUnreadableSecretIsNotRetried(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	task := b.task(a2a.PushConfig{URL: s.URL, Token: "canary"})
	b.deliver(func(c *DelivererConfig) { c.Ring = newRing(t, "k2") })
	p := b.awaitState(task, "dead")
	tries := b.tries(p)
	if len(s.requests()) != 0 || !strings.Contains(p.Reason, "not in A2AD_KEYS") || len(tries) != 1 ||
		tries[0].Class != "secret" {
		t.Errorf("%d requests, reason %q, ledger %+v", len(s.requests()), p.Reason, tries)
	}
	// When the key is available again, a replay delivers.
	if err := b.Webhooks.Replay(t.Context(), p.Row, 1<<62); err != nil {
		t.Fatal(err)
	}
}

func TestBodyKeepsTheLimit(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	task := b.task(a2a.PushConfig{URL: s.URL})
	b.run(task, whole("a", strings.Repeat("x", 3000)), status(a2a.StateCompleted))
	b.deliver(func(c *DelivererConfig) { c.MaxBody = 2000 })
	b.awaitState(task, "done")
	got := s.requests()
	if len(got) != 1 || len(got[0].body) > 2000 || !strings.Contains(got[0].body, `"completed"`) ||
		strings.Contains(got[0].body, "xxx") {
		t.Errorf("%d requests, the first with %d bytes: %.300s", len(got), len(got[0].body), got[0].body)
	}
}

// TestBodyKeepsTheLimitWithoutTheStatusMessage: if only the status message is too large, the
// receiver still gets the state.
func TestBodyKeepsTheLimitWithoutTheStatusMessage(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	task := b.task(a2a.PushConfig{URL: s.URL})
	done := status(a2a.StateCompleted)
	done.Status.Message = &a2a.Message{ID: "m2", Role: a2a.RoleAgent,
		Parts: []a2a.Part{{Kind: a2a.PartText, Text: strings.Repeat("x", 3000)}}}
	b.run(task, done)
	b.deliver(func(c *DelivererConfig) { c.MaxBody = 2000 })
	b.awaitState(task, "done")
	got := s.requests()
	if len(got) != 1 || len(got[0].body) > 2000 || !strings.Contains(got[0].body, `"completed"`) {
		t.Errorf("%d requests, the first with %d bytes: %.300s", len(got), len(got[0].body), got[0].body)
	}
}

// TestRequestsBelongToTheTraceOfTheClient: every request is a separate span in the client's trace.
func TestRequestsBelongToTheTraceOfTheClient(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, times(func(n int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader([]int{500, 200}[n]) }))
	in := tasks.Submission{
		Caller: ann, Agent: "words", ContextID: "ctx", Message: a2a.Message{ID: "m", Role: a2a.RoleUser,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}},
		Push:        b.newPush(a2a.PushConfig{URL: s.URL}),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	out, err := b.Tasks.Submit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	b.deliver()
	b.awaitDelivered(out.Task, 1)
	form := regexp.MustCompile("^00-0af7651916cd43dd8448eb211c80319c-([0-9a-f]{16})-01$")
	parents := map[string]bool{"b7ad6b7169203331": true}
	for _, r := range s.requests() {
		m := form.FindStringSubmatch(r.header.Get("Traceparent"))
		if m == nil || parents[m[1]] {
			t.Fatalf("traceparent %q after %v", r.header.Get("Traceparent"), parents)
		}
		parents[m[1]] = true
	}
	if len(parents) != 3 {
		t.Errorf("%d requests, want 2", len(parents)-1)
	}
	without := newSink(t, ok)
	b.awaitDelivered(b.task(a2a.PushConfig{URL: without.URL}), 1)
	if h := without.requests()[0].header; h.Get("Traceparent") != "" {
		t.Errorf("a task without a trace gives %q", h.Get("Traceparent"))
	}
}

// TestLostRecordIsADuplicate: an accepted notification that was not recorded is sent again
// unchanged.
func TestLostRecordIsADuplicate(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, times(func(n int, _ http.ResponseWriter, _ *http.Request) {
		if n == 0 { // the deliverer dies before it gets the answer
			if _, err := b.sql.Exec(context.Background(), `UPDATE a2a.push_configs
				SET lease_epoch = lease_epoch + 1, lease_until = clock_timestamp() - interval '1 second'`); err != nil {
				t.Error(err)
			}
		}
	}))
	task := b.task(a2a.PushConfig{URL: s.URL})
	l := b.run(task, whole("a", "x"))
	b.deliver()
	b.awaitDelivered(task, 3)
	b.append(l, whole("b", "y"), status(a2a.StateCompleted))
	p := b.awaitState(task, "done")
	got := s.requests()
	seqs := inOrder(t, got)
	if len(got) != 2*len(seqs) {
		t.Errorf("%d requests for events %v, want each twice", len(got), seqs)
	}
	if tries := b.tries(p); len(tries) != len(seqs) {
		t.Errorf("ledger %+v, want only the recorded ones", tries)
	}
}

// TestHangingDestinationDelaysNoOther: it only uses its share of the slots.
func TestHangingDestinationDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	entered := make(chan struct{}, 100)
	slow := newSink(t, func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-released:
		case <-r.Context().Done():
		}
	})
	fast := newSink(t, ok)
	var hung, healthy []a2a.ID
	for range 6 {
		hung = append(hung, b.task(a2a.PushConfig{URL: slow.URL}))
	}
	for range 6 {
		healthy = append(healthy, b.task(a2a.PushConfig{URL: fast.URL}))
	}
	b.deliver(func(c *DelivererConfig) { c.Slots, c.PerOrigin = 3, 2 })
	for _, task := range healthy {
		b.awaitDelivered(task, 1)
	}
	<-entered
	<-entered
	if n := len(slow.requests()); n != 2 {
		t.Errorf("the hanging destination has %d requests at once, want its cap of 2", n)
	}
	release()
	for _, task := range hung {
		b.awaitDelivered(task, 1)
	}
}

func TestDeleteDuringARetry(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	entered, released := make(chan struct{}, 10), make(chan struct{})
	s := newSink(t, times(func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			entered <- struct{}{}
			<-released
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	task := b.task(a2a.PushConfig{URL: s.URL})
	b.deliver()
	<-entered
	deleted := make(chan error, 1)
	go func() { deleted <- b.Webhooks.Delete(t.Context(), ann, task, "default") }()
	b.await(task, "deleted", func(p webhooks.Row) bool { return !p.DeletedAt.IsZero() })
	select {
	case err := <-deleted:
		t.Errorf("the delete was over before the request: %v", err)
	default:
	}
	close(released)
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	n := len(s.requests())
	// Another webhook of the same destination is delivered. The deleted one is never tried again.
	other := b.task(a2a.PushConfig{URL: s.URL + "/other"})
	b.await(other, "dead", func(p webhooks.Row) bool { return p.State == "dead" })
	for _, r := range s.requests()[n:] {
		if r.target != "/other" {
			t.Errorf("a request to %s after the delete", r.target)
		}
	}
}

// TestReplicasShareTheWork: one replica sends each notification, once.
func TestReplicasShareTheWork(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	b.deliver()
	r2 := b.replica("r2")
	b.deliver(func(c *DelivererConfig) { c.Store = r2 })
	var taskList []a2a.ID
	for range 30 {
		taskList = append(taskList, b.task(a2a.PushConfig{URL: s.URL}))
	}
	for _, task := range taskList {
		b.awaitDelivered(task, 1)
	}
	ids := map[string]int{}
	for _, r := range s.requests() {
		ids[r.header.Get("Webhook-Id")]++
	}
	if len(ids) != 30 || len(s.requests()) != 30 {
		t.Errorf("%d requests with %d ids, want 30 of each", len(s.requests()), len(ids))
	}
}

// TestStoppingDelivererLetsRequestsEnd: it records their answers.
func TestStoppingDelivererLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	entered, released := make(chan struct{}), make(chan struct{})
	s := newSink(t, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-released
	})
	task := b.task(a2a.PushConfig{URL: s.URL})
	stop := b.deliver()
	<-entered
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	close(released)
	<-stopped
	if p := b.awaitDelivered(task, 1); len(b.tries(p)) != 1 {
		t.Errorf("ledger %+v", b.tries(p))
	}
}

// TestUnreadableTaskIsRetriedByTheSchedule: without a schedule an unreadable task would be claimed
// and released in a busy loop. So a failed read counts as an attempt, and the next one is delayed.
func TestUnreadableTaskIsRetriedByTheSchedule(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	task := b.task(a2a.PushConfig{URL: "http://127.0.0.1:1/hook"})
	b.run(task, status(a2a.StateWorking))
	if _, err := b.sql.Exec(t.Context(), "DELETE FROM a2a.task_events WHERE task_id = $1", task); err != nil {
		t.Fatal(err)
	}
	b.deliver(func(c *DelivererConfig) { c.Schedule.Waits = []time.Duration{0, time.Hour, time.Hour} })
	p := b.await(task, "tried", func(p webhooks.Row) bool {
		if n := strings.Count(b.logged(), "msg=webhook"); n > 20 {
			t.Fatalf("%d tries to read it", n)
		}
		return p.Attempt > 0
	})
	b.await(task, "free", func(p webhooks.Row) bool { return p.State == "active" && p.Attempt == 1 })
	if tries := b.tries(p); len(tries) != 1 || tries[0].Class != string(ClassInternal) || tries[0].Reason == "" ||
		strings.Contains(tries[0].Reason, "not found") {
		t.Errorf("the ledger has %+v", tries)
	}
}
