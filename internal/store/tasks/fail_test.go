package tasks_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// A server of an earlier version leaves the wait of a task that it cancels. Its deadline does not fail the task.
func TestDeadlineOfAWaitThatIsNoMoreFailsNothing(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	if _, err := f.Tasks.Append(t.Context(), l, waiting(a2a.Wait{Message: true, For: time.Hour})); err != nil {
		t.Fatal(err)
	}
	f.Exec("CREATE TABLE left_over AS SELECT * FROM a2a.task_waits")
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID); err != nil {
		t.Fatal(err)
	}
	before := f.Log(l.TaskID)
	f.Exec("INSERT INTO a2a.task_waits SELECT * FROM left_over")
	f.Exec("UPDATE a2a.task_waits SET deadline_at = clock_timestamp() WHERE task_id = $1", db.PGID(l.TaskID))
	n, err := f.Tasks.FailWaits(t.Context(), 10)
	if got := f.Log(l.TaskID); err != nil || n != 0 || len(got) != len(before) {
		t.Errorf("FailWaits = %d, %v, and the log has %d events, want 0 and %d events", n, err, len(got), len(before))
	}
	f.Invariants()
}
