package schedules_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/schedules"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/wake"
)

// A file that says the same changes nothing. A changed message keeps the next tick, also an overdue one. Changed times
// and a schedule that is back count from now.
func TestLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.TakeWakes()
	second := r.Replica("r2")
	if n := r.load(second, r.file); n != 0 || len(r.TakeWakes()) != 0 {
		t.Errorf("the same file changed %d schedules", n)
	}
	overdue := r.makeDue(time.Minute)
	file := r.file
	file.Message.Parts = storetest.Texts("another")
	if n := r.load(second, file); n != 1 || !slices.Contains(r.TakeWakes(), wake.Schedules) {
		t.Errorf("another message changed %d schedules", n)
	}
	if it := r.read(); !it.NextTick.Equal(overdue) || it.LoadedBy != "r2" || it.Message.Parts[0].Text != "another" {
		t.Errorf("after another message: %+v", it)
	}
	file.Cron = storetest.HourlyCron()
	r.load(r.Store, file)
	if it := r.read(); it.NextTick.Before(it.Now) || it.NextTick.Sub(it.Now) > time.Hour {
		t.Errorf("after other times the next tick is at %v, and it is %v", it.NextTick, it.Now)
	}
	file.Paused = true
	r.load(r.Store, file)
	if it := r.read(); !it.NextTick.IsZero() || it.Active() {
		t.Errorf("a paused schedule has the tick %v", it.NextTick)
	}
	r.load(r.Store)
	if it := r.read(); it.RemovedAt.IsZero() || it.Active() {
		t.Errorf("a removed schedule is %+v", it)
	}
	if n := r.load(r.Store); n != 0 {
		t.Errorf("%d schedules were removed again", n)
	}
	file.Paused = false
	r.load(r.Store, file)
	if it := r.read(); it.NextTick.Before(it.Now) || !it.Active() {
		t.Errorf("a schedule that is back is %+v", it)
	}
}

// A queued tick of a schedule that is removed never starts.
func TestRemoveSkipsTheQueuedTick(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *a2a.Schedule) { s.Overlap = a2a.OverlapQueue })
	for i := range 2 {
		r.makeDue(time.Minute - time.Duration(i)*time.Second)
		r.act(r.Store)
	}
	r.load(r.Store)
	r.end()
	r.act(r.Store)
	r.load(r.Store, r.file)
	r.act(r.Store)
	r.wantTicks(schedules.Skipped, schedules.Started)
}

func TestPauseAndRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, agent := t.Context(), storetest.Agent
	r.makeDue(time.Minute)
	for i, paused := range []bool{true, true, false, false} {
		it, changed, err := r.Schedules.Pause(ctx, agent, "daily", paused)
		if err != nil || changed != (i%2 == 0) || it.PausedAt.IsZero() == paused {
			t.Errorf("pause %t: changed %t, %v, %+v", paused, changed, err, it)
		}
		if it := r.read(); it.Due() || it.NextTick.IsZero() != paused {
			t.Errorf("after pause %t the next tick is at %v", paused, it.NextTick)
		}
		if !paused {
			continue
		}
		r.file.CatchUp += time.Hour
		r.load(r.Store, r.file) // the files do not undo what an operator does
		if it := r.read(); !it.NextTick.IsZero() {
			t.Errorf("a changed file lets a paused schedule tick at %v", it.NextTick)
		}
	}
	r.wantTicks()
	id, err := r.Schedules.RunNow(ctx, agent, "daily")
	if err != nil || storetest.Value[int](r.Fixture, "SELECT count(*)::int FROM a2a.tasks WHERE id = $1", id) != 1 {
		t.Errorf("run: task %s, %v", id, err)
	}
	actions := strings.Join(r.Actions(), "\n")
	for _, want := range []string{"schedule.pause", "schedule.resume", `schedule.run acme/ann {"agent": "words"`} {
		if strings.Count(strings.ReplaceAll(actions, `":"`, `": "`), want) != 1 {
			t.Errorf("%q is not once in the audit log:\n%s", want, actions)
		}
	}
	r.load(r.Store)
	if _, err := r.Schedules.RunNow(ctx, agent, "daily"); !errors.Is(err, schedules.ErrRemoved) {
		t.Errorf("run of a removed schedule: %v", err)
	}
	if _, _, err := r.Schedules.Pause(ctx, agent, "weekly", true); !errors.Is(err, schedules.ErrNone) {
		t.Errorf("pause of an unknown schedule: %v", err)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 5 {
		r.makeDue(time.Minute - time.Duration(i)*time.Second)
		r.act(r.Store)
	}
	r.Exec(`UPDATE a2a.schedule_ticks SET at = at - interval '2 hours' WHERE outcome = 'skipped'`)
	for _, want := range []int{3, 1, 0} {
		if n, err := r.Schedules.Sweep(t.Context(), time.Hour, 3); n != want || err != nil {
			t.Errorf("removed %d, %v, want %d", n, err, want)
		}
	}
	r.wantTicks(schedules.Started)
}

func TestUpcoming(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	list, err := r.read().Upcoming(3)
	if err != nil || len(list) != 3 || list[2].Year() != list[0].Year()+2 {
		t.Errorf("the next ticks are %v, %v", list, err)
	}
}
