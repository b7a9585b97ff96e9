package maintenance

import (
	"log/slog"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// One round removes all old attempts, although they do not fit into one batch.
func TestAttemptSweeperRemovesOldAttempts(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.AttemptsSwept = true
	old, running := f.RunningTask(), f.RunningTask()
	f.Append(old, storetest.Status(a2a.StateCompleted, ""))
	f.Exec("UPDATE a2a.tasks SET status_at = clock_timestamp() - interval '3 days'")
	f.Exec(`INSERT INTO a2a.task_attempts
		SELECT a.task_id, a.epoch + n, 1, a.worker, a.claimed_at, a.claimed_at, 'retry'
		FROM a2a.task_attempts a, generate_series(1, $2) n WHERE a.task_id = $1`, old.TaskID.String(), 2*attemptBatch)
	// an id contains the time at which the task was made
	f.Exec("UPDATE a2a.tasks SET id = ('01000000' || substr(id::text, 9))::uuid")
	f.Exec("UPDATE a2a.task_attempts SET task_id = ('01000000' || substr(task_id::text, 9))::uuid")
	s := &AttemptSweeper{Store: f.Tasks, Keep: 48 * time.Hour, Logger: slog.New(slog.DiscardHandler)}
	s.round(t.Context())
	id := running.TaskID.String()
	if left := f.Column("SELECT right(task_id::text, 12) FROM a2a.task_attempts"); len(left) != 1 ||
		left[0] != id[len(id)-12:] {
		t.Errorf("%d attempts are left, want that of the running task", len(left))
	}
}
