package store_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func (m *machine) append(t *rapid.T) {
	x := m.pick(t, held)
	events := m.events(t)
	out, err := m.Tasks.Append(m.T.Context(), x.lease, storetest.Batch(events...))
	if err != nil {
		t.Fatal(err)
	}
	if out.Base != int64(len(x.log)) {
		t.Fatalf("Append = %+v, want base %d", out, len(x.log))
	}
	for _, e := range events {
		x.event(e)
	}
}

// events draws events of a run.
func (m *machine) events(t *rapid.T) []a2a.Event {
	var events []a2a.Event
	// A long log is folded when its task ends.
	for range rapid.SampledFrom([]int{1, 2, 3, 40}).Draw(t, "events") {
		id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "artifact")
		kinds := []a2a.Event{
			storetest.Artifact(id, m.word()), storetest.Chunk(id, m.word()), storetest.Chunk(id, m.word()),
			storetest.Status(a2a.StateWorking), storetest.Status(a2a.StateWorking, m.word()),
		}
		events = append(events, kinds[rapid.IntRange(0, 4).Draw(t, "event")])
	}
	return events
}

func (m *machine) endTurn(t *rapid.T) {
	x := m.pick(t, held)
	asked := rapid.SampledFrom([]a2a.State{
		a2a.StateInputRequired, a2a.StateAuthRequired, a2a.StateCompleted, a2a.StateFailed, a2a.StateRejected,
	}).Draw(t, "state")
	last := storetest.Status(asked, m.word())
	events := append(m.events(t), last)
	lease := x.lease
	out, err := m.Tasks.Append(m.T.Context(), lease, storetest.Batch(events...))
	if err != nil {
		t.Fatal(err)
	}
	requeued := (asked.Interrupted() || asked == a2a.StateCompleted) && int64(x.user) > lease.Through
	if requeued {
		last = storetest.Status(a2a.StateWorking, last.Status.Message.Parts[0].Text)
		m.wait(x)
	}
	for _, e := range append(events[:len(events)-1:len(events)-1], last) {
		x.event(e)
	}
	if out.State != x.state || out.Requeued != requeued {
		t.Fatalf("Append = %+v, the model is %s, requeued = %v", out, x.state, requeued)
	}
	x.endLease()
	x.read = int(lease.Through)
	if asked != a2a.StateFailed {
		x.attempt = 0
	}
	if x.state.Terminal() {
		ended(x)
	}
}

func (m *machine) checkpoint(t *rapid.T) {
	x := m.pick(t, held)
	x.saved = fmt.Sprintf("%q", m.word())
	if _, err := m.Tasks.Append(m.T.Context(), x.lease, tasks.Batch{Checkpoint: a2a.Raw(x.saved)}); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) expire(t *rapid.T) {
	x := m.pick(t, func(x *modelTask) bool { return held(x) && !x.expired })
	m.Fixture.Expire(x.id)
	x.expired = true
}

func (m *machine) renew(t *rapid.T) {
	x := m.pick(t, func(x *modelTask) bool { return held(x) || len(x.zombies) > 0 })
	leases, want := slices.Clone(x.zombies), make([]tasks.Renewal, len(x.zombies))
	if held(x) {
		leases, want = append(leases, x.lease), append(want, tasks.Renewed)
		if x.expired {
			want[len(want)-1] = tasks.Lost
		}
	}
	got, err := m.Tasks.Renew(m.T.Context(), leases, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "held", want, got)
}

func (m *machine) retry(t *rapid.T) {
	x := m.pick(t, held)
	delay := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "delay")
	if err := m.Tasks.Retry(m.T.Context(), x.lease, "it failed", delay); err != nil {
		t.Fatal(err)
	}
	x.endLease()
	m.wait(x)
	x.later = delay > 0
}

// due ends the delay of a retry.
func (m *machine) due(t *rapid.T) {
	x := m.pick(t, func(x *modelTask) bool { return x.later })
	m.Exec(`WITH t AS (UPDATE a2a.tasks SET ready_at = clock_timestamp() WHERE id = $1 RETURNING id, ready_at)
		UPDATE a2a.task_ready r SET run_at = t.ready_at FROM t WHERE r.task_id = t.id`, x.id)
	m.wait(x)
}

func (m *machine) release(t *rapid.T) {
	x := m.pick(t, held)
	if err := m.Tasks.Release(m.T.Context(), append(slices.Clone(x.zombies), x.lease), "given back"); err != nil {
		t.Fatal(err)
	}
	x.endLease()
	x.attempt--
	m.wait(x)
}

func (m *machine) park(t *rapid.T) {
	x := m.pick(t, held)
	x.parked, x.brief = m.word(), rapid.Bool().Draw(t, "brief")
	limit := time.Duration(0)
	if x.brief {
		limit = time.Microsecond
	}
	if err := m.Tasks.Park(m.T.Context(), x.lease, x.parked, limit); err != nil {
		t.Fatal(err)
	}
	x.endLease()
	x.event(storetest.Status(a2a.StateWorking))
}

// resume resumes one task, which is rarely not parked.
func (m *machine) resume(t *rapid.T) {
	other := rapid.IntRange(0, 9).Draw(t, "other") == 0
	x := m.pick(t, func(x *modelTask) bool { return other || x.parked != "" })
	list, err := m.Tasks.Resume(m.T.Context(), []a2a.ID{x.id}, "fixed")
	if err != nil || len(list) != min(len(x.parked), 1) {
		t.Fatalf("Resume = %+v, %v, the model is parked: %q", list, err, x.parked)
	}
	if x.parked == "" {
		return
	}
	if list[0].Parked != x.parked {
		t.Fatalf("Resume = %+v, the model is parked: %q", list, x.parked)
	}
	x.parked, x.attempt = "", 0
	m.wait(x)
}

// expireParked fails the tasks that were parked for a moment.
func (m *machine) expireParked(t *rapid.T) {
	m.pick(t, func(x *modelTask) bool { return x.parked != "" })
	n, err := m.Tasks.ExpireParked(m.T.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	var failed []*modelTask
	for _, x := range m.tasks {
		if x.parked == "" || !x.brief {
			continue
		}
		n--
		x.endLease()
		x.event(storetest.Status(a2a.StateFailed, "parked for too long: "+x.parked))
		x.parked, failed = "", append(failed, x)
	}
	ended(failed...)
	if n != 0 {
		t.Fatalf("failed %d parked tasks more than the model", n)
	}
}

// zombie lets a worker that lost its lease write.
func (m *machine) zombie(t *rapid.T) {
	x := m.pick(t, func(x *modelTask) bool { return len(x.zombies) > 0 })
	z := rapid.SampledFrom(x.zombies).Draw(t, "zombie")
	var err error
	switch rapid.IntRange(0, 7).Draw(t, "what") {
	case 0:
		_, err = m.Tasks.Append(m.T.Context(), z, tasks.Batch{Events: m.events(t), Checkpoint: a2a.Raw(`"zombie"`)})
	case 1:
		batch := storetest.Batch(storetest.Status(a2a.StateCompleted))
		batch.Error = "zombie"
		_, err = m.Tasks.Append(m.T.Context(), z, batch)
	case 2:
		err = m.Tasks.Retry(m.T.Context(), z, "zombie", 0)
	case 3:
		err = m.Tasks.Park(m.T.Context(), z, "zombie", 0)
	case 4:
		step, _ := m.callStep(t, z.Steps+1, m.agents[0])
		_, err = m.Tasks.Append(m.T.Context(), z, tasks.Batch{Steps: []a2a.StepRecord{step}, ContextID: "ctx"})
	case 5:
		w := &a2a.Wait{Key: m.word(), For: time.Hour}
		step := a2a.StepRecord{Step: a2a.Step{Key: w.Key}, Seq: z.Steps + 1, Kind: a2a.StepWait}
		_, err = m.Tasks.Append(m.T.Context(), z, tasks.Batch{Steps: []a2a.StepRecord{step}, Wait: w})
	case 6:
		_, err = m.Tasks.Append(m.T.Context(), z, tasks.Batch{Usage: m.usage(t)})
	case 7:
		if err := m.Tasks.Release(m.T.Context(), []*tasks.Lease{z}, "given back"); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !errors.Is(err, db.ErrLeaseLost) {
		t.Fatalf("a zombie's write = %v, want ErrLeaseLost", err)
	}
}
