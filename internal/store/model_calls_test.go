package store_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// The same machine, which mostly calls tasks, waits for them, and ends them.
func TestCallsBehaveLikeTheirModel(t *testing.T) {
	t.Parallel()
	playModel(t, func(m *machine) map[string]func(*rapid.T) {
		m.submit(m.rt)
		m.claim(m.rt)
		m.call(m.rt)
		if rapid.IntRange(0, 3).Draw(m.rt, "begin") > 0 {
			m.waitForCalls(m.rt)
			m.claim(m.rt)
		}
		return map[string]func(*rapid.T){
			"": m.checkFamilies, "submit": m.submit, "claim": m.claim, "claim more": m.claim, "call": m.call,
			"waitForCalls": m.waitForCalls, "wait more": m.waitForCalls, "passTime": m.passTime, "endWaits": m.endWaits,
			"endTurn": m.endTurn, "end another turn": m.endTurn, "cancel": m.cancel, "cancelOrphan": m.cancelOrphan,
			"expire": m.expire, "rescue": m.rescue, "zombie": m.zombie, "park": m.park, "expireParked": m.expireParked,
		}
	})
}

// modelStep is a call, or a wait for calls.
type modelStep struct {
	key     string
	child   *modelTask // of a call
	abandon bool
	ended   bool
	result  string // how the child has ended, or what has ended the wait
}

// modelWait is what a task waits for.
type modelWait struct {
	step    int   // index of its step
	calls   []int // indexes of their steps
	pending int   // how many of them must still end
	timed   bool
	by      string // what has ended it; empty: nothing yet
}

func (x *modelTask) depth() int {
	if x.parent == nil {
		return 0
	}
	return x.parent.depth() + 1
}

var endNames = map[a2a.State]string{
	a2a.StateCompleted: "TASK_STATE_COMPLETED", a2a.StateFailed: "TASK_STATE_FAILED",
	a2a.StateCanceled: "TASK_STATE_CANCELED", a2a.StateRejected: "TASK_STATE_REJECTED",
}

// ended is the end of tasks in one transaction: their children lose their parent, and their parents get the results.
func ended(list ...*modelTask) {
	for _, x := range list {
		x.saved, x.waits = "", nil
		for _, s := range x.steps {
			if s.child != nil && !s.ended && !s.abandon {
				s.child.orphan = true
			}
		}
	}
	for _, x := range list {
		if x.parent != nil {
			x.parent.childEnded(x)
		}
	}
}

func (x *modelTask) childEnded(child *modelTask) {
	for i := range x.steps {
		s := &x.steps[i]
		if s.child != child {
			continue
		}
		s.ended, s.result = true, endNames[child.state]
		if x.waits == nil {
			return
		}
		for _, call := range x.waits.calls {
			if call == i {
				x.waits.pending--
			}
		}
		if x.waits.pending <= 0 {
			x.waits.by = "tasks"
		}
	}
}

// callStep draws the step of a call.
func (m *machine) callStep(t *rapid.T, seq int, agent string) (a2a.StepRecord, *a2a.Call) {
	call := &a2a.Call{
		Key: m.word(), Agent: agent, Message: storetest.Message("", m.word()),
		Abandon: rapid.IntRange(0, 3).Draw(t, "abandon") == 0,
	}
	return a2a.StepRecord{
		Step: a2a.Step{Key: call.Key, Name: agent}, Seq: seq, Kind: a2a.StepCall, Child: db.NewTaskID(), Call: call,
	}, call
}

// call calls up to three tasks, perhaps together with other events.
func (m *machine) call(t *rapid.T) {
	x := m.pick(t, held)
	b := tasks.Batch{ContextID: "ctx"}
	if rapid.Bool().Draw(t, "with events") {
		b.Events = m.events(t)
	}
	for range rapid.IntRange(1, 3).Draw(t, "calls") {
		agent := rapid.SampledFrom([]string{m.agents[1], m.agents[1], m.agents[0]}).Draw(t, "agent")
		if m.full(agent) {
			continue
		}
		step, call := m.callStep(t, len(x.steps)+1, agent)
		b.Steps = append(b.Steps, step)
		child := m.add(step.Child, agent, call.Message.Parts[0].Text)
		child.parent = x
		x.steps = append(x.steps, modelStep{key: call.Key, child: child, abandon: call.Abandon})
	}
	if len(b.Steps) == 0 {
		t.Skip("enough tasks")
	}
	if _, err := m.Tasks.Append(m.T.Context(), x.lease, b); err != nil {
		t.Fatal(err)
	}
	for _, e := range b.Events {
		x.event(e)
	}
	m.order() // one statement has put them all into the queue
}

// calls returns the indexes of the steps that are calls.
func (x *modelTask) calls() (list []int) {
	for i, s := range x.steps {
		if s.child != nil {
			list = append(list, i)
		}
	}
	return list
}

// waitForCalls ends the run of a task, which waits for some of its calls, which may have ended.
func (m *machine) waitForCalls(t *rapid.T) {
	x := m.pick(t, func(x *modelTask) bool { return held(x) && len(x.calls()) > 0 })
	w := &a2a.Wait{Key: m.word(), Any: rapid.Bool().Draw(t, "any")}
	record := a2a.StepRecord{Step: a2a.Step{Key: w.Key}, Seq: len(x.steps) + 1, Kind: a2a.StepWait}
	wait := &modelWait{step: len(x.steps), timed: rapid.Bool().Draw(t, "timed")}
	if wait.timed {
		w.For = time.Hour
	}
	open := 0
	for n, i := range x.calls() {
		if n > 0 && rapid.IntRange(0, 3).Draw(t, "leave out") == 0 {
			continue
		}
		s := x.steps[i]
		w.Tasks, wait.calls = append(w.Tasks, s.key), append(wait.calls, i)
		record.Calls = append(record.Calls, i+1)
		if !s.ended {
			open++
		}
	}
	wait.pending = open
	if w.Any {
		wait.pending = 1 - (len(wait.calls) - open)
	}
	if wait.pending <= 0 {
		wait.by = "tasks"
	}
	b := tasks.Batch{Steps: []a2a.StepRecord{record}, Wait: w}
	if rapid.Bool().Draw(t, "with events") {
		b.Events = m.events(t)
	}
	if _, err := m.Tasks.Append(m.T.Context(), x.lease, b); err != nil {
		t.Fatal(err)
	}
	for _, e := range b.Events {
		x.event(e)
	}
	x.endLease()
	x.attempt, x.waits = 0, wait
	x.steps = append(x.steps, modelStep{key: w.Key})
}

// passTime lets the time of a wait pass.
func (m *machine) passTime(t *rapid.T) {
	x := m.pick(t, func(x *modelTask) bool { return x.waits != nil && x.waits.timed && x.waits.by == "" })
	m.Exec("UPDATE a2a.task_waits SET due_at = clock_timestamp() WHERE task_id = $1", x.id)
	x.waits.by = "time"
}

// endWaits puts the tasks whose wait is over into the queue.
func (m *machine) endWaits(t *rapid.T) {
	n, err := m.Tasks.EndWaits(m.T.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range m.tasks {
		if x.waits == nil || x.waits.by == "" {
			continue
		}
		n--
		s := &x.steps[x.waits.step]
		s.ended, s.result = true, x.waits.by
		x.waits = nil
		m.wait(x)
		x.quiet = true
	}
	if n != 0 {
		t.Fatalf("ended %d waits more than the model", n)
	}
	m.order()
}

// cancelOrphan cancels the oldest task whose parent has ended.
func (m *machine) cancelOrphan(t *rapid.T) {
	more, err := m.Tasks.CancelOrphan(m.T.Context())
	if err != nil {
		t.Fatal(err)
	}
	var oldest *modelTask
	for _, x := range m.tasks {
		if x.orphan && (oldest == nil || bytes.Compare(x.id[:], oldest.id[:]) < 0) {
			oldest = x
		}
	}
	if more != (oldest != nil) {
		t.Fatalf("CancelOrphan = %t, the model has %v", more, oldest)
	}
	if oldest == nil {
		return
	}
	oldest.orphan = false
	if !oldest.state.Terminal() {
		oldest.cancel()
	}
}

// checkFamilies compares the states of the tasks, and what the store knows of their calls.
func (m *machine) checkFamilies(t *rapid.T) {
	m.checkStates(t)
	m.checkCalls(t)
}

// families reads of each task its steps, what it waits for, and whether it is to be canceled.
const families = `
	SELECT concat_ws('; ', t.id,
	  (SELECT string_agg(concat_ws(' ', s.key, s.child_id, s.ended_at IS NOT NULL, s.result ->> 'state',
	     s.result ->> 'by'), ', ' ORDER BY s.seq)
	   FROM a2a.task_steps s WHERE s.task_id = t.id),
	  (SELECT concat_ws(' ', 'waits', w.step, w.pending, w.due_at <= clock_timestamp())
	   FROM a2a.task_waits w WHERE w.task_id = t.id),
	  (SELECT 'orphan' FROM a2a.task_orphans o WHERE o.task_id = t.id))
	FROM a2a.tasks t WHERE t.agent = ANY ($1) ORDER BY t.id`

func (m *machine) checkCalls(t *rapid.T) {
	rows, err := m.SQL.Query(m.T.Context(), families, m.agents)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := make([]string, len(m.tasks))
	for i, x := range m.tasks {
		want[i] = x.family()
	}
	slices.Sort(want)
	storetest.Same(t, "families", want, got)
	if text := m.Broken(m.agents...); text != "" {
		t.Fatal(text)
	}
}

// family is the row of families that the task should have.
func (x *modelTask) family() string {
	parts := []string{x.id.String()}
	var steps []string
	short := map[bool]string{true: "t", false: "f"}
	for _, s := range x.steps {
		words := []string{s.key}
		if s.child != nil {
			words = append(words, s.child.id.String())
		}
		words = append(words, short[s.ended])
		if s.ended {
			words = append(words, s.result)
		}
		steps = append(steps, strings.Join(words, " "))
	}
	if len(steps) > 0 {
		parts = append(parts, strings.Join(steps, ", "))
	}
	if w := x.waits; w != nil {
		parts = append(parts, fmt.Sprint("waits ", w.step+1, " ", w.pending, " ", short[w.by != ""]))
	}
	if x.orphan {
		parts = append(parts, "orphan")
	}
	return strings.Join(parts, "; ")
}
