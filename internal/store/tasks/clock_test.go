package tasks_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// jump is how far the clock is set back.
const jump = 2 * time.Hour

// Tasks that were submitted before the clock was set back do not wait for the old time.
func TestSubmittedTasksAreClaimedAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	c := f.Tasks.NewClaimer()
	// This sets the floors of the claimer to the old time.
	if _, err := c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.NewTask()
	}
	f.SetClockBack(jump)
	later := f.NewTask()
	f.TakeWakes()
	f.Rescue(0)
	if got := f.TakeWakes(); !slices.Contains(got, wake.Ready(storetest.Agent)) {
		t.Errorf("woke %v, want the agent's workers", got)
	}
	leases := f.Claim(10)
	if len(leases) != 4 {
		t.Errorf("%d tasks were claimed, want the 3 older ones and %s", len(leases), later)
	}
	f.Invariants()
}

// A retry waits for its delay, and not for the difference of the clocks as well.
func TestRetryWaitsForItsDelayAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	const delay = 10 * time.Minute
	if err := f.Tasks.Retry(t.Context(), l, "x", delay); err != nil {
		t.Fatal(err)
	}
	f.SetClockBack(jump)
	f.Rescue(0)
	for what, query := range map[string]string{
		"no longer": "SELECT run_at <= clock_timestamp() + interval '10 min' FROM a2a.task_ready",
		"no less":   "SELECT run_at > clock_timestamp() + interval '9 min' FROM a2a.task_ready",
		"both":      "SELECT t.ready_at = r.run_at FROM a2a.task_ready r JOIN a2a.tasks t ON t.id = r.task_id",
	} {
		if !storetest.Value[bool](f, query) {
			t.Errorf("%s: the retry waits until %v",
				what, storetest.Value[time.Time](f, "SELECT run_at FROM a2a.task_ready"))
		}
	}
	f.Invariants()
}

// The rescue corrects the times. It skips a locked task and corrects it the next time.
func TestLockedTaskIsCorrectedLaterAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	locked, other := f.NewTask(), f.NewTask()
	f.SetClockBack(jump)
	release := f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", locked)
	f.Rescue(0)
	if got := f.Claim(10); len(got) != 1 || got[0].TaskID != other {
		t.Errorf("claimed %v, want only %s", got, other)
	}
	release()
	f.Rescue(0)
	if got := f.Claim(10); len(got) != 1 || got[0].TaskID != locked {
		t.Errorf("claimed %v, want %s", got, locked)
	}
	f.Invariants()
}

// The lease of a dead worker ends in time, and a worker that is alive keeps its lease.
func TestLeasesEndInTimeAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	dead, alive := f.RunningTask(), f.RunningTask()
	f.SetClockBack(jump)
	f.Rescue(0) // no lease has expired
	const lateLeases = `
		SELECT count(*)::int FROM a2a.task_leases WHERE lease_until > clock_timestamp() + $1::interval`
	if late := storetest.Value[int](f, lateLeases, storetest.TTL); late != 0 {
		t.Errorf("%d leases end later than %v from now", late, storetest.TTL)
	}
	got, err := f.Tasks.Renew(t.Context(), []*tasks.Lease{alive}, storetest.TTL)
	if err != nil || got[0] != tasks.Renewed {
		t.Errorf("Renew = %v, %v, want Renewed", got, err)
	}
	f.Expire(dead.TaskID)
	f.Rescue(1)
}

// The deadline of a turn is never later than that of a turn that begins now.
func TestDeadlineIsNotLaterAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.NewTask()
	c := f.Tasks.NewClaimer()
	leases, err := c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, time.Minute)
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d, %v", len(leases), err)
	}
	f.SetClockBack(jump)
	if err := f.Tasks.Retry(t.Context(), &leases[0], "x", 0); err != nil {
		t.Fatal(err)
	}
	leases, err = c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, time.Minute)
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d, %v", len(leases), err)
	}
	if leases[0].Left > time.Minute {
		t.Errorf("%v are left until the deadline of a minute", leases[0].Left)
	}
	// The same for a remote worker.
	f.SetClockBack(jump)
	run, err := f.Tasks.RenewRemote(t.Context(), tasks.RemoteLease{
		Task: leases[0].TaskID, Epoch: leases[0].Epoch,
		Agents: map[string]tasks.Terms{storetest.Agent: {TTL: storetest.TTL, Deadline: time.Minute}},
	})
	if err != nil || run.Overdue {
		t.Fatalf("RenewRemote = %+v, %v, want a run that is not overdue", run, err)
	}
	if !storetest.Value[bool](f, "SELECT deadline_at <= clock_timestamp() + interval '1 min' FROM a2a.tasks") {
		t.Error("the deadline is later than a minute from now")
	}
}

// The delivery of a cancel to its agent is not delayed.
func TestCancelsAreDeliveredInTimeAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	batch := storetest.Batch(storetest.Status(a2a.StateInputRequired, "what?"))
	batch.Checkpoint = a2a.Raw(`{"there":1}`)
	if _, err := f.Tasks.Append(t.Context(), l, batch); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, l.TaskID); err != nil {
		t.Fatal(err)
	}
	f.SetClockBack(jump)
	f.Rescue(0)
	got, err := f.Tasks.ClaimCancels(t.Context(), map[string]int{storetest.Agent: 10})
	if err != nil || len(got) != 1 {
		t.Fatalf("ClaimCancels = %v, %v, want one", got, err)
	}
	f.SetClockBack(jump)
	f.Rescue(0)
	if !storetest.Value[bool](f, "SELECT due_at <= clock_timestamp() + interval '15 s' FROM a2a.task_cancels") {
		t.Error("the next attempt is later than 15 s from now")
	}
}

// If the store waits for a stored time, then WaitsAnchor must correct it after the clock was set back, or something
// else must bound the wait. A new column belongs into one of the two lists.
func TestEveryStoredTimeIsARecordOrABoundedWait(t *testing.T) {
	t.Parallel()
	waits := map[string]string{
		"task_ready.run_at":               "made_at",
		"tasks.ready_at":                  "that of its row in task_ready",
		"task_leases.lease_until":         "held_at",
		"task_cancels.due_at":             "set_at",
		"push_configs.next_attempt_at":    "waits_at",
		"push_configs.lease_until":        "waits_at",
		"push_destinations.open_until":    "waits_at",
		"agent_outages.probe_at":          "further away than the longest wait is due: OutageProbe",
		"agent_outages.told_until":        "in the future it is now: WorkersMissing",
		"agent_workers.seen_at":           "in the future it is now: WorkersMissing",
		"task_attempts.unreachable_since": "in the future it is now: LeasePostpone",
		"task_parked.until":               "begins again with since: ParkedAnchor",
		"schedules.next_at":               "by the calendar, and no later than the next tick from now: clockSetBack",
		"push_parked.look_at":             "more than a minute away is due",
		"tasks.deadline_at":               "at most a deadline away: TaskClaim, DeadlineBound",
		"task_waits.due_at":               "set_at",
		"task_waits.deadline_at":          "set_at",
		"task_steps.next_at":              "by the agent",
		"api_keys.expires_at":             "by the calendar",
		"push_destinations.disabled_at":   "until an operator enables it",
		"jobs.lease_until":                "further away than a lease lasts is free: JobClaim",
		"browser_sessions.expires_at":     "by the calendar",
		"workers.seen_at":                 "in the future it is forgotten: WorkersForget",
		"browser_sessions.used_at":        "a session that was used in the future lasts until it expires",

		"browser_sessions.authenticated_at": "a sign-in of the future is recent until the session expires",
		"browser_signins.expires_at":        "by the calendar",
	}
	records := strings.Fields(`
		browser_sessions.created_at claim_stops.since task_assignments.asked_at task_assignments.assigned_at
		saved_views.saved_at
		agent_outages.since api_keys.created_at api_keys.last_used_at api_keys.revoked_at audit_log.at
		idempotency_keys.created_at jobs.claimed_at jobs.collected_at jobs.created_at jobs.ended_at
		push_attempts.started_at push_configs.created_at push_configs.deleted_at push_configs.waits_at
		push_destinations.first_failure_at push_destinations.waits_at server_keys.created_at
		schedule_ticks.at schedule_ticks.tick schedules.last_tick schedules.loaded_at schedules.next_tick
		schedules.paused_at schedules.queued_tick schedules.removed_at
		task_attempts.claimed_at task_attempts.ended_at task_batches.lease_until task_batches.made_at
		task_cancels.made_at task_cancels.set_at task_events.committed_at task_leases.held_at
		task_parked.since task_ready.made_at
		task_signals.received_at task_steps.ended_at task_steps.recorded_at task_steps.started_at task_waits.set_at
		tasks.created_at tasks.last_at tasks.status_at workers.started_at`)
	f := storetest.Open(t)
	for _, name := range f.TimeColumns() {
		if waits[name] == "" && !slices.Contains(records, name) {
			t.Errorf("%s is in no list: does the store wait for it, and what bounds the wait? See docs/adr/0048", name)
		}
		if bound := waits[name]; strings.HasSuffix(bound, "_at") {
			table, _, _ := strings.Cut(name, ".")
			if !slices.Contains(f.TimeColumns(), table+"."+bound) {
				t.Errorf("%s has no %s", name, bound)
			}
		}
	}
}

// WaitsAnchor reads all leases, and looks other waits up by the time at which they began.
func TestWaitsAreLookedUpByTheirBeginning(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	plan := strings.Join(f.Explain("", "WaitsAnchor"), "\n")
	for _, index := range []string{"task_ready_made", "task_cancels_set", "push_configs_waits", "task_waits_set"} {
		if !strings.Contains(plan, index) {
			t.Errorf("%s is not used in\n%s", index, plan)
		}
	}
}
