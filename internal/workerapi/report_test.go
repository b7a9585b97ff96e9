package workerapi_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/workerapi"
)

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
		again := f.post(r.path+"events", `{"events":[`+working+`],"batchId":"`+batch+`"}`)
		if again.status != 200 || again.body != was.body {
			t.Errorf("batch %s again: %d %s, was %s", batch, again.status, again.body, was.body)
		}
	}
	want(t, f.post(r.path+"events", `{"events":[`+working+`],"batchId":"b4"}`), 409, "LEASE_LOST")
	if n := f.logLength(f.id(r)); n != 5 {
		t.Errorf("the log has %d events, want 5", n)
	}
	if n, err := f.Tasks.ForgetBatches(t.Context(), time.Hour, 10); n != 0 || err != nil {
		t.Errorf("deleted batch ids: %d, %v", n, err)
	}
	f.exec("UPDATE a2a.task_batches SET made_at = made_at - interval '2 hours'")
	if n, err := f.Tasks.ForgetBatches(t.Context(), time.Hour, 2); n != 2 || err != nil {
		t.Errorf("forgotten: %d, %v, want 2", n, err)
	}
}

func TestConcurrentCopiesOfABatchAreWrittenOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	const n = 12
	answers := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			got, err := f.tryAsk(t.Context(), f.at, "all", "POST", r.path+"events",
				`{"events":[`+working+`,`+artifact+`],"batchId":"same"}`)
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

// TestOverlappingEventsOfOneRunAreAllWritten: concurrent requests of one run are written one after
// the other, each as a whole.
func TestOverlappingEventsOfOneRunAreAllWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.claimed()
	const n = 6
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			got, err := f.tryAsk(t.Context(), f.at, "all", "POST", r.path+"events", events(working, working))
			if err != nil || got.status != 200 {
				t.Errorf("%v: %d %s", err, got.status, got.body)
			}
		})
	}
	wg.Wait()
	if got := f.logLength(f.id(r)); got != 2+2*n {
		t.Errorf("the log has %d events, want %d", got, 2+2*n)
	}
}

func TestNextAttemptGetsTheCheckpoint(t *testing.T) {
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
	if err := f.sql.QueryRow(t.Context(), "SELECT count(*)::int FROM a2a.task_checkpoints").Scan(&n); n != 0 ||
		err != nil {
		t.Errorf("%d checkpoints of an ended task, %v", n, err)
	}
}

func TestInvalidEventIsRefusedAndTheRunContinues(t *testing.T) {
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
		{events(`{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"` + strings.Repeat("x", 5001) +
			`"}]}}}`), "events"},
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

// TestInvalidEventsDoNotOutlastTheIdleTimeout: invalid events do not count as activity of a run.
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

func TestArtifactLimitCountsAllRequestsOfARun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *workerapi.Config) { c.MaxArtifacts = 3 })
	r := f.claimed()
	one := func(id string) string {
		return events(`{"artifactUpdate":{"artifact":{"artifactId":"` + id +
			`","parts":[{"text":"x"}]},"append":true}}`)
	}
	for _, id := range []string{"a", "b", "a", "b", "c", "a", "c"} {
		want(t, f.post(r.path+"events", one(id)), 200, "")
	}
	want(t, f.post(r.path+"events", one("d")), 400, "INVALID_AGENT_RESPONSE")
	want(t, f.post(r.path+"events", one("c")), 200, "")
	f.wantState(f.id(r), a2a.StateWorking)
}
