package schedules_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/schedules"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// rig has one schedule, named daily, of the agent of the tests.
type rig struct {
	*storetest.Fixture
	file a2a.Schedule
	most int // tasks that the owner may have in flight
}

// newRig loads a schedule whose own next tick is months away, with changes.
func newRig(t *testing.T, change ...func(*a2a.Schedule)) *rig {
	t.Helper()
	r := &rig{Fixture: storetest.Open(t), file: a2a.Schedule{
		Name: "daily", Cron: storetest.FarCron(), Timezone: "UTC", Tenant: storetest.Ann.Tenant,
		Owner:   storetest.Ann.Owner,
		CatchUp: 2 * time.Hour, Message: a2a.Message{Role: a2a.RoleUser, Parts: storetest.Texts("report")},
	}}
	for _, c := range change {
		c(&r.file)
	}
	r.load(r.Store, r.file)
	return r
}

// load loads schedules as a store would at its start.
func (r *rig) load(s *store.Store, list ...a2a.Schedule) int {
	r.T.Helper()
	n, err := s.Schedules.Load(r.T.Context(), map[string][]a2a.Schedule{storetest.Agent: list})
	if err != nil {
		r.T.Fatal(err)
	}
	return n
}

// makeDue makes a tick due that was some time ago, and returns it.
func (r *rig) makeDue(ago time.Duration) time.Time {
	r.T.Helper()
	return storetest.Value[time.Time](r.Fixture, `UPDATE a2a.schedules SET next_tick = date_trunc('second',
		clock_timestamp()) - $1::interval, next_at = date_trunc('second', clock_timestamp()) - $1::interval
		RETURNING next_tick`, ago).UTC()
}

// read returns the schedule as it is stored.
func (r *rig) read() *schedules.Schedule {
	r.T.Helper()
	list, err := r.Schedules.List(r.T.Context(), []string{storetest.Agent})
	if err != nil || len(list) != 1 {
		r.T.Fatalf("%d schedules, %v", len(list), err)
	}
	return &list[0]
}

// act acts on the schedule on one store.
func (r *rig) act(s *store.Store) []schedules.Tick {
	r.T.Helper()
	ticks, err := s.Schedules.Act(r.T.Context(), r.read(), r.most)
	if err != nil {
		r.T.Fatal(err)
	}
	return ticks
}

// wantTicks compares the record, the newest first, with outcomes.
func (r *rig) wantTicks(want ...schedules.Outcome) {
	r.T.Helper()
	list, err := r.Schedules.Recent(r.T.Context(), storetest.Agent, r.file.Name, 1000)
	if err != nil {
		r.T.Fatal(err)
	}
	var got []schedules.Outcome
	started := 0
	for _, t := range list {
		got = append(got, t.Outcome)
		if t.Outcome != schedules.Started {
			continue
		}
		started++
		if n := storetest.Value[int](r.Fixture, "SELECT count(*)::int FROM a2a.tasks WHERE id = $1", t.Task); n != 1 {
			r.T.Errorf("%d tasks of the tick %v", n, t.Tick.Tick)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.T.Errorf("ticks, the newest first, -want +got:\n%s", diff)
	}
	if n := storetest.Value[int](r.Fixture, "SELECT count(*)::int FROM a2a.tasks"); n != started {
		r.T.Errorf("%d tasks of %d started ticks", n, started)
	}
	r.Invariants()
}

// farAway reports whether the next tick is the one of storetest.FarCron.
func farAway(it *schedules.Schedule) bool {
	return it.NextTick.Day() == 1 && it.NextTick.After(it.Now.AddDate(0, 4, 0))
}

// end ends the task that a worker can claim.
func (r *rig) end() {
	r.T.Helper()
	leases := r.Claim(1)
	if len(leases) != 1 {
		r.T.Fatal("no task waits")
	}
	r.Append(&leases[0], storetest.Status(a2a.StateCompleted))
}

func TestTickStartsATask(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *a2a.Schedule) { s.Message.Metadata = a2a.Raw(`{"k": 1, "a2ad/tick": 2}`) })
	if it := r.read(); it.Due() || !farAway(it) || r.act(r.Store) != nil {
		t.Errorf("%+v is due", it)
	}
	tick := r.makeDue(time.Minute)
	got := r.act(r.Store)
	if len(got) != 1 || got[0].Outcome != schedules.Started || !got[0].Tick.Equal(tick) {
		t.Fatalf("recorded %v, want the tick %v", got, tick)
	}
	task, err := r.Tasks.Snapshot(t.Context(), storetest.Ann, got[0].Task, tasks.Want{})
	if err != nil || len(task.History) != 1 || task.Status.State != a2a.StateSubmitted {
		t.Fatalf("the task of Ann is %+v, %v", task, err)
	}
	want := fmt.Sprintf(`{"a2ad/schedule":"daily","a2ad/tick":%q,"k": 1}`, tick.Format(time.RFC3339))
	if m := task.History[0]; string(m.Metadata) != want || m.Parts[0].Text != "report" {
		t.Errorf("the message is %+v with the metadata %s, want %s", m, m.Metadata, want)
	}
	if it := r.read(); it.LastTask != got[0].Task || !it.LastTick.Equal(tick) || !farAway(it) {
		t.Errorf("the schedule is %+v", it)
	}
	if n := r.Schedules.Counts()[schedules.Count{Agent: storetest.Agent, Outcome: schedules.Started}]; n != 1 {
		t.Errorf("counted %d ticks", n)
	}
	r.wantTicks(schedules.Started)
}

// However many replicas act at the same time, each tick starts one task.
func TestReplicasStartEachTickOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *a2a.Schedule) { s.Overlap = a2a.OverlapAllow })
	replicas := []*store.Store{r.Store, r.Replica("r2"), r.Replica("r3")}
	const rounds = 20
	for i := range rounds {
		r.makeDue(time.Minute + time.Duration(rounds-i)*time.Second)
		it := r.read()
		var wg sync.WaitGroup
		for _, s := range replicas {
			wg.Go(func() {
				if _, err := s.Schedules.Act(t.Context(), it, 0); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	r.wantTicks(slices.Repeat([]schedules.Outcome{schedules.Started}, rounds)...)
}

// A replica that loses the answer to its COMMIT, or dies before it, starts no second task, and the tick is not lost.
func TestTickWhoseCommitIsLostStartsOneTask(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("answered %t, always %t", answered, always), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				s, p := r.BehindProxy(t)
				r.makeDue(time.Minute)
				it := r.read()
				fired := p.Arm(storetest.Fault{Match: storetest.IsCommit, Answered: answered, Repeat: always})
				_, err := s.Schedules.Act(t.Context(), it, 0)
				storetest.WantFired(t, fired)
				p.Disarm()
				if err != nil {
					storetest.WantCode(t, err, a2a.CodeUnavailable)
				}
				for r.read().Due() { // until PostgreSQL has noticed that the connection is lost
					r.act(r.Store) // as another replica would
				}
				r.wantTicks(schedules.Started)
			})
		}
	}
}

// Of the ticks that were not started in time, only the newest starts a task, and only if it is not too late.
func TestCatchUp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		catchUp time.Duration
		newest  schedules.Outcome
	}{"in time": {2 * time.Hour, schedules.Started}, "too late": {time.Microsecond, schedules.Missed}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(s *a2a.Schedule) { s.Cron, s.CatchUp = storetest.HourlyCron(), tc.catchUp })
			r.Exec(`UPDATE a2a.schedules SET next_tick = next_tick - interval '3000 hours',
				next_at = next_at - interval '3000 hours'`)
			missed := 0
			for it := r.read(); it.Due(); it = r.read() {
				for _, tick := range r.act(r.Store) {
					if tick.Outcome == schedules.Missed {
						missed++
					}
				}
			}
			want := []schedules.Outcome{tc.newest}
			if tc.newest == schedules.Missed {
				missed--
			}
			if missed != 2999 {
				t.Errorf("%d ticks were missed", missed)
			}
			r.Exec(`DELETE FROM a2a.schedule_ticks WHERE tick < clock_timestamp() - interval '65 min'`)
			list, err := r.Schedules.Recent(t.Context(), storetest.Agent, r.file.Name, 10)
			if err != nil || len(list) == 0 || list[0].Outcome != want[0] {
				t.Errorf("the newest ticks are %v, %v, want %v", list, err, want)
			}
		})
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	type outcomes = []schedules.Outcome
	const started, queued, skipped = schedules.Started, schedules.Queued, schedules.Skipped
	for _, tc := range []struct {
		overlap       a2a.Overlap
		before, after outcomes // the end of the first task
	}{
		{a2a.OverlapSkip, outcomes{skipped, skipped, started}, outcomes{skipped, skipped, started}},
		{a2a.OverlapQueue, outcomes{skipped, queued, started}, outcomes{skipped, started, started}},
		{a2a.OverlapAllow, outcomes{started, started, started}, outcomes{started, started, started}},
	} {
		t.Run(tc.overlap.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(s *a2a.Schedule) { s.Overlap = tc.overlap })
			for i := range 3 {
				r.makeDue(time.Minute - time.Duration(i)*10*time.Second)
				r.act(r.Store)
			}
			r.wantTicks(tc.before...)
			r.end()
			r.act(r.Store)
			r.wantTicks(tc.after...)
			if it := r.read(); !it.QueuedTick.IsZero() {
				t.Errorf("the tick %v is still queued", it.QueuedTick)
			}
			if tc.overlap != a2a.OverlapSkip {
				return
			}
			r.makeDue(time.Second)
			if got := r.act(r.Store); len(got) != 1 || got[0].Outcome != started {
				t.Errorf("the tick after the end of the task: %v", got)
			}
		})
	}
}

// A tick whose owner has too many tasks starts none, and says why. A queued one waits until there is room.
func TestTickOverTheLimitOfTasksInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *a2a.Schedule) { s.Overlap = a2a.OverlapQueue })
	r.most = 2
	bobs := storetest.Submission("y")
	bobs.Caller.Owner = "bob"
	r.Submit(bobs) // the limit is for each owner
	cancel := func(task a2a.ID) {
		t.Helper()
		if _, err := r.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, task); err != nil {
			t.Fatal(err)
		}
	}
	ticks := func(what string, ago time.Duration, want ...schedules.Outcome) (task a2a.ID) {
		t.Helper()
		if ago > 0 {
			r.makeDue(ago)
		}
		var got []schedules.Outcome
		for _, tick := range r.act(r.Store) {
			got, task = append(got, tick.Outcome), tick.Task
			if refused := tick.Refused != ""; refused != (tick.Outcome == schedules.Missed) {
				t.Errorf("%s: the tick is %+v", what, tick)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s, -want +got:\n%s", what, diff)
		}
		return task
	}
	first, own := r.NewTask(), ticks("with room for one task", 5*time.Minute, schedules.Started)
	ticks("while its task runs", 4*time.Minute, schedules.Queued)
	cancel(own)
	second := r.NewTask()
	ticks("a queued tick without room", 0)
	ticks("and the next one", 3*time.Minute, schedules.Missed)
	cancel(first)
	own = ticks("the queued one with room", 0, schedules.Started)
	cancel(own)
	r.NewTask()
	ticks("without room", 2*time.Minute, schedules.Missed)
	cancel(second)
	ticks("with room again", time.Minute, schedules.Started)
	found, err := r.Access.Actions(t.Context(), access.ActionFilter{Name: access.ActionScheduleRefuse, Limit: 5})
	if err != nil || len(found) != 2 || found[0].Owner != storetest.Ann.Owner ||
		!strings.Contains(string(found[0].Detail), `"reason":"more than 2 tasks of the owner would be in flight"`) ||
		!strings.Contains(string(found[0].Detail), `"schedule":"daily","tick":"20`) {
		t.Errorf("actions %+v, %v, want two that say why", found, err)
	}
	r.Invariants()
}

// All replicas compute the same delay. It is shorter than the time to the next tick, so no tick overtakes another.
func TestJitter(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *a2a.Schedule) { s.Cron, s.Jitter = storetest.HourlyCron(), 24*time.Hour })
	first := r.read()
	delay := first.NextAt.Sub(first.NextTick)
	if delay <= 0 || delay >= time.Hour {
		t.Errorf("the delay is %v, want less than an hour", delay)
	}
	r.Exec("DELETE FROM a2a.schedules")
	r.load(r.Replica("r2"), r.file)
	if again := r.read(); again.NextTick.Equal(first.NextTick) && !again.NextAt.Equal(first.NextAt) {
		t.Errorf("another replica starts it at %v, not %v", again.NextAt, first.NextAt)
	}
	r.file.Name = "other"
	r.load(r.Store, r.file)
	list, err := r.Schedules.List(t.Context(), []string{storetest.Agent})
	if err != nil || len(list) != 2 || list[1].NextAt.Equal(first.NextAt) {
		t.Errorf("%+v, %v, want another delay than %v", list, err, delay)
	}
}

// After the clock was set back a schedule does not wait for the old time. A tick that was recorded starts no second
// task.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *a2a.Schedule) { s.Cron, s.Overlap = storetest.HourlyCron(), a2a.OverlapAllow })
	r.SetClockBack(48 * time.Hour)
	if it := r.read(); !it.Due() {
		t.Errorf("nothing to do: %+v", it)
	}
	r.act(r.Store)
	it := r.read()
	if it.NextTick.Sub(it.Now) > time.Hour {
		t.Errorf("the next tick is at %v, and it is %v", it.NextTick, it.Now)
	}
	tick := r.makeDue(time.Minute)
	r.act(r.Store)
	r.Exec("UPDATE a2a.schedules SET next_tick = $1, next_at = $1", tick)
	if got := r.act(r.Store); len(got) != 0 {
		t.Errorf("recorded again: %v", got)
	}
	r.wantTicks(schedules.Started)
}
