package workerapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/workerapi"
)

func TestClaimWithoutWorkIsAnEmptyList(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("other", "ann")
	for _, wait := range []string{"", `,"waitSeconds":0`, `,"waitSeconds":1`} {
		if got := f.post("/claim", `{"worker":"w1","agents":["words"]`+wait+`}`); got.body != `{"runs":[]}` {
			t.Errorf("%s: %s", wait, got.body)
		}
	}
}

// TestWaitingClaimIsWoken: a wake-up answers a waiting claim, whichever replica the task was
// submitted to. This fixture never polls.
func TestWaitingClaimIsWoken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan reply, 1)
	go func() {
		r, err := f.tryAsk(t.Context(), f.at, "all", "POST", "/claim",
			`{"worker":"w1","agents":["words","other"],"max":5,"waitSeconds":60}`)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	f.waitPolled()
	id := f.submit("other", "ann")
	if runs := runsOf(t, <-got); len(runs) != 1 || runs[0].TaskID != id.String() {
		t.Errorf("runs %+v", runs)
	}
}

// TestDrainedWorkerDoesNotKeepTasksFromOthers: its claim comes first, and the other one gets the task. It gets the next
// one when it may continue.
func TestDrainedWorkerDoesNotKeepTasksFromOthers(t *testing.T) {
	t.Parallel()
	var drained atomic.Bool
	drained.Store(true)
	asked := make(chan struct{}, 100)
	f := newFixture(t, func(c *workerapi.Config) {
		c.Drained = func(worker string) bool {
			if worker == "hangs" {
				asked <- struct{}{}
			}
			return worker == "hangs" && drained.Load()
		}
	})
	if _, _, err := f.Tasks.BeginStop(t.Context(), tasks.StopWorker, "hangs", false); err != nil {
		t.Fatal(err)
	}
	claim := func(worker string) <-chan reply {
		got := make(chan reply, 1)
		go func() {
			r, err := f.tryAsk(t.Context(), f.at, "all", "POST", "/claim",
				`{"worker":"`+worker+`","agents":["words"],"max":1,"waitSeconds":60}`)
			if err != nil {
				t.Error(err)
			}
			got <- r
		}()
		return got
	}
	hangs := claim("hangs")
	<-asked // it waits
	works := claim("works")
	f.waitPolled()
	id := f.submit("words", "ann")
	if runs := runsOf(t, <-works); len(runs) != 1 || runs[0].TaskID != id.String() {
		t.Errorf("the other worker has the runs %+v", runs)
	}
	id = f.submit("words", "ann")
	if _, err := f.Tasks.EndStop(t.Context(), tasks.StopWorker, "hangs"); err != nil {
		t.Fatal(err)
	}
	drained.Store(false)
	f.api.Recheck()
	if runs := runsOf(t, <-hangs); len(runs) != 1 || runs[0].TaskID != id.String() {
		t.Errorf("the worker that may continue has the runs %+v", runs)
	}
}

// TestTasksOfAllTenantsAreClaimed: a key is good for all tenants of its agents.
func TestTasksOfAllTenantsAreClaimed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []db.Caller{{Tenant: "acme", Owner: "ann"}, {Tenant: "umbrella", Owner: "bob"}} {
		_, err := f.Tasks.Submit(t.Context(), tasks.Submission{Caller: c, Agent: "words", ContextID: "c",
			Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	runs := f.claim("words", 10)
	if len(runs) != 2 {
		t.Fatalf("claimed %+v", runs)
	}
	a, b := runs[0], runs[1]
	if a.ContextID != b.ContextID || a.ContextKey == b.ContextKey || a.Tenant+a.Owner != "acmeann" ||
		b.Tenant+b.Owner != "umbrellabob" {
		t.Errorf("runs of two owners: %+v, %+v", a, b)
	}
}

func TestManyWorkersNeverGetTheSameRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, hub2, second := f.replica("r2")
	const workers, tasks = 100, 400
	ids := make(map[string]int)
	var mu sync.Mutex
	var wg, done sync.WaitGroup
	done.Add(tasks)
	ctx, stop := context.WithCancel(t.Context())
	for i := range workers {
		base := []string{f.at, second}[i%2]
		wg.Go(func() {
			for ctx.Err() == nil {
				got, err := f.tryAsk(ctx, base, "all", "POST", "/claim",
					fmt.Sprintf(`{"worker":"w%d","agents":["words"],"max":%d,"waitSeconds":60}`, i, 1+i%8))
				if ctx.Err() != nil {
					return
				}
				if err != nil || got.status != 200 {
					t.Errorf("claim: %v: %d %s", err, got.status, got.body)
					return
				}
				for _, r := range runsOf(t, got) {
					mu.Lock()
					ids[r.TaskID]++
					mu.Unlock()
					end, err := f.tryAsk(t.Context(), base, "all", "POST", r.path+"events", events(completed))
					if err != nil || end.status != 200 {
						t.Errorf("events: %v: %d %s", err, end.status, end.body)
					}
					done.Done()
				}
			}
		})
	}
	for range tasks {
		f.submit("words", "ann")
		hub2.Wake("ready:words")
	}
	done.Wait()
	stop()
	wg.Wait()
	for id, n := range ids {
		if n != 1 {
			t.Errorf("task %s was claimed %d times", id, n)
		}
	}
	var attempts, completed int
	if err := f.sql.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM a2a.task_attempts)::int,
		(SELECT count(*) FROM a2a.tasks WHERE state = 100)::int`).Scan(&attempts, &completed); err != nil {
		t.Fatal(err)
	}
	var foreign int // events of a worker that had not claimed the task
	if err := f.sql.QueryRow(t.Context(), `SELECT count(*)::int FROM a2a.task_events e WHERE e.source = 1
		AND NOT EXISTS (SELECT FROM a2a.task_attempts a
			WHERE a.task_id = e.task_id AND a.epoch = e.epoch AND a.worker = e.worker)`).
		Scan(&foreign); err != nil || foreign != 0 {
		t.Errorf("%d events came from a worker without a claim, %v", foreign, err)
	}
	if attempts != tasks || completed != tasks || len(ids) != tasks {
		t.Errorf("%d tasks, %d attempts, %d completed, want %d of each", len(ids), attempts, completed, tasks)
	}
}

// TestClaimOfADisconnectedWorkerClaimsNothing: a worker that disconnected while it waited gets no
// later tasks.
func TestClaimOfADisconnectedWorkerClaimsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = f.tryAsk(ctx, f.at, "all", "POST", "/claim", `{"worker":"w0","agents":["words"],"waitSeconds":60}`)
	}()
	f.waitPolled()
	leave()
	<-gone
	id := f.submit("words", "ann")
	runs := f.claim("words", 1)
	if len(runs) != 1 || runs[0].TaskID != id.String() || runs[0].Attempt != 1 {
		t.Errorf("claimed %+v", runs)
	}
}

func TestDrainAnswersWaitingClaims(t *testing.T) {
	t.Parallel()
	drain, begin := context.WithCancel(t.Context())
	f := newFixture(t, func(c *workerapi.Config) { c.Drain = drain.Done() })
	got := make(chan reply, 1)
	go func() {
		r, err := f.tryAsk(t.Context(), f.at, "all", "POST", "/claim",
			`{"worker":"w","agents":["words"],"waitSeconds":60}`)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	f.waitPolled()
	begin()
	if r := <-got; r.body != `{"runs":[]}` {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestAgentsChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	f.api.SetAgents([]*a2a.Agent{{Name: "new"}})
	want(t, f.post("/claim", `{"worker":"w","agents":["words"]}`), 404, "NOT_FOUND")
	want(t, f.post(r.path+"events", events(completed)), 200, "") // a run that started continues
	f.wantState(f.id(r), a2a.StateCompleted)
	got := make(chan reply, 1)
	go func() {
		r, err := f.tryAsk(t.Context(), f.at, "all", "POST", "/claim",
			`{"worker":"w","agents":["new"],"waitSeconds":60}`)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	f.waitPolled()
	id := f.submit("new", "ann")
	if runs := runsOf(t, <-got); len(runs) != 1 || runs[0].TaskID != id.String() {
		t.Errorf("runs %+v", runs)
	}
}

// A worker that stops gives up its claim. That is no error of the server.
func TestAbortedClaimIsNoServerError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/worker/v1/claim",
		strings.NewReader(`{"worker":"w","agents":["words"],"waitSeconds":60}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer all")
	f.api.ServeHTTP(w, r)
	if w.Code != 499 {
		t.Errorf("status %d %s, want 499", w.Code, w.Body)
	}
}
