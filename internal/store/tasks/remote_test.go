package tasks_test

import (
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// A lease of a remote worker is written only once a quarter of its time has passed, or if it is too long.
func TestRemoteLeasesAreRenewedInTime(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	const ttl = time.Hour
	held := tasks.RemoteLease{
		Task: l.TaskID, Epoch: l.Epoch, Agents: map[string]tasks.Terms{storetest.Agent: {TTL: ttl}},
	}
	stored := func() time.Time {
		return storetest.Value[time.Time](f, "SELECT lease_until FROM a2a.task_leases WHERE task_id = $1", l.TaskID)
	}
	for _, tt := range []struct {
		left    string
		renewed bool
	}{
		{"50 minutes", false}, {"46 minutes", false}, {"44 minutes", true}, {"1 second", true}, {"2 hours", true},
	} {
		f.Exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() + $2::text::interval WHERE task_id = $1",
			l.TaskID.String(), tt.left)
		before := stored()
		run, err := f.Tasks.RenewRemote(t.Context(), held)
		if err != nil {
			t.Fatal(err)
		}
		after := stored()
		if !run.Until.Equal(after.Truncate(time.Millisecond)) {
			t.Errorf("with %s left the worker is told %s, but %s is stored", tt.left, run.Until, after)
		}
		if renewed := !after.Equal(before); renewed != tt.renewed {
			t.Errorf("with %s left: renewed = %v, want %v", tt.left, renewed, tt.renewed)
		}
		if tt.renewed && (after.Sub(before) > ttl || time.Until(after) > ttl+time.Minute) {
			t.Errorf("with %s left the lease was renewed until %s", tt.left, after)
		}
	}
	f.Expire(l.TaskID)
	if _, err := f.Tasks.RenewRemote(t.Context(), held); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("an expired lease: %v, want that it is lost", err)
	}
}
