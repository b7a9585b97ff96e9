package admin_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
)

// streams is a server of the API that follows tasks.
type streams struct {
	*fixture
	url string
}

func newStreams(t *testing.T, change ...func(*admin.Streams)) *streams {
	t.Helper()
	s := &streams{}
	s.fixture = newFixture(t, func(c *admin.Config) {
		c.Streams.Follower = newFollower(t, c.Store)
		for _, ch := range change {
			ch(&c.Streams)
		}
	})
	srv := httptest.NewServer(s.api)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// newFollower follows tasks by polling.
func newFollower(t *testing.T, st *store.Store) *stream.Follower {
	t.Helper()
	f := stream.New(st.Tasks, &notify.Hub{}, 10*time.Millisecond, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx) //nolint:errcheck // it only returns nil
	}()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

func (s *streams) client(caller string) *admin.Client {
	return admin.NewClient(s.url, caller, http.DefaultTransport)
}

// follow collects the kinds and states of events, and calls on with each.
func (s *streams) follow(c *admin.Client, task a2a.ID, after int64, on func(client.Event)) (seen []string, err error) {
	s.T.Helper()
	query := admin.EventQuery{After: after}
	err = c.Follow(s.T.Context(), "/tasks/"+task.String()+"/events", query, func(x sse.Event) error {
		ev, err := client.DecodeEvent(x.Data, x.ID)
		if err != nil {
			return err
		}
		text := string(ev.Kind)
		if ev.State != a2a.StateNone {
			text += " " + ev.State.String()
		}
		seen = append(seen, text)
		if on != nil {
			on(ev)
		}
		return nil
	})
	return seen, err
}

func TestTaskIsFollowedUntilItEnds(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	task := s.submit("acme", "ann", "words", "x")
	var lease *tasks.Lease
	parts := []a2a.Part{{Kind: a2a.PartText, Text: "one"}}
	chunk := &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "count", Parts: parts}}
	seen, err := s.follow(s.client("acme"), task, 0, func(ev client.Event) {
		switch {
		case ev.State == a2a.StateSubmitted:
			lease = s.ClaimTask(task)
			s.Append(lease, chunk)
		case ev.Kind == client.KindArtifact:
			s.Append(lease, storetest.Status(a2a.StateCompleted, "done"))
		}
	})
	all := []string{"task submitted", "status-update working", "artifact-update", "status-update completed"}
	if !slices.Equal(seen, all) || !errors.Is(err, admin.ErrCut) {
		t.Errorf("the stream has %q, %v, want %q", seen, err, all)
	}
	whole := []string{"task completed"}
	for after, want := range map[int64][]string{0: whole, 1: all[1:], 2: all[2:], 4: whole, 99: whole} {
		seen, err := s.follow(s.client("reader"), task, after, nil)
		if !slices.Equal(seen, want) || !errors.Is(err, admin.ErrCut) {
			t.Errorf("after %d: %q, %v, want %q", after, seen, err, want)
		}
	}
	s.Exec(`DELETE FROM a2a.task_events WHERE task_id = $1 AND seq = 2`, db.PGID(task))
	if seen, _ := s.follow(s.client("reader"), task, 1, nil); !slices.Equal(seen, whole) {
		t.Errorf("after an event that retention has removed: %q, want the task", seen)
	}
}

// TestFollowedTaskIsOneOfTheCaller: a task of another tenant or agent looks like one that does not exist.
func TestFollowedTaskIsOneOfTheCaller(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	task := s.submit("corp", "carl", "words", "x").String()
	for _, caller := range []string{"acme", "one"} {
		there := s.get(caller, "/tasks/"+task+"/events")
		missing := s.get(caller, "/tasks/"+db.NewTaskID().String()+"/events")
		if there.status != http.StatusNotFound || there.body != missing.body {
			t.Errorf("%s: %d %s; an unknown task: %s", caller, there.status, there.body, missing.body)
		}
	}
	if got := s.get("corp", "/tasks/"+task+"/events?after=-1"); got.status != http.StatusBadRequest {
		t.Errorf("after -1: %d %s", got.status, got.body)
	}
}

func TestStreamsEndWhenTheServerDrains(t *testing.T) {
	t.Parallel()
	drain, cancel := context.WithCancel(t.Context())
	s := newStreams(t, func(c *admin.Streams) { c.Drain = drain })
	task := s.submit("acme", "ann", "words", "x")
	seen, err := s.follow(s.client("acme"), task, 0, func(client.Event) { cancel() })
	if !slices.Equal(seen, []string{"task submitted"}) || !errors.Is(err, admin.ErrCut) {
		t.Errorf("%q, %v", seen, err)
	}
}

func TestStreamsAreCountedAndRefused(t *testing.T) {
	t.Parallel()
	open, most := 0, 0
	left := make(chan struct{}, 1)
	s := newStreams(t, func(c *admin.Streams) {
		c.Open = func(_ *http.Request, p auth.Principal) (func(), error) {
			if p.Owner == "olga" {
				return nil, a2a.Errorf(a2a.CodeRateLimited, "too many open streams")
			}
			open++
			most = max(most, open)
			return func() { open--; left <- struct{}{} }, nil
		}
	})
	task := s.submit("acme", "ann", "words", "x")
	if _, err := s.follow(s.client("acme"), task, 0, func(ev client.Event) {
		if ev.Kind == client.KindTask {
			s.Append(s.ClaimTask(task), storetest.Status(a2a.StateCompleted, "done"))
		}
	}); !errors.Is(err, admin.ErrCut) {
		t.Error(err)
	}
	if <-left; open != 0 || most != 1 {
		t.Errorf("%d streams are open, at most %d were, want 0 and 1", open, most)
	}
	var refused *admin.RequestError
	if _, err := s.follow(s.client("reader"), task, 0, nil); !errors.As(err, &refused) ||
		refused.Status != http.StatusTooManyRequests {
		t.Errorf("too many streams: %v", err)
	}
}

func TestStreamWithoutEventsSendsComments(t *testing.T) {
	t.Parallel()
	s := newStreams(t, func(c *admin.Streams) { c.Ping, c.Retry = time.Millisecond, 3*time.Second })
	task := s.submit("acme", "ann", "words", "x")
	url := s.url + admin.Prefix + "/tasks/" + task.String() + "/events?after=1"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer acme")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := sse.NewReader(resp.Body, sse.ReaderOptions{Comments: true})
	var seen []string
	for len(seen) < 3 {
		ev, err := events.Next()
		if err != nil || !ev.Comment {
			t.Fatalf("%+v, %v", ev, err)
		}
		seen = append(seen, string(ev.Data))
	}
	if d, ok := events.Retry(); !ok || d != 3*time.Second || strings.Join(seen, " ") != "after ping ping" {
		t.Errorf("%q, retry %v", seen, d)
	}
	if got := resp.Header.Get("Cache-Control"); !strings.HasPrefix(got, "no-store") {
		t.Errorf("Cache-Control %q", got)
	}
}

// TestLocalClientFollows: a stream in this process has each event at once, and ends when its reader has enough.
func TestLocalClientFollows(t *testing.T) {
	t.Parallel()
	s := newStreams(t)
	local := admin.Local(admin.New(admin.Config{
		Store: s.Store, Streams: admin.Streams{Follower: newFollower(t, s.Store)},
		SignIn: func(*http.Request) (auth.Principal, error) { return callers["both"], nil },
	}))
	task := s.submit("acme", "ann", "words", "x")
	enough := errors.New("enough")
	n := 0
	err := local.Follow(t.Context(), "/tasks/"+task.String()+"/events", admin.EventQuery{}, func(sse.Event) error {
		if n++; n == 2 {
			return enough
		}
		s.ClaimTask(task)
		return nil
	})
	if !errors.Is(err, enough) || n != 2 {
		t.Errorf("%d events, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = local.Follow(ctx, "/tasks/"+task.String()+"/events", admin.EventQuery{}, func(sse.Event) error {
		cancel()
		return nil
	})
	if !errors.Is(err, admin.ErrCut) && !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	var refused *admin.RequestError
	err = local.Follow(t.Context(), "/tasks/ffff/events", admin.EventQuery{}, nil)
	if !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("an unknown task: %v", err)
	}
}
