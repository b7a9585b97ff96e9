package demo_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/demo"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// until stores tasks, and calls stop once one task of the usual kind has come after those of the day.
type until struct {
	*tasks.Store
	stop func()

	mu    sync.Mutex
	hangs bool // guarded by mu; the task that hangs was submitted, so the day is nearly complete
	after int  // guarded by mu; tasks since
}

func (u *until) Submit(ctx context.Context, in tasks.Submission) (tasks.Submitted, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(in.Message.Parts) > 1 && strings.Contains(string(in.Message.Parts[1].Data), "hang") {
		u.hangs = true
	}
	if u.hangs {
		u.after++
	}
	if u.after > 6 {
		u.stop()
	}
	return u.Store.Submit(ctx, in)
}

// noWork is a server whose worker API has no runs.
func noWork(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // only then the server notices that the client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// run runs the demo until tasks come one by one.
func run(t *testing.T, f *storetest.Fixture) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	err := demo.Run(ctx, demo.Config{
		Tasks: &until{Store: f.Tasks, stop: stop}, Search: f.Operate, URL: noWork(t), Pace: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDayIsStoredOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	run(t, f)
	const ended = `SELECT count(*)::text FROM a2a.tasks WHERE state = ANY ('{100,101,102,103}')`
	first := f.Column(ended)[0]
	if first == "0" {
		t.Fatal("no task of the past is stored")
	}
	hours := f.Column(`SELECT count(DISTINCT date_trunc('hour', created_at))::text FROM a2a.tasks`)[0]
	if len(hours) < 2 {
		t.Errorf("the day has tasks in %s hours", hours)
	}
	if kinds := f.Column(`SELECT DISTINCT agent FROM a2a.tasks WHERE state = 101`); len(kinds) != 2 {
		t.Errorf("tasks of %v failed, want those of two agents", kinds)
	}
	const failed = `FROM a2a.tasks t JOIN a2a.messages m ON m.task_id = t.id AND m.seq = 1 WHERE t.state = 101`
	if n := f.Column(`SELECT count(*)::text ` + failed + ` AND m.body::text NOT LIKE '%fail%'`)[0]; n != "0" {
		t.Errorf("%s of the failed tasks would not fail if they were run again", n)
	}
	if n := f.Column(`SELECT count(*)::text FROM a2a.push_configs`)[0]; n != "3" {
		t.Errorf("%s webhooks, want 3", n)
	}
	ctx, stop := context.WithCancel(t.Context())
	again := &until{Store: f.Tasks, stop: stop, hangs: true, after: 6} // it stops at the first task
	if err := demo.Run(ctx, demo.Config{
		Tasks: again, Search: f.Operate, URL: noWork(t), Pace: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	if got := f.Column(ended)[0]; got != first {
		t.Errorf("after a second start %s tasks have ended, want %s", got, first)
	}
	f.Invariants()
}

func TestAgentsOfTheDemoAreComplete(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, file := range agents.Demo() {
		names[file.Agent.Name] = true
		c := file.Agent.Card
		if c.Name == "" || c.Version == "" || len(c.Skills) == 0 || len(c.InputModes) == 0 {
			t.Errorf("%s has an incomplete card: %+v", file.Agent.Name, c)
		}
		for _, s := range file.Agent.Schedules {
			if !json.Valid(s.Message.Parts[1].Data) {
				t.Errorf("the schedule %s has the script %s", s.Name, s.Message.Parts[1].Data)
			}
		}
	}
	for _, used := range demo.AgentsUsed() {
		if !names[used] {
			t.Errorf("a task is for the agent %s, which is none of the demo", used)
		}
	}
}
