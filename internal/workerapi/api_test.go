package workerapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/workerapi"
)

func TestWorkerRunsATask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	if r.Agent != "words" || r.Epoch != 1 || r.Attempt != 1 || len(r.Messages) != 1 {
		t.Errorf("run %+v", r)
	}
	got := f.post(r.path+"events", events(working, artifact))
	if got.status != 200 || got.json["lastSeq"] != 4.0 || got.json["cancelRequested"] != false {
		t.Errorf("events: %d %s", got.status, got.body)
	}
	for _, body := range []string{"", "{}", "null", " null "} {
		if got = f.post(r.path+"heartbeat", body); got.status != 200 || got.json["cancelRequested"] != false {
			t.Errorf("heartbeat with the body %q: %d %s", body, got.status, got.body)
		}
	}
	until, err := time.Parse(time.RFC3339, got.json["leaseExpiresAt"].(string))
	if d := time.Until(until); err != nil || d < 50*time.Minute || d > 70*time.Minute {
		t.Errorf("the lease ends in %v, %v, want an hour", d, err)
	}
	got = f.post(r.path+"events", events(completed))
	want(t, got, 200, "")
	// The run ended by its own event: there is nothing left to finish, and nothing can be added.
	want(t, f.post(r.path+"finish", `{"outcome":"fail","error":"too late"}`), 200, "")
	want(t, f.post(r.path+"events", events(working)), 409, "LEASE_LOST")
	want(t, f.post(r.path+"heartbeat", ""), 409, "LEASE_LOST")
	task := f.snapshot(f.id(r))
	if task.Status.State != a2a.StateCompleted || task.LastSeq != 5 || len(task.Artifacts) != 1 ||
		task.Artifacts[0].Parts[0].Text != "one" {
		t.Errorf("task %+v", task)
	}
	if got := f.outcomes(f.id(r)); !slices.Equal(got, []string{"w1 completed "}) {
		t.Errorf("attempts %q", got)
	}
}

func TestRunHasTheValuesOfItsRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, err := f.Tasks.Submit(t.Context(), tasks.Submission{
		Caller: db.Caller{Tenant: "acme", Owner: "ann"}, Agent: "words", ContextID: "ctx", Traceparent: trace,
		Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}},
			RequestMetadata: a2a.Raw(`{"n": 1.50}`)},
	}); err != nil {
		t.Fatal(err)
	}
	got, err := f.tryAsk(t.Context(), f.at, "all", "POST", "/claim",
		`{"worker":"w","agents":["words"],"max":1,"waitSeconds":0}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"traceparent":"` + trace + `"`, `"requestMetadata":[{"n": 1.50}]`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("%s: want %s", got.body, want)
		}
	}
}

func TestPausedWorkerGets409ForEverything(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	want(t, f.post(r.path+"events", `{"events":[`+working+`],"batchId":"b1"}`), 200, "")
	refused := func() {
		t.Helper()
		before := f.logLength(f.id(r))
		want(t, f.post(r.path+"events", events(completed)), 409, "LEASE_LOST")
		want(t, f.post(r.path+"events", `{"events":[],"checkpoint":1}`), 409, "LEASE_LOST")
		want(t, f.post(r.path+"events", `{"events":[`+working+`],"batchId":"b1"}`), 409, "LEASE_LOST")
		want(t, f.post(r.path+"heartbeat", "{}"), 409, "LEASE_LOST")
		for _, outcome := range []string{"done", "retry", "fail", "release"} {
			want(t, f.post(r.path+"finish", `{"outcome":"`+outcome+`"}`), 409, "LEASE_LOST")
		}
		if after := f.logLength(f.id(r)); after != before {
			t.Errorf("the log has %d events, had %d", after, before)
		}
	}
	f.expire(r)
	refused() // before another worker has claimed it
	if n, err := f.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 3}, 10); n != 1 || err != nil {
		t.Fatalf("rescue = %d, %v", n, err)
	}
	refused()
	next := f.claim("words", 1)[0] // immediately, without a backoff
	if next.TaskID != r.TaskID || next.Epoch <= r.Epoch || next.Attempt != 2 {
		t.Errorf("the next run is %+v", next)
	}
	refused()
	want(t, f.post(next.path+"finish", `{"outcome":"done"}`), 200, "")
	refused()
	if got := f.outcomes(f.id(r)); !slices.Equal(got, []string{"w1 expired ", "w1 completed "}) {
		t.Errorf("attempts %q", got)
	}
}

func TestWorkerLearnsOfACancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	if _, err := f.Tasks.Cancel(t.Context(), db.Caller{Tenant: "acme", Owner: "ann"}, "", f.id(r)); err != nil {
		t.Fatal(err)
	}
	for _, call := range [][2]string{{"heartbeat", ""}, {"events", events(working)}, {"events", events(completed)}} {
		if got := f.post(r.path+call[0], call[1]); got.status != 200 || got.json["cancelRequested"] != true {
			t.Errorf("%s: %d %s", call[0], got.status, got.body)
		}
	}
	for _, outcome := range []string{"done", "retry", "fail", "release"} {
		want(t, f.post(r.path+"finish", `{"outcome":"`+outcome+`"}`), 200, "")
	}
	f.wantState(f.id(r), a2a.StateCanceled)
	if n := f.logLength(f.id(r)); n != 3 {
		t.Errorf("the log has %d events, want 3", n)
	}
}

func TestFinish(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tt := range []struct {
		body    string
		state   a2a.State
		outcome string
	}{
		{`{"outcome":"done"}`, a2a.StateCompleted, "w1 completed "},
		{`{"outcome":"fail","error":"no such word\u0000"}`, a2a.StateFailed, "w1 failed no such word\uFFFD"},
		{`{"outcome":"retry","error":"busy","retryAfterSeconds":3600}`, a2a.StateWorking, "w1 retry busy"},
		{`{"outcome":"release"}`, a2a.StateWorking, "w1 released the worker released the task"},
	} {
		r := f.claimed()
		want(t, f.post(r.path+"finish", tt.body), 200, "")
		want(t, f.post(r.path+"finish", tt.body), 200, "") // as if the first answer was lost
		f.wantState(f.id(r), tt.state)
		if got := f.outcomes(f.id(r)); !slices.Equal(got, []string{tt.outcome}) {
			t.Errorf("%s: attempts %q, want %q", tt.body, got, tt.outcome)
		}
		want(t, f.post(r.path+"heartbeat", ""), 409, "LEASE_LOST")
		// Released: the task can be claimed again, and this was no attempt.
		if tt.state == a2a.StateWorking && !strings.Contains(tt.body, "3600") {
			again := f.claim("words", 1)
			if len(again) != 1 || again[0].TaskID != r.TaskID || again[0].Attempt != 1 {
				t.Errorf("%s: claimed %+v", tt.body, again)
			}
		}
	}
}

func TestRetriesEndWithTheAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.submit("words", "ann")
	for i := range 3 {
		r := f.claim("words", 1)
		if len(r) != 1 || r[0].Attempt != i+1 {
			t.Fatalf("attempt %d: claimed %+v", i+1, r)
		}
		want(t, f.post(r[0].path+"finish", `{"outcome":"retry","error":"out of luck"}`), 200, "")
	}
	task := f.snapshot(id)
	if task.Status.State != a2a.StateFailed || task.Status.Message.Parts[0].Text != "attempt 3 of 3: out of luck" {
		t.Errorf("status %+v", task.Status)
	}
}

// The last retry and the last silent attempt park the task if its agent says so. A permanent failure does not.
func TestRetriesEndWithAParkedTask(t *testing.T) {
	t.Parallel()
	parks := func(c *workerapi.Config) {
		c.Limits.MaxAttempts, c.Limits.OnExhausted, c.Limits.ParkFor = 1, a2a.ExhaustedPark, time.Hour
		c.Limits.IdleTimeout = 10 * time.Minute
	}
	f := newFixture(t, parks)
	r, silent, final := f.claimed(), f.claimed(), f.claimed()
	for range 2 { // as if the first answer was lost
		want(t, f.post(r.path+"finish", `{"outcome":"retry","error":"out of luck"}`), 200, "")
	}
	want(t, f.post(r.path+"events", events(completed)), 409, "LEASE_LOST")
	f.exec("UPDATE a2a.tasks SET last_at = last_at - interval '11 minutes' WHERE id = $1", f.id(silent))
	want(t, f.post(silent.path+"heartbeat", ""), 409, "LEASE_LOST")
	want(t, f.post(final.path+"finish", `{"outcome":"fail","error":"never"}`), 200, "")
	f.wantState(f.id(final), a2a.StateFailed)
	for run, why := range map[*run]string{
		&r: "attempt 1 of 1: out of luck", &silent: "attempt 1 of 1: agent reported nothing for too long",
	} {
		f.wantState(f.id(*run), a2a.StateWorking)
		if got := f.outcomes(f.id(*run)); !slices.Equal(got, []string{"w1 parked " + why}) {
			t.Errorf("attempts %q, want one that parked the task: %s", got, why)
		}
	}
	if got := runsOf(t, f.post("/claim", `{"worker":"w1","agents":["words"],"max":3}`)); len(got) != 0 {
		t.Fatalf("parked tasks were claimed: %+v", got)
	}
	list, err := f.Tasks.Resume(t.Context(), []a2a.ID{f.id(r), f.id(silent), f.id(final)}, "fixed")
	if err != nil || len(list) != 2 {
		t.Fatalf("Resume = %+v, %v, want two tasks", list, err)
	}
	again := f.claim("words", 3)
	if len(again) != 2 || again[0].Attempt != 1 || again[1].Attempt != 1 {
		t.Fatalf("claimed %+v, want both as attempt 1", again)
	}
	for _, r := range again {
		want(t, f.post(r.path+"finish", `{"outcome":"done"}`), 200, "")
		f.wantState(f.id(r), a2a.StateCompleted)
	}
}

// TestMessageMeanwhileIsTheNextTurn: a message that arrives during a turn is the next turn, even if
// another replica answers the worker.
func TestMessageMeanwhileIsTheNextTurn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, _, second := f.replica("r2")
	r := f.claimed()
	if _, err := f.Tasks.Submit(t.Context(), tasks.Submission{
		Caller: db.Caller{Tenant: "acme", Owner: "ann"}, Agent: "words", Task: f.id(r),
		Message: a2a.Message{ID: "m-2", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "and this"}}},
	}); err != nil {
		t.Fatal(err)
	}
	want(t, f.ask(second, "all", "POST", r.path+"events", events(completed)), 200, "")
	f.wantState(f.id(r), a2a.StateWorking)
	next := runsOf(t, f.ask(second, "all", "POST", "/claim", `{"worker":"w2","agents":["words"]}`))
	if len(next) != 1 || next[0].TaskID != r.TaskID || len(next[0].Messages) != 1 ||
		!strings.Contains(fmt.Sprint(next[0].Messages), "and this") {
		t.Fatalf("claimed %+v", next)
	}
	want(t, f.post(next[0].path+"events", events(completed)), 200, "")
	f.wantState(f.id(r), a2a.StateCompleted)
}

func TestDeadlineAndIdleTimeoutEndARun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *workerapi.Config) {
		c.Limits.Deadline, c.Limits.IdleTimeout = time.Hour, 10*time.Minute
	})
	r := f.claimed()
	f.exec("UPDATE a2a.tasks SET last_at = last_at - interval '11 minutes' WHERE id = $1", f.id(r))
	want(t, f.post(r.path+"heartbeat", ""), 409, "LEASE_LOST")
	if got := f.outcomes(f.id(r)); !slices.Equal(got, []string{"w1 retry agent reported nothing for too long"}) {
		t.Errorf("attempts %q", got)
	}
	r = f.claim("words", 1)[0]
	f.exec("UPDATE a2a.tasks SET deadline_at = deadline_at - interval '61 minutes' WHERE id = $1", f.id(r))
	f.api.ForgetRuns() // as if the time had passed
	want(t, f.post(r.path+"events", events(completed)), 409, "LEASE_LOST")
	task := f.snapshot(f.id(r))
	if task.Status.State != a2a.StateFailed || task.Status.Message.Parts[0].Text != "deadline exceeded" {
		t.Errorf("status %+v", task.Status)
	}
	// A task whose deadline passed before it was claimed again is not given to a worker.
	r = f.claimed()
	want(t, f.post(r.path+"finish", `{"outcome":"release"}`), 200, "")
	f.exec("UPDATE a2a.tasks SET deadline_at = deadline_at - interval '61 minutes' WHERE id = $1", f.id(r))
	if runs := f.claim("words", 1); len(runs) != 0 {
		t.Errorf("claimed %+v", runs)
	}
	f.wantState(f.id(r), a2a.StateFailed)
}
