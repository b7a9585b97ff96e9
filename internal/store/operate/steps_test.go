package operate_test

import (
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestTimelineShowsStepsAndWaits(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	until := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{
		Steps: []a2a.StepRecord{
			{Step: a2a.Step{Key: "charge#1", Name: "charge", Result: a2a.Raw(`"paid"`)}, Seq: 1, Kind: a2a.StepWork},
			{Step: a2a.Step{Key: "approval#1"}, Seq: 2, Kind: a2a.StepWait},
		},
		Wait: &a2a.Wait{Until: until, Signal: "approved"},
	}); err != nil {
		t.Fatal(err)
	}
	tl, err := f.Operate.Timeline(t.Context(), l.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "wait", &operate.Waiting{Until: until, Signal: "approved"}, tl.Waits)
	if len(tl.Steps) != 2 || tl.Steps[0].Says != `"paid"` || tl.Steps[0].EndedAt.IsZero() ||
		!tl.Steps[1].EndedAt.IsZero() {
		t.Errorf("steps %+v, want one that has ended and a wait that has not", tl.Steps)
	}
	for _, name := range []string{"other", "approved"} {
		if err := f.Tasks.SendSignal(t.Context(), tasks.Signal{Task: l.TaskID, Name: name, Sender: "ops"}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := f.Tasks.EndWaits(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("EndWaits = %d, %v, want 1", n, err)
	}
	if tl, err = f.Operate.Timeline(t.Context(), l.TaskID); err != nil {
		t.Fatal(err)
	}
	if tl.Waits != nil || len(tl.Signals) != 2 || tl.Signals[1].Name != "approved" || tl.Steps[1].EndedAt.IsZero() {
		t.Errorf("after the signal: waits %+v, signals %+v, steps %+v", tl.Waits, tl.Signals, tl.Steps)
	}
}

// The version before streamed steps has no state for a step that has only begun. It must still be able to record the
// step again, with its result.
func TestMigrateDownKeepsStepsThatHaveOnlyBegun(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	begun := a2a.StepRecord{Step: a2a.Step{Key: "write#1", Artifact: "report", After: 2}, Seq: 1, Kind: a2a.StepWork}
	if _, err := f.Tasks.Append(t.Context(), l, tasks.Batch{Steps: []a2a.StepRecord{begun}}); err != nil {
		t.Fatal(err)
	}
	tl, err := f.Operate.Timeline(t.Context(), l.TaskID)
	if err != nil || len(tl.Steps) != 1 || tl.Steps[0].Artifact != "report" || !tl.Steps[0].EndedAt.IsZero() {
		t.Fatalf("steps %+v, %v, want one that writes an artifact and has not ended", tl.Steps, err)
	}
	const streamed = 52
	applied := func(m operate.Migration) bool { return m.Version == streamed && !m.Applied.IsZero() }
	for slices.ContainsFunc(steps(t, &storetest.DB{URL: f.URL}), applied) {
		if err := operate.MigrateDown(t.Context(), f.URL); err != nil {
			t.Fatal(err)
		}
	}
	const open = "SELECT next_at IS NOT NULL AND ended_at IS NULL FROM a2a.task_steps"
	if !storetest.Value[bool](f, open) {
		t.Error("the step is not to be tried again")
	}
	if err := operate.MigrateUp(t.Context(), f.URL); err != nil {
		t.Fatal(err)
	}
}
