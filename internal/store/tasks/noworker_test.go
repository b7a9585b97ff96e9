package tasks_test

import (
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// sweepsUnclaimed is a database whose tasks wait for remote workers. Its clock is set forward between sweeps.
type sweepsUnclaimed struct {
	*storetest.Fixture
	tasks.UnclaimedSweep
}

func newSweeps(t *testing.T) *sweepsUnclaimed {
	t.Helper()
	return &sweepsUnclaimed{storetest.Open(t), tasks.UnclaimedSweep{
		Agents:   map[string]a2a.Limits{storetest.Agent: {Unreachable: 10 * time.Minute}},
		Patience: time.Minute, Gap: 5 * time.Minute, Batch: 1000,
	}}
}

func (s *sweepsUnclaimed) sweep() tasks.Unclaimed {
	s.T.Helper()
	out, err := s.Tasks.SweepUnclaimed(s.T.Context(), s.UnclaimedSweep)
	if err != nil {
		s.T.Fatal(err)
	}
	return out
}

// after lets time pass in which sweeps go on, and returns what they did.
func (s *sweepsUnclaimed) after(d time.Duration) (sum tasks.Unclaimed) {
	s.T.Helper()
	for ; d > 0; d -= time.Minute {
		s.SetClockBack(-time.Minute)
		out := s.sweep()
		sum.Began = append(sum.Began, out.Began...)
		sum.Told, sum.Failed, sum.Parked = sum.Told+out.Told, sum.Failed+out.Failed, sum.Parked+out.Parked
	}
	return sum
}

func (s *sweepsUnclaimed) want(what string, got, want tasks.Unclaimed) {
	s.T.Helper()
	if len(got.Began) != len(want.Began) || got.Told != want.Told || got.Failed != want.Failed ||
		got.Parked != want.Parked {
		s.T.Errorf("%s: the sweeps did %+v, want %+v", what, got, want)
	}
}

func TestTasksWithoutAWorkerFailAfterTheLimit(t *testing.T) {
	t.Parallel()
	s := newSweeps(t)
	task := s.NewTask()
	s.want("at once", s.sweep(), tasks.Unclaimed{})
	s.want("after three minutes", s.after(3*time.Minute), tasks.Unclaimed{Began: []string{storetest.Agent}, Told: 1})
	log := s.Log(task)
	if len(log) != 2 {
		t.Fatalf("the log has %d events, want the first one and the reason", len(log))
	}
	u := log[1].Event.(*a2a.StatusUpdate)
	if u.Status.State != a2a.StateWorking || string(u.Metadata) != `{"a2ad/reason" : "no worker"}` {
		t.Errorf("the client gets %s with %s, want WORKING with the reason", u.Status.State, u.Metadata)
	}
	late := s.NewTask()
	s.want("after eight minutes", s.after(5*time.Minute), tasks.Unclaimed{Told: 1})
	s.want("after the limit", s.after(4*time.Minute), tasks.Unclaimed{Failed: 1})
	got := s.Snapshot(task)
	if text := got.Status.Message.Parts[0].Text; got.Status.State != a2a.StateFailed ||
		text != "no worker claimed the task for 10m0s" {
		t.Errorf("the task is %s: %q", got.Status.State, text)
	}
	if state := s.Snapshot(late).Status.State; state != a2a.StateWorking {
		t.Errorf("a task that has waited for less than the limit is %s", state)
	}
	s.want("after the limit of the other task", s.after(5*time.Minute), tasks.Unclaimed{Failed: 1})
	if n := storetest.Value[int](s.Fixture, "SELECT count(*) FROM a2a.task_ready"); n != 0 {
		t.Errorf("%d failed tasks are in the queue", n)
	}
	s.Invariants()
}

// The agent decides whether its tasks fail or are parked. A parked task keeps its webhook, and gets fresh attempts and
// the whole limit again when it is resumed.
func TestTasksWithoutAWorkerAreParkedAfterTheLimit(t *testing.T) {
	t.Parallel()
	s := newSweeps(t)
	s.Agents[storetest.Agent] = a2a.Limits{
		Unreachable: 10 * time.Minute, OnExhausted: a2a.ExhaustedPark, ParkFor: time.Hour,
	}
	in := storetest.Submission("x")
	in.Push = webhook("h")
	task, open := s.Submit(in).Task, undecided(s.Fixture, "")
	s.after(9 * time.Minute)
	late := s.NewTask()
	s.TakeCommitted(task)
	s.want("after the limit", s.after(3*time.Minute), tasks.Unclaimed{Told: 1, Parked: 2})
	for _, id := range []a2a.ID{task, open} {
		if h, err := headOf(s.Fixture, id); err != nil || h.State != a2a.StateWorking {
			t.Errorf("head %+v, %v, want a task that is working", h, err)
		}
		if got := lastReason(s.Fixture, id); got != "parked: no worker claimed the task for 10m0s" {
			t.Errorf("the reason is %q", got)
		}
	}
	if n := len(s.TakeCommitted(task)); n != 1 {
		t.Errorf("%d commits were reported to the followers, want 1", n)
	}
	if missing := storetest.Value[int64](s.Fixture, `
		SELECT t.last_seq - p.head_seq FROM a2a.push_configs p JOIN a2a.tasks t ON t.id = p.task_id`); missing != 0 {
		t.Errorf("the head of the webhook lacks %d events", missing)
	}
	if n := storetest.Value[int](s.Fixture, `SELECT count(*)::int FROM audit.parked WHERE attempts = 0
		AND until = since + interval '1 h' AND reason = 'no worker claimed the task for 10m0s'`); n != 2 {
		t.Errorf("%d tasks are parked for an hour, want 2", n)
	}
	if n := storetest.Value[int](s.Fixture, "SELECT count(*)::int FROM a2a.task_ready"); n != 1 {
		t.Errorf("%d tasks are in the queue, want the late one", n)
	}
	s.Invariants()
	resume(s.Fixture, 2, task, open)
	s.want("after the resume", s.after(9*time.Minute), tasks.Unclaimed{Told: 2, Parked: 1})
	if got := lastReason(s.Fixture, late); got != "parked: no worker claimed the task for 10m0s" {
		t.Errorf("the reason of the late task is %q", got)
	}
	s.want("after the limit of those resumed", s.after(3*time.Minute), tasks.Unclaimed{Parked: 2})
	s.Invariants()
}

// A task may be parked before its client was told that there is no worker.
func TestTaskThatWasNeverWorkingIsParked(t *testing.T) {
	t.Parallel()
	s := newSweeps(t)
	s.Patience = 5 * time.Minute
	s.Agents[storetest.Agent] = a2a.Limits{Unreachable: 2 * time.Minute, OnExhausted: a2a.ExhaustedPark}
	s.NewTask()
	s.after(6 * time.Minute)
	late := s.NewTask()
	s.want("after the limit", s.after(3*time.Minute), tasks.Unclaimed{Parked: 2})
	if got := s.Snapshot(late).Status.State; got != a2a.StateWorking {
		t.Errorf("the late task is %s, want WORKING", got)
	}
	s.Invariants()
}

// Tasks that wait for a worker which is in touch, but busy, neither fail nor get an event.
func TestTasksWaitForABusyWorker(t *testing.T) {
	t.Parallel()
	s := newSweeps(t)
	task := s.NewTask()
	s.after(3 * time.Minute)
	back, err := s.Tasks.WorkersSeen(t.Context(), []string{storetest.Agent, "other", storetest.Agent})
	if err != nil || len(back) != 1 {
		t.Fatalf("the outages of %v ended, %v, want that of the agent", back, err)
	}
	for range 30 {
		if _, err := s.Tasks.WorkersSeen(t.Context(), []string{storetest.Agent}); err != nil {
			t.Fatal(err)
		}
		s.SetClockBack(-30 * time.Second)
		s.want("with a worker", s.sweep(), tasks.Unclaimed{})
	}
	if got := s.Log(task); len(got) != 2 {
		t.Errorf("the log has %d events, want 2", len(got))
	}
	if outages, err := s.Tasks.Outages(t.Context()); err != nil || len(outages) != 0 {
		t.Errorf("outages %v, %v, want none", outages, err)
	}
	s.Invariants()
}

// The tasks of a paused agent wait while its workers are stopped, for example for an upgrade. The outage before the
// pause is over, and the time of the pause is none.
func TestTasksOfAPausedAgentWait(t *testing.T) {
	t.Parallel()
	s := newSweeps(t)
	task := s.NewTask()
	s.want("before the pause", s.after(9*time.Minute), tasks.Unclaimed{Began: []string{storetest.Agent}, Told: 1})
	if _, _, err := s.Tasks.BeginStop(t.Context(), tasks.StopAgent, storetest.Agent, false); err != nil {
		t.Fatal(err)
	}
	s.NewTask()
	for _, limits := range []a2a.Limits{
		{Unreachable: 10 * time.Minute}, {Unreachable: 10 * time.Minute, OnExhausted: a2a.ExhaustedPark},
	} {
		s.Agents[storetest.Agent] = limits
		s.want("while the agent is paused", s.after(15*time.Minute), tasks.Unclaimed{})
	}
	if got := s.Log(task); len(got) != 2 {
		t.Errorf("the log has %d events, want the first one and the reason", len(got))
	}
	if outages, err := s.Tasks.Outages(t.Context()); err != nil || len(outages) != 0 {
		t.Errorf("outages of a paused agent: %v, %v", outages, err)
	}
	if _, err := s.Tasks.EndStop(t.Context(), tasks.StopAgent, storetest.Agent); err != nil {
		t.Fatal(err)
	}
	s.want("after the pause", s.after(10*time.Minute), tasks.Unclaimed{Began: []string{storetest.Agent}, Told: 1})
	s.want("after the limit", s.after(3*time.Minute), tasks.Unclaimed{Parked: 2})
	s.Invariants()
}

// While no server runs, no worker can be in touch. That time is no outage of the workers.
func TestTimeWithoutServersIsNoOutageOfWorkers(t *testing.T) {
	t.Parallel()
	s := newSweeps(t)
	s.NewTask()
	s.after(3 * time.Minute)
	s.SetClockBack(-2 * time.Hour)
	s.want("after two hours", s.sweep(), tasks.Unclaimed{Began: []string{storetest.Agent}})
	s.want("nine minutes later", s.after(9*time.Minute), tasks.Unclaimed{})
	s.want("after the limit", s.after(3*time.Minute), tasks.Unclaimed{Failed: 1})
}

// The outage, and the position up to which clients were told, are no later than now after the clock was set back.
func TestOutageOfWorkersAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	s := newSweeps(t)
	s.NewTask()
	s.after(3 * time.Minute)
	s.SetClockBack(jump)
	s.Rescue(0) // it moves the waiting task
	s.NewTask()
	got := s.after(13 * time.Minute)
	s.want("after the limit", got, tasks.Unclaimed{Began: []string{storetest.Agent}, Told: 1, Failed: 2})
	s.Invariants()
}

// One sweep tells and fails no more tasks than its batch, and the next ones go on where it has ended.
func TestSweepOfUnclaimedTasksIsBounded(t *testing.T) {
	t.Parallel()
	s := newSweeps(t)
	s.Batch = 2
	s.SubmitMany(5)
	s.Exec("UPDATE a2a.tasks SET priority = 0") // all in one lane
	s.Exec("UPDATE a2a.task_ready SET priority = 0")
	s.sweep()
	s.SetClockBack(-2 * time.Minute)
	for i, want := range []int{2, 1, 1, 1, 0} { // the last task of a sweep is read again, and not told again
		if got := s.sweep(); got.Told != want {
			t.Errorf("sweep %d told %d clients, want %d", i+1, got.Told, want)
		}
	}
	if n := storetest.Value[int](s.Fixture, "SELECT count(*) FROM a2a.tasks WHERE last_seq = 2"); n != 5 {
		t.Errorf("%d of 5 clients were told once", n)
	}
	s.Batch = 1000
	s.after(9 * time.Minute)
	s.Batch = 2
	s.SetClockBack(-2 * time.Minute)
	for i, want := range []int{2, 2, 1, 0} {
		if got := s.sweep(); got.Failed != want {
			t.Errorf("sweep %d failed %d tasks, want %d", i+1, got.Failed, want)
		}
	}
	s.Invariants()
	s.Agents[storetest.Agent] = a2a.Limits{Unreachable: 10 * time.Minute, OnExhausted: a2a.ExhaustedPark}
	s.SubmitMany(5)
	for range 4 {
		s.SetClockBack(-3 * time.Minute)
		s.sweep()
	}
	if n := storetest.Value[int](s.Fixture, "SELECT count(*)::int FROM a2a.task_parked"); n != 2 {
		t.Errorf("the first sweep parked %d tasks, want 2", n)
	}
	for i, want := range []int{2, 1, 0} {
		if got := s.sweep(); got.Parked != want {
			t.Errorf("sweep %d parked %d tasks, want %d", i+2, got.Parked, want)
		}
	}
	s.Invariants()
}

// A worker that claims a task at the same time wins: the sweep waits for no lock.
func TestSweepSkipsATaskThatIsBeingClaimed(t *testing.T) {
	t.Parallel()
	s := newSweeps(t)
	task := s.NewTask()
	s.after(10 * time.Minute)
	s.SetClockBack(-3 * time.Minute)
	release := s.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", task)
	s.want("while the task is locked", s.sweep(), tasks.Unclaimed{})
	release()
	if got := s.Claim(1); len(got) != 1 {
		t.Fatalf("%d tasks were claimed, want 1", len(got))
	}
	s.want("after the claim", s.after(5*time.Minute), tasks.Unclaimed{})
	s.Invariants()
}

func TestOutagesThatNoReplicaTouchesAreForgotten(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	begin := func(agent string) {
		t.Helper()
		if err := f.Tasks.BeginOutage(t.Context(), agent, "refused", time.Second); err != nil {
			t.Fatal(err)
		}
	}
	forget := func(want ...string) {
		t.Helper()
		got, err := f.Tasks.ForgetOutages(t.Context(), 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		storetest.Same(t, "forgotten", want, got)
	}
	begin("removed")
	begin("probed")
	f.SetClockBack(-9 * time.Minute)
	if _, err := f.Tasks.Probe(t.Context(), "probed", time.Second, time.Minute); err != nil {
		t.Fatal(err)
	}
	forget()
	f.SetClockBack(-2 * time.Minute)
	forget("removed")
	f.SetClockBack(jump) // the time of the probe is in the future
	forget("probed")
}

// A postponed task whose claim is to write no event writes none after the clock was set back either.
func TestPostponedTaskStaysQuietAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	for range 2 { // the claim after the first failure tells the client, the one after the second does not
		if _, ok, err := f.Tasks.Postpone(t.Context(), f.ClaimTask(task), tasks.Postponement{
			Error: "refused", MinDelay: time.Second, MaxDelay: time.Second, Limit: time.Hour,
		}); err != nil || !ok {
			t.Fatalf("Postpone = %v, %v", ok, err)
		}
		f.SetClockBack(-2 * time.Second)
	}
	f.SetClockBack(jump)
	f.Rescue(0)
	f.SetClockBack(-2 * time.Second)
	before := f.Snapshot(task).LastSeq
	f.ClaimTask(task)
	if got := f.Snapshot(task).LastSeq; got != before {
		t.Errorf("the claim wrote %d events, want none", got-before)
	}
	f.Invariants()
}

// QueueHasten finds postponed tasks without reading the others that wait for a later time.
func TestPostponedTasksAreLookedUpByTheirReason(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	check := func(when string) {
		t.Helper()
		plan := strings.Join(f.Explain("", "QueueHasten"), "\n")
		if !strings.Contains(plan, "task_ready_unreachable") {
			t.Errorf("%s, QueueHasten reads other rows:\n%s", when, plan)
		}
	}
	check("in a new table")
	f.Exec(`INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant, reason)
		SELECT $1, 0, now() + interval '1 hour', gen_random_uuid(), 'acme',
		  CASE WHEN g % 100 = 0 THEN 'agent unreachable' ELSE 'a retry' END FROM generate_series(1, 20000) g`,
		storetest.Agent)
	f.Exec("ANALYZE a2a.task_ready")
	check("with 20,000 tasks")
}
