package workerapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
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
	// The run has ended by itself: nothing is left to finish, and nothing can be added.
	want(t, f.post(r.path+"finish", `{"outcome":"fail","error":"too late"}`), 200, "")
	want(t, f.post(r.path+"events", events(working)), 409, "LEASE_LOST")
	want(t, f.post(r.path+"heartbeat", ""), 409, "LEASE_LOST")
	task := f.snapshot(f.id(r))
	if task.Status.State != a2a.StateCompleted || task.LastSeq != 5 || len(task.Artifacts) != 1 || task.Artifacts[0].Parts[0].Text != "one" {
		t.Errorf("task %+v", task)
	}
	if got := f.outcomes(f.id(r)); !slices.Equal(got, []string{"w1 completed "}) {
		t.Errorf("attempts %q", got)
	}
}

func TestRunSaysWhatCameWithItsRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, err := f.Tasks.Submit(f.ctx, tasks.Submission{
		Caller: db.Caller{Tenant: "acme", Owner: "ann"}, Agent: "words", ContextID: "ctx", Traceparent: trace,
		Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}, RequestMetadata: a2a.Raw(`{"n": 1.50}`)},
	}); err != nil {
		t.Fatal(err)
	}
	got, err := f.tryAsk(f.ctx, f.at, "all", "POST", "/claim", `{"worker":"w","agents":["words"],"max":1,"waitSeconds":0}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"traceparent":"` + trace + `"`, `"requestMetadata":[{"n": 1.50}]`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("%s: want %s", got.body, want)
		}
	}
}

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

// A claim that waits is answered by the wake, whoever submits: there is no poll here.
func TestWaitingClaimIsWoken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan reply, 1)
	go func() {
		r, err := f.tryAsk(f.ctx, f.at, "all", "POST", "/claim", `{"worker":"w1","agents":["words","other"],"max":5,"waitSeconds":60}`)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	f.waitLooked()
	id := f.submit("other", "ann")
	if runs := runsOf(t, <-got); len(runs) != 1 || runs[0].TaskID != id.String() {
		t.Errorf("runs %+v", runs)
	}
}

// waitLooked returns when some claim has looked at the queue in vain: from then on wakes count.
func (f *fixture) waitLooked() {
	f.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		if err := f.sql.QueryRow(f.ctx, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database()
			AND application_name LIKE '%-claim' AND state = 'idle' AND query LIKE '%TaskClaim%'`).Scan(&n); err != nil {
			f.t.Fatal(err)
		}
		if n > 0 {
			return
		}
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			f.t.Fatal("nobody looks")
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
	refused() // although nobody has taken it yet
	if n, err := f.Tasks.Rescue(f.ctx, nil, 3, 10); n != 1 || err != nil {
		t.Fatalf("rescue = %d, %v", n, err)
	}
	refused()
	next := f.claim("words", 1)[0] // at once, without a backoff
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

func TestRepeatedBatchIsAnsweredAndNotWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	first := f.post(r.path+"events", `{"events":[`+artifact+`],"batchId":"b1","checkpoint":{"step":1}}`)
	second := f.post(r.path+"events", `{"events":[`+working+`],"batchId":"b2"}`)
	last := f.post(r.path+"events", `{"events":[`+completed+`],"batchId":"b3"}`)
	for i, r := range []reply{first, second, last} {
		if r.status != 200 || r.json["lastSeq"] != float64(3+i) {
			t.Errorf("batch %d: %d %s", i+1, r.status, r.body)
		}
	}
	for batch, was := range map[string]reply{"b1": first, "b2": second, "b3": last} { // the run has ended meanwhile
		if again := f.post(r.path+"events", `{"events":[`+working+`],"batchId":"`+batch+`"}`); again.status != 200 || again.body != was.body {
			t.Errorf("batch %s again: %d %s, was %s", batch, again.status, again.body, was.body)
		}
	}
	want(t, f.post(r.path+"events", `{"events":[`+working+`],"batchId":"b4"}`), 409, "LEASE_LOST")
	if n := f.logLength(f.id(r)); n != 5 {
		t.Errorf("the log has %d events, want 5", n)
	}
	if n, err := f.Tasks.ForgetBatches(f.ctx, time.Hour, 10); n != 0 || err != nil {
		t.Errorf("forgotten: %d, %v", n, err)
	}
	f.exec("UPDATE a2a.task_batches SET made_at = made_at - interval '2 hours'")
	if n, err := f.Tasks.ForgetBatches(f.ctx, time.Hour, 2); n != 2 || err != nil {
		t.Errorf("forgotten: %d, %v, want 2", n, err)
	}
}

func TestSameBatchFromManySidesIsWrittenOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	const n = 12
	answers := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			got, err := f.tryAsk(f.ctx, f.at, "all", "POST", r.path+"events", `{"events":[`+working+`,`+artifact+`],"batchId":"same"}`)
			if err != nil || got.status != 200 {
				t.Errorf("%v: %d %s", err, got.status, got.body)
			}
			answers[i] = got.body
		})
	}
	wg.Wait()
	if n := f.logLength(f.id(r)); n != 4 {
		t.Errorf("the log has %d events, want 4", n)
	}
	if all := slices.Compact(slices.Sorted(slices.Values(answers))); len(all) != 1 {
		t.Errorf("answers %q", all)
	}
}

// Requests of one run that overlap are written one after the other, each whole.
func TestOverlappingEventsOfOneRunAreAllWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	const n = 6
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if got, err := f.tryAsk(f.ctx, f.at, "all", "POST", r.path+"events", events(working, working)); err != nil || got.status != 200 {
				t.Errorf("%v: %d %s", err, got.status, got.body)
			}
		})
	}
	wg.Wait()
	if got := f.logLength(f.id(r)); got != 2+2*n {
		t.Errorf("the log has %d events, want %d", got, 2+2*n)
	}
}

func TestCancelIsTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	if _, err := f.Tasks.Cancel(f.ctx, db.Caller{Tenant: "acme", Owner: "ann"}, "", f.id(r)); err != nil {
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
		{`{"outcome":"release"}`, a2a.StateWorking, "w1 released "},
	} {
		r := f.claimed()
		want(t, f.post(r.path+"finish", tt.body), 200, "")
		want(t, f.post(r.path+"finish", tt.body), 200, "") // its answer may have been lost
		f.wantState(f.id(r), tt.state)
		if got := f.outcomes(f.id(r)); !slices.Equal(got, []string{tt.outcome}) {
			t.Errorf("%s: attempts %q, want %q", tt.body, got, tt.outcome)
		}
		want(t, f.post(r.path+"heartbeat", ""), 409, "LEASE_LOST")
		if tt.state == a2a.StateWorking && !strings.Contains(tt.body, "3600") { // released: it is there again, and this was no attempt
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

func TestCheckpointIsGivenBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	if r.Checkpoint != nil {
		t.Errorf("a new run has the checkpoint %s", r.Checkpoint)
	}
	for _, body := range []string{
		`{"events":[{"checkpoint":1},` + working + `,{"checkpoint":{"at": 2}}]}`, // the last one of a request counts
		`{"events":[{"checkpoint":1}],"checkpoint":{"at": 3}}`, `{"events":[],"checkpoint":[4]}`,
	} {
		want(t, f.post(r.path+"events", body), 200, "")
		want(t, f.post(r.path+"finish", `{"outcome":"release"}`), 200, "")
		r = f.claim("words", 1)[0]
		if got := string(r.Checkpoint); !strings.Contains(body, got) || got == "1" || got == "" {
			t.Errorf("%s: the next run has the checkpoint %s", body, got)
		}
	}
	want(t, f.post(r.path+"events", events(completed)), 200, "")
	var n int
	if err := f.sql.QueryRow(f.ctx, "SELECT count(*)::int FROM a2a.task_checkpoints").Scan(&n); n != 0 || err != nil {
		t.Errorf("%d checkpoints of an ended task, %v", n, err)
	}
}

// What comes while a turn is worked on is the next turn, also for a worker whose requests are
// answered by another replica.
func TestMessageMeanwhileIsTheNextTurn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, _, second := f.replica("r2")
	r := f.claimed()
	if _, err := f.Tasks.Submit(f.ctx, tasks.Submission{
		Caller: db.Caller{Tenant: "acme", Owner: "ann"}, Agent: "words", Task: f.id(r),
		Message: a2a.Message{ID: "m-2", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "and this"}}},
	}); err != nil {
		t.Fatal(err)
	}
	want(t, f.ask(second, "all", "POST", r.path+"events", events(completed)), 200, "")
	f.wantState(f.id(r), a2a.StateWorking)
	next := runsOf(t, f.ask(second, "all", "POST", "/claim", `{"worker":"w2","agents":["words"]}`))
	if len(next) != 1 || next[0].TaskID != r.TaskID || len(next[0].Messages) != 1 || !strings.Contains(fmt.Sprint(next[0].Messages), "and this") {
		t.Fatalf("claimed %+v", next)
	}
	want(t, f.post(next[0].path+"events", events(completed)), 200, "")
	f.wantState(f.id(r), a2a.StateCompleted)
}

func TestInvalidEventIsRefusedAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *workerapi.Config) { c.MaxSeq, c.MaxArtifacts, c.MaxBytes = 20, 5, 5000 })
	many := make([]string, 6)
	for i := range many {
		many[i] = fmt.Sprintf(`{"artifactUpdate":{"artifact":{"artifactId":"a%d","parts":[{"text":"x"}]}}}`, i)
	}
	for _, tt := range []struct{ body, field string }{
		{events(working, `{"statusUpdate":{"status":{"state":"nonsense"}}}`), "events[1]"},
		{events(working, `{"statusUpdate":{"status":{"state":"TASK_STATE_CANCELED"}}}`), "events[1]"},
		{events(working, `{"artefactUpdate":{}}`), "events[1]"},
		{events(working, `{"message":{"parts":[{"text":"x"}]}}`), "events[1]"},
		{events(working, `{"statusUpdate":{"status":{"state":"working"},"taskId":"another"}}`), "events[1]"},
		{events(completed, working), "events[1]"},
		{events(slices.Repeat([]string{working}, 30)...), "events"},
		{events(many...), "events"},
		{events(`{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"` + strings.Repeat("x", 5001) + `"}]}}}`), "events"},
		{events(`3`), "events[0]"},
	} {
		r := f.claimed()
		got := f.post(r.path+"events", tt.body)
		want(t, got, 400, "INVALID_AGENT_RESPONSE")
		if field := got.json["error"].(map[string]any)["field"]; field != tt.field {
			t.Errorf("%.200s: field %v, want %s: %s", tt.body, field, tt.field, got.body)
		}
		task := f.snapshot(f.id(r))
		if task.Status.State != a2a.StateWorking || task.LastSeq != 2 {
			t.Errorf("%.200s: the task is %s at %d", tt.body, task.Status.State, task.LastSeq)
		}
		want(t, f.post(r.path+"events", events(completed)), 200, "")
		f.wantState(f.id(r), a2a.StateCompleted)
	}
}

// Invalid events do not keep a run alive that reports nothing else.
func TestInvalidEventsDoNotOutlastTheIdleTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *workerapi.Config) { c.Limits.IdleTimeout = 10 * time.Minute })
	r := f.claimed()
	f.exec("UPDATE a2a.tasks SET last_at = last_at - interval '11 minutes' WHERE id = $1", f.id(r))
	want(t, f.post(r.path+"events", events(`3`)), 409, "LEASE_LOST")
	if got := f.outcomes(f.id(r)); !slices.Equal(got, []string{"w1 retry agent reported nothing for too long"}) {
		t.Errorf("attempts %q", got)
	}
}

func TestArtifactsAreCountedOverRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *workerapi.Config) { c.MaxArtifacts = 3 })
	r := f.claimed()
	one := func(id string) string {
		return events(`{"artifactUpdate":{"artifact":{"artifactId":"` + id + `","parts":[{"text":"x"}]},"append":true}}`)
	}
	for _, id := range []string{"a", "b", "a", "b", "c", "a", "c"} {
		want(t, f.post(r.path+"events", one(id)), 200, "")
	}
	want(t, f.post(r.path+"events", one("d")), 400, "INVALID_AGENT_RESPONSE")
	want(t, f.post(r.path+"events", one("c")), 200, "")
	f.wantState(f.id(r), a2a.StateWorking)
}

func TestBadRequestLeavesTheRunAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	for _, tt := range []struct{ path, body, reason string }{
		{"/claim", `{`, "PARSE_ERROR"},
		{"/claim", `{"worker":"w","worker":"v","agents":["words"]}`, "PARSE_ERROR"},
		{"/claim", `[]`, "INVALID_REQUEST"},
		{"/claim", ``, "INVALID_REQUEST"},
		{"/claim", `{"agents":["words"]}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w"}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":[]}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":"words"}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w w","agents":["words"]}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":[7]}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":["words"],"max":0}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":["words"],"max":101}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":["words"],"max":1.5}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":["words"],"waitSeconds":61}`, "INVALID_REQUEST"},
		{"/claim", `{"worker":"w","agents":["words"],"wait":1}`, "INVALID_REQUEST"},
		{r.path + "events", `{"events":[` + working + `]`, "PARSE_ERROR"},
		{r.path + "events", `{}`, "INVALID_REQUEST"},
		{r.path + "events", `{"events":{}}`, "INVALID_REQUEST"},
		{r.path + "events", `{"events":[],"batchId":""}`, "INVALID_REQUEST"},
		{r.path + "events", `{"events":[],"batchID":"b"}`, "INVALID_REQUEST"},
		{r.path + "events", events(slices.Repeat([]string{"{}"}, 1001)...), "INVALID_REQUEST"},
		{r.path + "heartbeat", `{"x":1}`, "INVALID_REQUEST"},
		{r.path + "heartbeat", `3`, "INVALID_REQUEST"},
		{r.path + "finish", `{}`, "INVALID_REQUEST"},
		{r.path + "finish", `{"outcome":"success"}`, "INVALID_REQUEST"},
		{r.path + "finish", `{"outcome":"done","retryAfterSeconds":1}`, "INVALID_REQUEST"},
		{r.path + "finish", `{"outcome":"retry","retryAfterSeconds":-1}`, "INVALID_REQUEST"},
		{r.path + "finish", `{"outcome":"fail","error":{}}`, "INVALID_REQUEST"},
	} {
		if got := f.post(tt.path, tt.body); got.status != 400 || got.reason() != tt.reason {
			t.Errorf("%s %.80s: %d %s, want 400 %s", tt.path, tt.body, got.status, got.body, tt.reason)
		}
	}
	want(t, f.post(r.path+"events", events(completed)), 200, "")
	if n := f.logLength(f.id(r)); n != 3 {
		t.Errorf("the log has %d events, want 3", n)
	}
}

func TestRunsOfOthersAreLikeThoseThatDoNotExist(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("other", "ann")
	r := f.claim("other", 1)[0]
	bodies := map[string]bool{}
	for _, tt := range []struct{ key, path string }{
		{"words", r.path}, // of an agent that the key is not for
		{"all", fmt.Sprintf("/runs/%s/%d/", r.TaskID, r.Epoch+1)}, {"all", fmt.Sprintf("/runs/%s/%d/", r.TaskID, -1)},
		{"all", "/runs/" + r.TaskID + "/9223372036854775808/"}, {"all", "/runs/" + r.TaskID + "/x/"}, {"all", "/runs/" + r.TaskID + "/1.0/"},
		{"all", "/runs/00000000-0000-7000-8000-000000000000/1/"}, {"all", "/runs/nonsense/1/"}, {"all", "/runs/%00/1/"},
	} {
		for call, body := range map[string]string{"events": events(working), "heartbeat": "", "finish": `{"outcome":"done"}`} {
			got := f.ask(f.at, tt.key, "POST", tt.path+call, body)
			want(t, got, 409, "LEASE_LOST")
			bodies[got.body] = true
		}
	}
	if len(bodies) != 1 {
		t.Errorf("the answers differ: %v", bodies)
	}
	if n := f.logLength(f.id(r)); n != 2 {
		t.Errorf("the log has %d events, want 2", n)
	}
	want(t, f.post(r.path+"heartbeat", ""), 200, "")
}

func TestKeyLimitedToAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mine, theirs := f.submit("words", "ann"), f.submit("other", "bob")
	for _, agents := range []string{`["other"]`, `["words","other"]`, `["no-such-agent"]`} {
		want(t, f.ask(f.at, "words", "POST", "/claim", `{"worker":"w","agents":`+agents+`}`), 403, "FORBIDDEN")
	}
	r := runsOf(t, f.ask(f.at, "words", "POST", "/claim", `{"worker":"w","agents":["words"],"max":9}`))
	if len(r) != 1 || r[0].TaskID != mine.String() {
		t.Errorf("claimed %+v, want %s", r, mine)
	}
	want(t, f.ask(f.at, "words", "POST", r[0].path+"finish", `{"outcome":"done"}`), 200, "")
	f.wantState(mine, a2a.StateCompleted)
	f.wantState(theirs, a2a.StateSubmitted)
}

// A key serves all tenants of its agents.
func TestTasksOfAllTenantsAreClaimed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []db.Caller{{Tenant: "acme", Owner: "ann"}, {Tenant: "umbrella", Owner: "bob"}} {
		if _, err := f.Tasks.Submit(f.ctx, tasks.Submission{Caller: c, Agent: "words", ContextID: "c", Message: a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}}}); err != nil {
			t.Fatal(err)
		}
	}
	runs := f.claim("words", 10)
	if len(runs) != 2 {
		t.Fatalf("claimed %+v", runs)
	}
	if a, b := runs[0], runs[1]; a.ContextID != b.ContextID || a.ContextKey == b.ContextKey || a.Tenant+a.Owner != "acmeann" || b.Tenant+b.Owner != "umbrellabob" {
		t.Errorf("runs of two owners: %+v, %+v", a, b)
	}
}

func TestDeadlineAndSilenceEndARun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *workerapi.Config) { c.Limits.Deadline, c.Limits.IdleTimeout = time.Hour, 10*time.Minute })
	r := f.claimed()
	f.exec("UPDATE a2a.tasks SET last_at = last_at - interval '11 minutes' WHERE id = $1", f.id(r))
	want(t, f.post(r.path+"heartbeat", ""), 409, "LEASE_LOST")
	if got := f.outcomes(f.id(r)); !slices.Equal(got, []string{"w1 retry agent reported nothing for too long"}) {
		t.Errorf("attempts %q", got)
	}
	r = f.claim("words", 1)[0]
	f.exec("UPDATE a2a.tasks SET deadline_at = deadline_at - interval '61 minutes' WHERE id = $1", f.id(r))
	want(t, f.post(r.path+"events", events(completed)), 409, "LEASE_LOST")
	task := f.snapshot(f.id(r))
	if task.Status.State != a2a.StateFailed || task.Status.Message.Parts[0].Text != "deadline exceeded" {
		t.Errorf("status %+v", task.Status)
	}
	// One whose deadline passed before it was claimed again is not given out.
	r = f.claimed()
	want(t, f.post(r.path+"finish", `{"outcome":"release"}`), 200, "")
	f.exec("UPDATE a2a.tasks SET deadline_at = deadline_at - interval '61 minutes' WHERE id = $1", f.id(r))
	if runs := f.claim("words", 1); len(runs) != 0 {
		t.Errorf("claimed %+v", runs)
	}
	f.wantState(f.id(r), a2a.StateFailed)
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
	ctx, stop := context.WithCancel(f.ctx)
	for i := range workers {
		base := []string{f.at, second}[i%2]
		wg.Go(func() {
			for ctx.Err() == nil {
				got, err := f.tryAsk(ctx, base, "all", "POST", "/claim", fmt.Sprintf(`{"worker":"w%d","agents":["words"],"max":%d,"waitSeconds":60}`, i, 1+i%8))
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
					if end, err := f.tryAsk(f.ctx, base, "all", "POST", r.path+"events", events(completed)); err != nil || end.status != 200 {
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
			t.Errorf("task %s was given out %d times", id, n)
		}
	}
	var attempts, completed int
	if err := f.sql.QueryRow(f.ctx, `SELECT (SELECT count(*) FROM a2a.task_attempts)::int, (SELECT count(*) FROM a2a.tasks WHERE state = 100)::int`).Scan(&attempts, &completed); err != nil {
		t.Fatal(err)
	}
	var foreign int // events of a worker who had not claimed the task
	if err := f.sql.QueryRow(f.ctx, `SELECT count(*)::int FROM a2a.task_events e WHERE e.source = 1
		AND NOT EXISTS (SELECT FROM a2a.task_attempts a WHERE a.task_id = e.task_id AND a.epoch = e.epoch AND a.worker = e.worker)`).Scan(&foreign); err != nil || foreign != 0 {
		t.Errorf("%d events are of a worker without a claim, %v", foreign, err)
	}
	if attempts != tasks || completed != tasks || len(ids) != tasks {
		t.Errorf("%d tasks, %d attempts, %d completed, want %d of each", len(ids), attempts, completed, tasks)
	}
}

// A worker that went away while it waited is not given what comes afterwards.
func TestClaimOfAWorkerThatIsGoneTakesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, leave := context.WithCancel(f.ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = f.tryAsk(ctx, f.at, "all", "POST", "/claim", `{"worker":"w0","agents":["words"],"waitSeconds":60}`)
	}()
	f.waitLooked()
	leave()
	<-gone
	id := f.submit("words", "ann")
	runs := f.claim("words", 1)
	if len(runs) != 1 || runs[0].TaskID != id.String() || runs[0].Attempt != 1 {
		t.Errorf("claimed %+v", runs)
	}
}

func TestDrainAnswersClaimsThatWait(t *testing.T) {
	t.Parallel()
	drain, begin := context.WithCancel(t.Context())
	f := newFixture(t, func(c *workerapi.Config) { c.Drain = drain })
	got := make(chan reply, 1)
	go func() {
		r, err := f.tryAsk(f.ctx, f.at, "all", "POST", "/claim", `{"worker":"w","agents":["words"],"waitSeconds":60}`)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	f.waitLooked()
	begin()
	if r := <-got; r.body != `{"runs":[]}` {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *workerapi.Config) { c.MaxWaiting = 1 })
	const claim = `{"worker":"w","agents":["words"]}`
	for _, key := range []string{"", "nobody"} {
		got := f.ask(f.at, key, "POST", "/claim", claim)
		want(t, got, 401, "UNAUTHENTICATED")
		if got.header.Get("WWW-Authenticate") == "" {
			t.Error("no challenge")
		}
	}
	want(t, f.ask(f.at, "client", "POST", "/claim", `{`), 403, "FORBIDDEN")
	want(t, f.ask(f.at, "broken", "POST", "/claim", claim), 500, "INTERNAL")
	want(t, f.post("/claim", `{"worker":"w","agents":["no-such-agent"]}`), 404, "NOT_FOUND")
	want(t, f.post("/claims", claim), 404, "NOT_FOUND")
	want(t, f.ask(f.at, "all", "GET", "/claim", ""), 404, "NOT_FOUND")
	want(t, f.post("/claim", `{"worker":"`+strings.Repeat("w", 1<<20)+`","agents":["words"]}`), 413, "REQUEST_TOO_LARGE")
	req, err := http.NewRequestWithContext(f.ctx, http.MethodPost, f.at+"/worker/v1/claim", strings.NewReader(claim))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer all")
	got, err := f.send(req)
	if err != nil {
		t.Fatal(err)
	}
	want(t, got, 415, "CONTENT_TYPE_NOT_SUPPORTED")

	waits := make(chan reply, 1)
	ctx, leave := context.WithCancel(f.ctx)
	go func() {
		r, _ := f.tryAsk(ctx, f.at, "all", "POST", "/claim", `{"worker":"w","agents":["words"],"waitSeconds":60}`)
		waits <- r
	}()
	f.waitLooked()
	got = f.post("/claim", claim)
	want(t, got, 429, "RATE_LIMITED")
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	leave()
	<-waits
	f.Close()
	got = f.post("/runs/00000000-0000-7000-8000-000000000000/1/heartbeat", "")
	want(t, got, 503, "UNAVAILABLE")
}

func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.ask(f.at, "", "GET", "/openapi.json", "")
	if got.status != 200 || got.json["openapi"] != "3.1.0" {
		t.Errorf("%d %.100s", got.status, got.body)
	}
}

// What the handlers take and what the document says they take is the same.
func TestDocumentAgreesAboutRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, cases := range map[string]struct {
		path func() string
		good []string
		bad  []string
	}{
		"ClaimRequest": {func() string { return "/claim" },
			[]string{`{"worker":"w","agents":["words"]}`, `{"worker":"w","agents":["words","other"],"max":100,"waitSeconds":0}`},
			[]string{`{"worker":"w"}`, `{"agents":["words"]}`, `{"worker":"","agents":["words"]}`, `{"worker":"w","agents":[]}`, `{"worker":"w","agents":["words"],"max":0}`,
				`{"worker":"w","agents":["words"],"max":101}`, `{"worker":"w","agents":["words"],"waitSeconds":61}`, `{"worker":"w","agents":["words"],"x":1}`, `{"worker":"` + strings.Repeat("w", 129) + `","agents":["words"]}`}},
		"EventsRequest": {func() string { return f.claimed().path + "events" },
			[]string{`{"events":[]}`, events(working, artifact), `{"events":[{"checkpoint":null}],"checkpoint":3,"batchId":"b"}`},
			[]string{`{}`, `{"events":3}`, `{"events":[],"batchId":""}`, `{"events":[],"x":1}`, `{"events":[{}]}`, `{"events":[{"task":{}}]}`, `{"events":[{"statusUpdate":{}}]}`, `{"events":["x"]}`,
				`{"events":[{"artifactUpdate":{}}]}`, events(strings.TrimSuffix(working, "}") + `,"checkpoint":1}`), `{"events":[],"batchId":"` + strings.Repeat("b", 129) + `"}`, events(slices.Repeat([]string{working}, 1001)...)}},
		"HeartbeatRequest": {func() string { return f.claimed().path + "heartbeat" }, []string{`{}`}, []string{`{"x":1}`, `[]`}},
		"FinishRequest": {func() string { return f.claimed().path + "finish" },
			[]string{`{"outcome":"done"}`, `{"outcome":"retry","retryAfterSeconds":604800,"error":""}`, `{"outcome":"fail","error":"x"}`, `{"outcome":"release"}`},
			[]string{`{}`, `{"outcome":"x"}`, `{"outcome":"retry","retryAfterSeconds":604801}`, `{"outcome":"retry","retryAfterSeconds":0.5}`, `{"outcome":"fail","error":1}`, `{"outcome":"done","x":1}`}},
	} {
		s, err := schema("/components/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for i, body := range append(slices.Clone(cases.good), cases.bad...) {
			good := i < len(cases.good)
			var v any
			if err := json.Unmarshal([]byte(body), &v); err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(v); (err == nil) != good {
				t.Errorf("%s: the document says of %.100s: %v", name, body, err)
			}
			if got := f.post(cases.path(), body); (got.status == 200) != good {
				t.Errorf("%s: %.100s is answered with %d %s", name, body, got.status, got.body)
			}
		}
	}
}

// Every path and method of the document is one that is answered, and there are no others.
func TestDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := map[string]bool{}
	for path, item := range document()["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method == "parameters" {
				continue
			}
			got[method+" "+path] = true
			r := f.ask(f.at, "all", strings.ToUpper(method), strings.NewReplacer("{taskId}", "x", "{epoch}", "1").Replace(path), `{"x":1}`)
			if r.status == 404 {
				t.Errorf("%s %s: %s", method, path, r.body)
			}
		}
	}
	for _, route := range []string{"post /claim", "post /runs/{taskId}/{epoch}/events", "post /runs/{taskId}/{epoch}/heartbeat", "post /runs/{taskId}/{epoch}/finish", "get /openapi.json"} {
		if !got[route] {
			t.Errorf("the document lacks %s", route)
		}
		delete(got, route)
	}
	if len(got) > 0 {
		t.Errorf("the document has %v", got)
	}
}

func TestAgentsChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	f.api.SetAgents([]*a2a.Agent{{Name: "new"}})
	want(t, f.post("/claim", `{"worker":"w","agents":["words"]}`), 404, "NOT_FOUND")
	want(t, f.post(r.path+"events", events(completed)), 200, "") // what was begun goes on
	f.wantState(f.id(r), a2a.StateCompleted)
	got := make(chan reply, 1)
	go func() {
		r, err := f.tryAsk(f.ctx, f.at, "all", "POST", "/claim", `{"worker":"w","agents":["new"],"waitSeconds":60}`)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	f.waitLooked()
	id := f.submit("new", "ann")
	if runs := runsOf(t, <-got); len(runs) != 1 || runs[0].TaskID != id.String() {
		t.Errorf("runs %+v", runs)
	}
}
