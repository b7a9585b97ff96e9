package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
)

// timeColumns returns all columns of schema a2a that hold a time, as table.column.
func (f *fixture) timeColumns() []string {
	f.t.Helper()
	rows, err := f.sql.Query(f.ctx, `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = 'a2a' AND data_type = 'timestamp with time zone' ORDER BY 1`)
	if err != nil {
		f.t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.t.Fatal(err)
	}
	return names
}

// setClockBack does to the database what setting its clock back does: every time that it has stored lies that much
// later than before, seen from its clock.
func (f *fixture) setClockBack(by time.Duration) {
	f.t.Helper()
	sets := make(map[string][]string)
	for _, name := range f.timeColumns() {
		table, column, _ := strings.Cut(name, ".")
		sets[table] = append(sets[table], fmt.Sprintf("%[1]s = %[1]s + $1::interval", column))
	}
	tx, err := f.sql.Begin(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	defer tx.Rollback(f.ctx)                                                                  //nolint:errcheck // after the commit it does nothing
	if _, err := tx.Exec(f.ctx, "SET LOCAL session_replication_role = replica"); err != nil { // no trigger
		f.t.Fatal(err)
	}
	for table, columns := range sets {
		if _, err := tx.Exec(f.ctx, "UPDATE a2a."+table+" SET "+strings.Join(columns, ", "), by); err != nil {
			f.t.Fatalf("%s: %v", table, err)
		}
	}
	if err := tx.Commit(f.ctx); err != nil {
		f.t.Fatal(err)
	}
}

const jump = 2 * time.Hour

// A task that was submitted while the clock was ahead is not left waiting for that time.
func TestSubmittedTasksAreClaimedAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.NewClaimer()
	if _, err := c.Claim(f.ctx, agent, 1, ttl, 0); err != nil { // its floors are those of the time before
		t.Fatal(err)
	}
	for range 3 {
		f.task()
	}
	f.setClockBack(jump)
	later := f.task()
	f.takeWakes()
	f.rescue(0)
	if got := f.takeWakes(); !slices.Contains(got, "ready:"+agent) {
		t.Errorf("woke %v, want the agent's workers", got)
	}
	leases := f.claim(10)
	if len(leases) != 4 {
		t.Errorf("%d tasks were claimed, want 3 from before and %s", len(leases), later)
	}
	f.invariants()
}

// A retry waits again as long as it was meant to, and not for the difference of the clocks as well.
func TestRetryWaitsNoLongerThanMeantAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	const delay = 10 * time.Minute
	if err := f.Retry(f.ctx, l, "x", delay); err != nil {
		t.Fatal(err)
	}
	f.setClockBack(jump)
	f.rescue(0)
	for what, query := range map[string]string{
		"no longer": "SELECT run_at <= clock_timestamp() + interval '10 min' FROM a2a.task_ready",
		"no less":   "SELECT run_at > clock_timestamp() + interval '9 min' FROM a2a.task_ready",
		"both":      "SELECT t.ready_at = r.run_at FROM a2a.task_ready r JOIN a2a.tasks t ON t.id = r.task_id",
	} {
		if !value[bool](f, query) {
			t.Errorf("%s: the retry waits until %v", what, value[time.Time](f, "SELECT run_at FROM a2a.task_ready"))
		}
	}
	f.invariants()
}

// Somebody has the row of one task, the next look finds that.
func TestLockedTasksDoNotKeepOthersFromTheNewClock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	locked, other := f.task(), f.task()
	f.setClockBack(jump)
	release := f.hold("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", locked)
	f.rescue(0)
	if got := f.claim(10); len(got) != 1 || got[0].TaskID != other {
		t.Errorf("claimed %v, want only %s", got, other)
	}
	release()
	f.rescue(0)
	if got := f.claim(10); len(got) != 1 || got[0].TaskID != locked {
		t.Errorf("claimed %v, want %s", got, locked)
	}
	f.invariants()
}

// The lease of a dead worker ends after its length; that of a living one is not taken.
func TestLeasesEndAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dead, alive := f.running(), f.running()
	f.setClockBack(jump)
	f.rescue(0) // nobody's lease is over
	late := value[int](f, "SELECT count(*)::int FROM a2a.task_leases WHERE lease_until > clock_timestamp() + $1::interval", ttl)
	if late != 0 {
		t.Errorf("%d leases end later than %v from now", late, ttl)
	}
	got, err := f.Renew(f.ctx, []*store.Lease{alive}, ttl)
	if err != nil || got[0] != store.Renewed {
		t.Errorf("Renew = %v, %v", got, err)
	}
	f.expire(dead.TaskID)
	f.rescue(1)
}

// The deadline of a turn moves no further away than a whole one.
func TestDeadlineIsNoLongerThanMeantAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.task()
	c := f.NewClaimer()
	leases, err := c.Claim(f.ctx, agent, 1, ttl, time.Minute)
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d, %v", len(leases), err)
	}
	f.setClockBack(jump)
	if err := f.Retry(f.ctx, &leases[0], "x", 0); err != nil {
		t.Fatal(err)
	}
	leases, err = c.Claim(f.ctx, agent, 1, ttl, time.Minute)
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d, %v", len(leases), err)
	}
	if leases[0].Left > time.Minute {
		t.Errorf("%v are left to the deadline of a minute", leases[0].Left)
	}
	// The same for a worker that speaks to any replica.
	f.setClockBack(jump)
	h, err := f.Hold(f.ctx, store.Grip{Task: leases[0].TaskID, Epoch: leases[0].Epoch, Agents: map[string]store.Terms{agent: {TTL: ttl, Deadline: time.Minute}}})
	if err != nil || h.Overdue {
		t.Fatalf("Hold = %+v, %v", h, err)
	}
	if !value[bool](f, "SELECT deadline_at <= clock_timestamp() + interval '1 min' FROM a2a.tasks") {
		t.Error("the deadline is later than a minute from now")
	}
}

// Agents are told of cancels no later than it was meant.
func TestCancelsAreToldAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	if _, err := f.Append(f.ctx, l, store.Batch{Events: []a2a.Event{status(a2a.StateInputRequired, "what?")}, Checkpoint: a2a.Raw(`{"there":1}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Cancel(f.ctx, ann, agent, l.TaskID); err != nil {
		t.Fatal(err)
	}
	f.setClockBack(jump)
	f.rescue(0)
	got, err := f.ClaimCancels(f.ctx, []string{agent}, 10)
	if err != nil || len(got) != 1 {
		t.Fatalf("ClaimCancels = %v, %v, want the one", got, err)
	}
	f.setClockBack(jump)
	f.rescue(0)
	if !value[bool](f, "SELECT due_at <= clock_timestamp() + interval '15 s' FROM a2a.task_cancels") {
		t.Error("the next try is later than 15 s from now")
	}
}
