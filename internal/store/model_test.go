package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// modelTime bounds the test below: it stops drawing new machines when so much has passed.
const modelTime = 3 * time.Second

// TestStoreIsItsModel lets a random machine of a few tasks run on the store and on a model in memory, and compares the two after
// each step: everything that callers and workers can do, also what they should not.
func TestStoreIsItsModel(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	end := time.Now().Add(modelTime)
	machines := 0
	rapid.Check(t, func(rt *rapid.T) {
		if time.Now().After(end) {
			return
		}
		machines++
		if _, err := f.Tasks.Rescue(t.Context(), nil, 1, 1000); err != nil { // what the machine before left
			rt.Fatal(err)
		}
		m := &machine{
			Fixture: f, rt: rt, agent: fmt.Sprint("agent", machines),
			fate:        rapid.SampledFrom([]string{"retry", "fail", "input-required"}).Draw(rt, "on lost lease"),
			maxAttempts: rapid.IntRange(1, 3).Draw(rt, "max attempts"),
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": m.check, "submit": m.submit, "followUp": m.followUp, "claim": m.claim, "append": m.append, "endTurn": m.endTurn, "checkpoint": m.checkpoint,
			"cancel": m.cancel, "expire": m.expire, "rescue": m.rescue, "renew": m.renew, "retry": m.retry, "due": m.due, "release": m.release, "zombie": m.zombie,
		})
	})
	t.Logf("%d machines", machines)
}

// machine is the model, and the store that it is compared with.
type machine struct {
	*storetest.Fixture
	rt          *rapid.T
	agent       string
	fate        string
	maxAttempts int
	tasks       []*modelTask
	clock       int // orders what waits
	words       int // makes texts that differ
}

type modelTask struct {
	id         a2a.ID
	state      a2a.State
	log        []a2a.Event
	messages   []string
	status     int // index of the message of the status, or -1
	user, read int // newest message of the client, and newest one that a finished turn has read; counted from 1
	epoch      int64
	attempt    int
	ready      int  // when it began to wait, by m.clock; 0: it does not
	later      bool // it waits, but not yet for a worker
	lease      *tasks.Lease
	expired    bool
	saved      string
	zombies    []*tasks.Lease
}

func (m *machine) word() string {
	m.words++
	return fmt.Sprint("w", m.words)
}

// pick draws a task for which ok holds, or gives the step up.
func (m *machine) pick(t *rapid.T, ok func(*modelTask) bool) *modelTask {
	var fit []*modelTask
	for _, x := range m.tasks {
		if ok(x) {
			fit = append(fit, x)
		}
	}
	if len(fit) == 0 {
		t.Skip("no such task")
	}
	return fit[rapid.IntRange(0, len(fit)-1).Draw(t, "task")]
}

func held(x *modelTask) bool { return x.lease != nil }

func (m *machine) wait(x *modelTask) {
	m.clock++
	x.ready, x.later = m.clock, false
}

// event adds an event to the log of the model.
func (x *modelTask) event(e a2a.Event) {
	x.log = append(x.log, e)
	u, ok := e.(*a2a.StatusUpdate)
	if !ok {
		return
	}
	x.state, x.status = u.Status.State, -1
	if u.Status.Message != nil {
		x.messages = append(x.messages, u.Status.Message.Parts[0].Text)
		x.status = len(x.messages) - 1
	}
}

// leave ends the lease; whoever held it goes on as a zombie.
func (x *modelTask) leave() {
	if x.lease != nil {
		x.zombies = append(x.zombies, x.lease)
	}
	x.lease, x.expired = nil, false
	x.epoch++
}

func (m *machine) submit(t *rapid.T) {
	if len(m.tasks) == 4 {
		t.Skip("enough")
	}
	in := storetest.Submission(m.word())
	in.Agent = m.agent
	out, err := m.Tasks.Submit(m.T.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	x := &modelTask{id: out.Task, status: -1, messages: []string{in.Message.Parts[0].Text}, user: 1}
	x.event(storetest.Status(a2a.StateSubmitted))
	m.wait(x)
	m.tasks = append(m.tasks, x)
}

func (m *machine) followUp(t *rapid.T) {
	x := m.pick(t, func(*modelTask) bool { return true })
	in := storetest.Submission(m.word())
	in.Agent, in.Task, in.ContextID = m.agent, x.id, ""
	in.Reject = rapid.Bool().Draw(t, "reject")
	out, err := m.Tasks.Submit(m.T.Context(), in)
	switch {
	case x.state.Terminal():
		storetest.WantCode(t, err, a2a.CodeTaskTerminal)
		return
	case in.Reject && x.state == a2a.StateWorking:
		storetest.WantCode(t, err, a2a.CodeUnsupportedOperation)
		return
	case err != nil:
		t.Fatal(err)
	}
	x.messages = append(x.messages, in.Message.Parts[0].Text)
	x.user = len(x.messages)
	if x.state.Interrupted() {
		x.event(storetest.Status(a2a.StateSubmitted))
		m.wait(x)
	}
	if out.State != x.state || out.After != int64(len(x.log)) {
		t.Fatalf("Submit = %+v, the model is %s at %d", out, x.state, len(x.log))
	}
}

func (m *machine) claim(t *rapid.T) {
	slots := rapid.IntRange(1, 3).Draw(t, "slots")
	var waiting []*modelTask
	for _, x := range m.tasks {
		if x.ready > 0 && !x.later {
			waiting = append(waiting, x)
		}
	}
	slices.SortFunc(waiting, func(a, b *modelTask) int { return a.ready - b.ready })
	waiting = waiting[:min(slots, len(waiting))]
	leases, err := m.Tasks.NewClaimer().Claim(m.T.Context(), m.agent, slots, time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(leases) != len(waiting) {
		t.Fatalf("%d leases, want %d", len(leases), len(waiting))
	}
	inputs, err := m.Tasks.Inputs(m.T.Context(), leases)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range waiting {
		x.event(storetest.Status(a2a.StateWorking))
		x.ready = 0
		x.epoch++
		x.attempt++
		x.lease = &leases[i]
		want := tasks.Lease{
			TaskID: x.id, Agent: m.agent, Tenant: storetest.Ann.Tenant, Owner: storetest.Ann.Owner, Epoch: x.epoch, Attempt: x.attempt,
			Through: int64(x.user), Read: int64(x.read), Checkpoint: a2a.Raw(x.saved), Kept: x.saved != "", LastSeq: int64(len(x.log)), Bytes: leases[i].Bytes,
		}
		storetest.Same(t, "lease", want, leases[i])
		var said []string
		for _, msg := range inputs[i].Messages {
			said = append(said, msg.Parts[0].Text)
		}
		var unread []string
		for j, text := range x.messages {
			if j+1 > x.read && !x.fromAgent(j) {
				unread = append(unread, text)
			}
		}
		storetest.Same(t, "new messages", unread, said)
	}
}

// fromAgent tells the agent's messages from the client's by the log.
func (x *modelTask) fromAgent(i int) bool {
	return slices.ContainsFunc(x.log, func(e a2a.Event) bool {
		u, ok := e.(*a2a.StatusUpdate)
		return ok && u.Status.Message != nil && u.Status.Message.Parts[0].Text == x.messages[i]
	})
}

func (m *machine) append(t *rapid.T) {
	x := m.pick(t, held)
	events := m.events(t)
	out, err := m.Tasks.Append(m.T.Context(), x.lease, tasks.Batch{Events: events})
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

func (m *machine) events(t *rapid.T) []a2a.Event {
	var events []a2a.Event
	// A long log is folded where its task ends.
	for range rapid.SampledFrom([]int{1, 2, 3, 40}).Draw(t, "events") {
		id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "artifact")
		events = append(events, []a2a.Event{storetest.Artifact(id, m.word()), storetest.Chunk(id, m.word()), storetest.Chunk(id, m.word()), storetest.Status(a2a.StateWorking), storetest.Status(a2a.StateWorking, m.word())}[rapid.IntRange(0, 4).Draw(t, "event")])
	}
	return events
}

func (m *machine) endTurn(t *rapid.T) {
	x := m.pick(t, held)
	asked := rapid.SampledFrom([]a2a.State{a2a.StateInputRequired, a2a.StateAuthRequired, a2a.StateCompleted, a2a.StateFailed, a2a.StateRejected}).Draw(t, "state")
	last := storetest.Status(asked, m.word())
	events := append(m.events(t), last)
	lease := x.lease
	out, err := m.Tasks.Append(m.T.Context(), lease, tasks.Batch{Events: events})
	if err != nil {
		t.Fatal(err)
	}
	goesOn := (asked.Interrupted() || asked == a2a.StateCompleted) && int64(x.user) > lease.Through
	if goesOn {
		last = storetest.Status(a2a.StateWorking, last.Status.Message.Parts[0].Text)
		m.wait(x)
	}
	for _, e := range append(events[:len(events)-1:len(events)-1], last) {
		x.event(e)
	}
	if out.State != x.state || out.Requeued != goesOn {
		t.Fatalf("Append = %+v, the model is %s and goes on: %v", out, x.state, goesOn)
	}
	x.leave()
	x.read = int(lease.Through)
	if asked != a2a.StateFailed {
		x.attempt = 0
	}
	if x.state.Terminal() {
		x.saved = ""
	}
}

func (m *machine) checkpoint(t *rapid.T) {
	x := m.pick(t, held)
	x.saved = fmt.Sprintf("%q", m.word())
	if _, err := m.Tasks.Append(m.T.Context(), x.lease, tasks.Batch{Checkpoint: a2a.Raw(x.saved)}); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) cancel(t *rapid.T) {
	x := m.pick(t, func(*modelTask) bool { return true })
	state, err := m.Tasks.Cancel(m.T.Context(), storetest.Ann, m.agent, x.id)
	if x.state.Terminal() {
		storetest.WantCode(t, err, a2a.CodeTaskNotCancelable)
		if state != x.state {
			t.Fatalf("Cancel = %s, the task is %s", state, x.state)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	x.event(storetest.Status(a2a.StateCanceled))
	x.leave()
	x.ready, x.later, x.saved = 0, false, ""
}

func (m *machine) expire(t *rapid.T) {
	x := m.pick(t, func(x *modelTask) bool { return held(x) && !x.expired })
	m.Fixture.Expire(x.id)
	x.expired = true
}

func (m *machine) rescue(t *rapid.T) {
	n, err := m.Tasks.Rescue(m.T.Context(), []tasks.Policy{{Agent: m.agent, Fate: m.fate, MaxAttempts: m.maxAttempts}}, 9, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range m.tasks {
		if !x.expired {
			continue
		}
		n--
		x.leave()
		switch {
		case m.fate == "retry" && x.attempt < m.maxAttempts:
			m.wait(x)
		case m.fate == "input-required":
			x.event(storetest.Status(a2a.StateInputRequired, "The worker was lost while it ran this task. Send a message to go on."))
			x.attempt = 0
		default:
			x.event(storetest.Status(a2a.StateFailed, "The worker was lost while it ran this task."))
			x.saved = ""
		}
	}
	if n != 0 {
		t.Fatalf("%d tasks too many were rescued", n)
	}
	// One statement made them all wait, in the order of its scan.
	m.order()
}

// order takes over in which order the tasks of one statement wait.
func (m *machine) order() {
	rows, err := m.Operate.ListTasks(m.T.Context(), operate.TaskFilter{Agent: m.agent, Limit: 100})
	if err != nil {
		m.rt.Fatal(err)
	}
	slices.SortFunc(rows, func(a, b operate.TaskRow) int { return a.ReadyAt.Compare(b.ReadyAt) })
	for _, r := range rows {
		for _, x := range m.tasks {
			if x.id == r.ID && x.ready > 0 && !x.later {
				m.wait(x)
			}
		}
	}
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
	x.leave()
	m.wait(x)
	x.later = delay > 0
}

// due lets the time pass that a retry waits for.
func (m *machine) due(t *rapid.T) {
	x := m.pick(t, func(x *modelTask) bool { return x.later })
	m.Exec(`WITH t AS (UPDATE a2a.tasks SET ready_at = clock_timestamp() WHERE id = $1 RETURNING id, ready_at)
		UPDATE a2a.task_ready r SET run_at = t.ready_at FROM t WHERE r.task_id = t.id`, x.id)
	m.wait(x)
}

func (m *machine) release(t *rapid.T) {
	x := m.pick(t, held)
	if err := m.Tasks.Release(m.T.Context(), append(slices.Clone(x.zombies), x.lease)); err != nil {
		t.Fatal(err)
	}
	x.leave()
	x.attempt--
	m.wait(x)
}

// zombie lets one that lost its lease go on as if it had it.
func (m *machine) zombie(t *rapid.T) {
	x := m.pick(t, func(x *modelTask) bool { return len(x.zombies) > 0 })
	z := rapid.SampledFrom(x.zombies).Draw(t, "zombie")
	var err error
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		_, err = m.Tasks.Append(m.T.Context(), z, tasks.Batch{Events: m.events(t), Checkpoint: a2a.Raw(`"zombie"`)})
	case 1:
		_, err = m.Tasks.Append(m.T.Context(), z, tasks.Batch{Events: []a2a.Event{storetest.Status(a2a.StateCompleted)}, Error: "zombie"})
	case 2:
		err = m.Tasks.Retry(m.T.Context(), z, "zombie", 0)
	case 3:
		if err := m.Tasks.Release(m.T.Context(), []*tasks.Lease{z}); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !errors.Is(err, db.ErrLeaseLost) {
		t.Fatalf("a zombie's write = %v, want ErrLeaseLost", err)
	}
}

// check compares all that can be seen of the tasks with the model.
func (m *machine) check(t *rapid.T) {
	rows, err := m.Operate.ListTasks(m.T.Context(), operate.TaskFilter{Agent: m.agent, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(m.tasks) {
		t.Fatalf("%d tasks, want %d", len(rows), len(m.tasks))
	}
	for i, x := range m.tasks {
		r := rows[len(rows)-1-i]
		got := fmt.Sprint(r.State, r.LastSeq, r.Attempt, r.Epoch, !r.ReadyAt.IsZero(), r.Worker != "")
		if want := fmt.Sprint(x.state, len(x.log), x.attempt, x.epoch, x.ready > 0, held(x)); got != want {
			t.Fatalf("task %d: state, seq, attempt, epoch, ready, leased = %s, want %s", i, got, want)
		}
		snap := m.Snapshot(x.id)
		var history []string
		for _, msg := range snap.History {
			history = append(history, msg.Parts[0].Text)
		}
		var want []string
		for j, text := range x.messages {
			if j != x.status {
				want = append(want, text)
			}
		}
		storetest.Same(t, fmt.Sprint("history of task ", i), want, history)
		if (snap.Status.Message != nil) != (x.status >= 0) || x.status >= 0 && snap.Status.Message.Parts[0].Text != x.messages[x.status] {
			t.Fatalf("task %d: status message %+v, want number %d of %v", i, snap.Status.Message, x.status, x.messages)
		}
		storetest.Same(t, fmt.Sprint("artifacts of task ", i), storetest.Fold(x.log), snap.Artifacts)
	}
	if text := m.Broken(m.agent); text != "" {
		t.Fatal(text)
	}
}
