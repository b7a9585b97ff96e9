package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// modelTime is how long the test draws new machines.
const modelTime = 3 * time.Second

// A random machine does to a few tasks what callers and workers can do, including what they must not. It does the same
// to a model in memory, and compares the store with the model after each step.
func TestStoreBehavesLikeItsModel(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	end := time.Now().Add(modelTime)
	machines := 0
	rapid.Check(t, func(rt *rapid.T) {
		if time.Now().After(end) {
			return
		}
		machines++
		// What the previous machine left.
		if _, err := f.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 1}, 1000); err != nil {
			rt.Fatal(err)
		}
		if _, err := f.Tasks.ExpireParked(t.Context(), 1000); err != nil {
			rt.Fatal(err)
		}
		m := &machine{
			Fixture: f, rt: rt, agent: fmt.Sprint("agent", machines),
			fate:        rapid.SampledFrom([]string{"retry", "fail", "input-required"}).Draw(rt, "on lost lease"),
			maxAttempts: rapid.IntRange(1, 3).Draw(rt, "max attempts"),
			parks:       rapid.Bool().Draw(rt, "parks"),
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": m.check, "submit": m.submit, "followUp": m.followUp, "claim": m.claim, "append": m.append,
			"endTurn": m.endTurn, "checkpoint": m.checkpoint,
			"cancel": m.cancel, "expire": m.expire, "rescue": m.rescue, "renew": m.renew, "retry": m.retry,
			"due": m.due, "release": m.release, "zombie": m.zombie,
			"park": m.park, "resume": m.resume, "expireParked": m.expireParked,
		})
	})
}

// machine is the model, and the store that it is compared with.
type machine struct {
	*storetest.Fixture
	rt          *rapid.T
	agent       string
	fate        string
	maxAttempts int
	parks       bool
	tasks       []*modelTask
	clock       int // orders the tasks that wait
	words       int // makes texts unique
}

type modelTask struct {
	id         a2a.ID
	state      a2a.State
	log        []a2a.Event
	messages   []string
	status     int // index of the message of the status, or -1
	user, read int // newest message of the client, and newest one that a finished turn read; the first is 1
	epoch      int64
	attempt    int
	ready      int    // when it began to wait, by machine.clock; 0: it does not wait
	later      bool   // it waits for the delay of a retry
	parked     string // why it is parked, or empty
	brief      bool   // it may be parked for a moment only
	lease      *tasks.Lease
	expired    bool
	saved      string
	zombies    []*tasks.Lease
}

// word returns a text that no other message or chunk has.
func (m *machine) word() string {
	m.words++
	return fmt.Sprint("w", m.words)
}

// pick draws a task for which ok holds. Without one it skips the step.
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

// held reports whether a worker has a lease of the task.
func held(x *modelTask) bool { return x.lease != nil }

// wait puts a task at the end of the queue of the model.
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

// endLease ends the lease. Its worker continues as a zombie.
func (x *modelTask) endLease() {
	if x.lease != nil {
		x.zombies = append(x.zombies, x.lease)
	}
	x.lease, x.expired = nil, false
	x.epoch++
}

func (m *machine) submit(t *rapid.T) {
	if len(m.tasks) == 4 {
		t.Skip("enough tasks")
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
			TaskID: x.id, Agent: m.agent, Tenant: storetest.Ann.Tenant, Owner: storetest.Ann.Owner,
			Epoch: x.epoch, Attempt: x.attempt, Through: int64(x.user), Read: int64(x.read),
			Checkpoint: a2a.Raw(x.saved), Kept: x.saved != "",
			LastSeq: int64(len(x.log)), Bytes: leases[i].Bytes,
		}
		storetest.Same(t, "lease", want, leases[i])
		var got []string
		for _, msg := range inputs[i].Messages {
			got = append(got, msg.Parts[0].Text)
		}
		var unread []string
		for j, text := range x.messages {
			if j+1 > x.read && !x.fromAgent(j) {
				unread = append(unread, text)
			}
		}
		storetest.Same(t, "new messages", unread, got)
	}
}

// fromAgent reports whether the log has message i as a message of the agent.
func (x *modelTask) fromAgent(i int) bool {
	return slices.ContainsFunc(x.log, func(e a2a.Event) bool {
		u, ok := e.(*a2a.StatusUpdate)
		return ok && u.Status.Message != nil && u.Status.Message.Parts[0].Text == x.messages[i]
	})
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
	x.endLease()
	x.ready, x.later, x.saved, x.parked = 0, false, "", ""
}

func (m *machine) rescue(t *rapid.T) {
	policy := tasks.Policy{Agent: m.agent, Fate: m.fate, MaxAttempts: m.maxAttempts, Parks: m.parks}
	n, err := m.Tasks.Rescue(m.T.Context(), []tasks.Policy{policy}, tasks.Policy{MaxAttempts: 9}, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range m.tasks {
		if !x.expired {
			continue
		}
		n--
		x.endLease()
		switch {
		case m.fate == "retry" && x.attempt < m.maxAttempts:
			m.wait(x)
		case m.fate == "retry" && m.parks:
			x.event(storetest.Status(a2a.StateWorking))
			x.parked, x.brief = "the worker was lost", false
		case m.fate == "input-required":
			x.event(storetest.Status(a2a.StateInputRequired,
				"The worker was lost while it ran this task. Send a message to go on."))
			x.attempt = 0
		default:
			x.event(storetest.Status(a2a.StateFailed, "The worker was lost while it ran this task."))
			x.saved = ""
		}
	}
	if n != 0 {
		t.Fatalf("rescued %d tasks more than the model", n)
	}
	// One statement put them all into the queue, in an order that the model cannot know.
	m.order()
}

// order copies the order of the queue from the store to the model.
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

// check compares with the model everything that operators and callers see of the tasks.
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
		if (snap.Status.Message != nil) != (x.status >= 0) ||
			x.status >= 0 && snap.Status.Message.Parts[0].Text != x.messages[x.status] {
			t.Fatalf("task %d: status message %+v, want number %d of %v", i, snap.Status.Message, x.status, x.messages)
		}
		storetest.Same(t, fmt.Sprint("artifacts of task ", i), storetest.Fold(x.log), snap.Artifacts)
	}
	if text := m.Broken(m.agent); text != "" {
		t.Fatal(text)
	}
}
