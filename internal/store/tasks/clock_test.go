package tasks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
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
	c := f.Tasks.NewClaimer()
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
	if got := f.takeWakes(); !slices.Contains(got, wake.Ready(agent)) {
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
	if err := f.Tasks.Retry(f.ctx, l, "x", delay); err != nil {
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
	got, err := f.Tasks.Renew(f.ctx, []*tasks.Lease{alive}, ttl)
	if err != nil || got[0] != tasks.Renewed {
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
	c := f.Tasks.NewClaimer()
	leases, err := c.Claim(f.ctx, agent, 1, ttl, time.Minute)
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d, %v", len(leases), err)
	}
	f.setClockBack(jump)
	if err := f.Tasks.Retry(f.ctx, &leases[0], "x", 0); err != nil {
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
	h, err := f.Tasks.RenewRemote(f.ctx, tasks.RemoteLease{Task: leases[0].TaskID, Epoch: leases[0].Epoch, Agents: map[string]tasks.Terms{agent: {TTL: ttl, Deadline: time.Minute}}})
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
	if _, err := f.Tasks.Append(f.ctx, l, tasks.Batch{Events: []a2a.Event{status(a2a.StateInputRequired, "what?")}, Checkpoint: a2a.Raw(`{"there":1}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tasks.Cancel(f.ctx, ann, agent, l.TaskID); err != nil {
		t.Fatal(err)
	}
	f.setClockBack(jump)
	f.rescue(0)
	got, err := f.Tasks.ClaimCancels(f.ctx, map[string]int{agent: 10})
	if err != nil || len(got) != 1 {
		t.Fatalf("ClaimCancels = %v, %v, want the one", got, err)
	}
	f.setClockBack(jump)
	f.rescue(0)
	if !value[bool](f, "SELECT due_at <= clock_timestamp() + interval '15 s' FROM a2a.task_cancels") {
		t.Error("the next try is later than 15 s from now")
	}
}

// Webhooks wait no longer than they were meant to: not at all for news, their backoff for a retry, their rest for a
// destination. What is being delivered stays so.
func TestWebhooksAreDeliveredAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	f.setPush(l.TaskID, "news")
	f.append(l, status(a2a.StateInputRequired, "what?"))
	f.setClockBack(jump)
	f.takeWakes()
	f.rescue(0)
	if got := f.takeWakes(); !slices.Contains(got, wake.Webhooks) {
		t.Errorf("woke %v, want those who deliver", got)
	}
	due := f.claimPushes(10)
	if len(due) != 1 {
		t.Fatalf("%d webhooks are due, want 1", len(due))
	}
	f.setClockBack(jump) // while it is delivered
	f.rescue(0)
	if got := f.claimPushes(10); len(got) != 0 {
		t.Errorf("%d webhooks are claimed while their lease lasts", len(got))
	}
	if !value[bool](f, "SELECT lease_until > clock_timestamp() AND lease_until <= clock_timestamp() + interval '1 min' FROM a2a.push_configs") {
		t.Error("the lease is not one of a minute")
	}
	f.failed(&due[0], webhooks.Failure{Delay: 10 * time.Minute, Breaker: &webhooks.Breaker{Fails: 1, FirstOpen: time.Minute, MaxOpen: time.Minute, DisableAfter: time.Hour}})
	f.setClockBack(jump)
	f.rescue(0)
	for what, query := range map[string]string{
		"the retry is no later":   "SELECT next_attempt_at <= clock_timestamp() + interval '10 min' FROM a2a.push_configs",
		"the retry is no sooner":  "SELECT next_attempt_at > clock_timestamp() + interval '9 min' FROM a2a.push_configs",
		"the breaker is no later": "SELECT open_until <= clock_timestamp() + interval '1 min' AND first_failure_at <= clock_timestamp() FROM a2a.push_destinations",
	} {
		if !value[bool](f, query) {
			t.Errorf("not so: %s", what)
		}
	}
}

// Who stores one more time says whether it is waited for. WaitsAnchor must then begin it anew, or something else bound it.
func TestEveryStoredTimeIsARecordOrABoundedWait(t *testing.T) {
	t.Parallel()
	waits := map[string]string{
		"task_ready.run_at":             "made_at",
		"tasks.ready_at":                "that of its row in task_ready",
		"task_leases.lease_until":       "held_at",
		"task_cancels.due_at":           "set_at",
		"push_configs.next_attempt_at":  "waits_at",
		"push_configs.lease_until":      "waits_at",
		"push_destinations.open_until":  "waits_at",
		"push_parked.look_at":           "more than a minute away is due",
		"tasks.deadline_at":             "at most a deadline away: TaskClaim, DeadlineBound",
		"api_keys.expires_at":           "by the calendar",
		"push_destinations.disabled_at": "until somebody enables it",
	}
	records := strings.Fields(`api_keys.created_at api_keys.last_used_at api_keys.revoked_at audit_log.at idempotency_keys.created_at
		push_attempts.started_at push_configs.created_at push_configs.deleted_at push_configs.waits_at push_destinations.first_failure_at
		push_destinations.waits_at server_keys.created_at task_attempts.claimed_at task_attempts.ended_at task_batches.lease_until
		task_batches.made_at task_cancels.made_at task_cancels.set_at task_events.committed_at task_leases.held_at task_ready.made_at
		tasks.created_at tasks.last_at tasks.status_at`)
	f := newFixture(t)
	for _, name := range f.timeColumns() {
		if waits[name] == "" && !slices.Contains(records, name) {
			t.Errorf("%s: is it waited for? Then what bounds the wait after the clock was set back? See docs/adr/0048", name)
		}
		if bound := waits[name]; strings.HasSuffix(bound, "_at") {
			table, _, _ := strings.Cut(name, ".")
			if !slices.Contains(f.timeColumns(), table+"."+bound) {
				t.Errorf("%s has no %s", name, bound)
			}
		}
	}
}

// Of the waits only leases are all read; the rest is looked up by when it began.
func TestWaitsAreLookedUpByWhenTheyBegan(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	plan := strings.Join(f.explain("", "WaitsAnchor"), "\n")
	for _, index := range []string{"task_ready_made", "task_cancels_set", "push_configs_waits"} {
		if !strings.Contains(plan, index) {
			t.Errorf("%s is not used in\n%s", index, plan)
		}
	}
}

// A webhook that was claimed was due, whatever its clock says afterwards: when its deliverer gives it up, or dies, it does not
// wait for the time at which the clock was ahead.
func TestWebhookThatIsGivenUpIsDueAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	expire := func(f *fixture) { f.exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp()") }
	for name, giveUp := range map[string]func(f *fixture, d *webhooks.Delivery) error{
		"released": func(f *fixture, d *webhooks.Delivery) error { return f.Webhooks.Release(f.ctx, d) },
		"renewed, and its deliverer has died": func(f *fixture, d *webhooks.Delivery) error {
			kept, err := f.Webhooks.Renew(f.ctx, []*webhooks.Delivery{d}, time.Minute)
			if err == nil && len(kept) != 1 {
				err = fmt.Errorf("%d webhooks were renewed, want 1", len(kept))
			}
			expire(f)
			return err
		},
		"left by a deliverer that has died": func(f *fixture, _ *webhooks.Delivery) error { expire(f); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			l := f.running()
			f.setPush(l.TaskID, "news")
			f.append(l, status(a2a.StateInputRequired, "what?"))
			due := f.claimPushes(10)
			if len(due) != 1 {
				t.Fatalf("%d webhooks are due, want 1", len(due))
			}
			f.setClockBack(jump)
			if err := giveUp(f, &due[0]); err != nil {
				t.Fatal(err)
			}
			f.rescue(0)
			if got := f.claimPushes(10); len(got) != 1 {
				t.Errorf("%d webhooks are due, want 1: the next attempt is at %s", len(got), value[string](f, "SELECT next_attempt_at::text FROM a2a.push_configs"))
			}
		})
	}
}

// TestLeaseOfAWebhookIsAsLongAfterTheClockWasSetBack: the clock is set back while a webhook is claimed, and then an event
// of its task comes, which moves the next attempt. The lease must still end when it was meant to.
func TestLeaseOfAWebhookIsAsLongAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	f.setPush(l.TaskID, "news")
	f.append(l, status(a2a.StateWorking, "one"))
	if due := f.claimPushes(10); len(due) != 1 {
		t.Fatalf("%d webhooks are due, want 1", len(due))
	}
	f.setClockBack(jump)
	f.append(l, status(a2a.StateInputRequired, "what?"))
	f.rescue(0)
	if left := value[float64](f, "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM a2a.push_configs"); left > 120 {
		t.Errorf("the lease ends in %.0f s", left)
	}
}
