package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// modelTime is how long the test draws new machines.
const modelTime = 4 * time.Second

// A random machine does to a few tasks what callers and workers can do, including what they must not. It does the same
// to a model in memory, and compares the store with the model after each step.
func TestStoreBehavesLikeItsModel(t *testing.T) {
	t.Parallel()
	playModel(t, func(m *machine) map[string]func(*rapid.T) {
		return map[string]func(*rapid.T){
			"": m.check, "submit": m.submit, "followUp": m.followUp, "claim": m.claim, "append": m.append,
			"endTurn": m.endTurn, "checkpoint": m.checkpoint,
			"cancel": m.cancel, "expire": m.expire, "rescue": m.rescue, "renew": m.renew, "retry": m.retry,
			"due": m.due, "release": m.release, "zombie": m.zombie,
			"park": m.park, "resume": m.resume, "expireParked": m.expireParked,
			"call": m.call, "waitForCalls": m.waitForCalls, "passTime": m.passTime, "endWaits": m.endWaits,
			"cancelOrphan": m.cancelOrphan, "use": m.use, "sumUsage": m.sumUsage,
		}
	})
}

// playModel plays machines with these actions for some seconds.
func playModel(t *testing.T, actions func(*machine) map[string]func(*rapid.T)) {
	t.Helper()
	f := storetest.Open(t)
	end := time.Now().Add(modelTime)
	machines := 0
	rapid.Check(t, func(rt *rapid.T) {
		if time.Now().After(end) {
			return
		}
		machines++
		clean(rt, f)
		m := &machine{
			Fixture: f, rt: rt, agents: []string{fmt.Sprint("agent", machines), fmt.Sprint("called", machines)},
			fate:        rapid.SampledFrom([]string{"retry", "fail", "input-required"}).Draw(rt, "on lost lease"),
			maxAttempts: rapid.IntRange(1, 3).Draw(rt, "max attempts"),
			parks:       rapid.Bool().Draw(rt, "parks"),
		}
		rt.Repeat(actions(m))
	})
}

// clean ends what the previous machine left for the loops of a server.
func clean(rt *rapid.T, f *storetest.Fixture) {
	ctx := f.T.Context()
	for left := true; left; {
		rescued, err1 := f.Tasks.Rescue(ctx, nil, tasks.Policy{MaxAttempts: 1}, 1000)
		expired, err2 := f.Tasks.ExpireParked(ctx, 1000)
		canceled, err3 := f.Tasks.CancelOrphan(ctx)
		ended, err4 := f.Tasks.EndWaits(ctx, 1000)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			rt.Fatal(err)
		}
		left = rescued+expired+ended > 0 || canceled
	}
}

// machine is the model, and the store that it is compared with.
type machine struct {
	*storetest.Fixture
	rt          *rapid.T
	agents      []string // the tasks of callers are of the first one
	fate        string
	maxAttempts int
	parks       bool
	tasks       []*modelTask
	clock       int // orders the tasks that wait
	words       int // makes texts unique
}

type modelTask struct {
	id         a2a.ID
	agent      string
	state      a2a.State
	log        []a2a.Event
	messages   []string
	status     int // index of the message of the status, or -1
	user, read int // newest message of the client, and newest one that a finished turn read; the first is 1
	epoch      int64
	attempt    int
	ready      int    // when it began to wait, by machine.clock; 0: it does not wait
	later      bool   // it waits for the delay of a retry
	quiet      bool   // its next claim writes no event
	parked     string // why it is parked, or empty
	brief      bool   // it may be parked for a moment only
	lease      *tasks.Lease
	expired    bool
	saved      string
	zombies    []*tasks.Lease
	used       modelUsage

	parent *modelTask // the task that has called it
	orphan bool       // it is to be canceled, because its parent has ended
	steps  []modelStep
	waits  *modelWait
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
	x.ready, x.later, x.quiet = m.clock, false, false
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
	agent := m.agents[0]
	if m.full(agent) {
		t.Skip("enough tasks")
	}
	in := storetest.Submission(m.word())
	in.Agent = agent
	out, err := m.Tasks.Submit(m.T.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	m.add(out.Task, agent, in.Message.Parts[0].Text)
}

// full reports whether an agent has as many tasks as fit into one lane of its queue. The model knows no lanes.
func (m *machine) full(agent string) bool {
	n := 0
	for _, x := range m.tasks {
		if x.agent == agent {
			n++
		}
	}
	return n == 4
}

// add adds a new task to the model.
func (m *machine) add(id a2a.ID, agent, text string) *modelTask {
	x := &modelTask{id: id, agent: agent, status: -1, messages: []string{text}, user: 1}
	x.event(storetest.Status(a2a.StateSubmitted))
	m.wait(x)
	m.tasks = append(m.tasks, x)
	return x
}

func (m *machine) followUp(t *rapid.T) {
	x := m.pick(t, func(*modelTask) bool { return true })
	in := storetest.Submission(m.word())
	in.Agent, in.Task, in.ContextID = x.agent, x.id, ""
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
	agent := rapid.SampledFrom(m.agents).Draw(t, "agent")
	if len(m.waiting(agent)) == 0 {
		agent = m.agents[0]
	}
	slots := rapid.IntRange(1, 3).Draw(t, "slots")
	waiting := m.waiting(agent)
	waiting = waiting[:min(slots, len(waiting))]
	leases, err := m.Tasks.NewClaimer().Claim(m.T.Context(), agent, slots, time.Hour, 0)
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
		if !x.quiet {
			x.event(storetest.Status(a2a.StateWorking))
		}
		x.ready, x.quiet = 0, false
		x.epoch++
		x.attempt++
		x.lease = &leases[i]
		want := tasks.Lease{
			TaskID: x.id, Agent: agent, Tenant: storetest.Ann.Tenant, Owner: storetest.Ann.Owner,
			Epoch: x.epoch, Attempt: x.attempt, Through: int64(x.user), Read: int64(x.read),
			Checkpoint: a2a.Raw(x.saved), Kept: x.saved != "",
			LastSeq: int64(len(x.log)), Bytes: leases[i].Bytes,
			Steps: len(x.steps), StepBytes: leases[i].StepBytes, Depth: x.depth(),
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

// waiting returns the tasks of an agent that can be claimed, in the order of the queue.
func (m *machine) waiting(agent string) (waiting []*modelTask) {
	for _, x := range m.tasks {
		if x.agent == agent && x.ready > 0 && !x.later {
			waiting = append(waiting, x)
		}
	}
	slices.SortFunc(waiting, func(a, b *modelTask) int { return a.ready - b.ready })
	return waiting
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
	state, err := m.Tasks.Cancel(m.T.Context(), storetest.Ann, x.agent, x.id)
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
	x.cancel()
}

func (x *modelTask) cancel() {
	x.event(storetest.Status(a2a.StateCanceled))
	x.endLease()
	x.ready, x.later, x.parked = 0, false, ""
	ended(x)
}

func (m *machine) rescue(t *rapid.T) {
	var policies []tasks.Policy
	for _, agent := range m.agents {
		policies = append(policies,
			tasks.Policy{Agent: agent, Fate: m.fate, MaxAttempts: m.maxAttempts, Parks: m.parks})
	}
	n, err := m.Tasks.Rescue(m.T.Context(), policies, tasks.Policy{MaxAttempts: 9}, 100)
	if err != nil {
		t.Fatal(err)
	}
	var failed []*modelTask
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
			failed = append(failed, x)
		}
	}
	ended(failed...)
	if n != 0 {
		t.Fatalf("rescued %d tasks more than the model", n)
	}
	// One statement put them all into the queue, in an order that the model cannot know.
	m.order()
}
