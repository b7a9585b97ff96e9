package store_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// order copies the order of the queues from the store to the model.
func (m *machine) order() {
	rows := m.list(m.rt)
	slices.SortFunc(rows, func(a, b operate.TaskRow) int { return a.ReadyAt.Compare(b.ReadyAt) })
	for _, r := range rows {
		for _, x := range m.tasks {
			if x.id == r.ID && x.ready > 0 && !x.later {
				m.clock++
				x.ready = m.clock
			}
		}
	}
}

// list reads all tasks of the machine.
func (m *machine) list(t *rapid.T) (rows []operate.TaskRow) {
	for _, agent := range m.agents {
		more, err := m.Operate.ListTasks(m.T.Context(), operate.TaskFilter{Agent: agent, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, more...)
	}
	return rows
}

// check compares with the model everything that operators and callers see of the tasks.
func (m *machine) check(t *rapid.T) {
	m.checkStates(t)
	for i, x := range m.tasks {
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
	m.checkCalls(t)
	m.checkUsage(t)
}

func (m *machine) checkStates(t *rapid.T) {
	rows := make(map[a2a.ID]operate.TaskRow)
	for _, r := range m.list(t) {
		rows[r.ID] = r
	}
	if len(rows) != len(m.tasks) {
		t.Fatalf("%d tasks, want %d", len(rows), len(m.tasks))
	}
	for i, x := range m.tasks {
		r := rows[x.id]
		got := fmt.Sprint(r.State, r.LastSeq, r.Attempt, r.Epoch, !r.ReadyAt.IsZero(), r.Worker != "")
		if want := fmt.Sprint(x.state, len(x.log), x.attempt, x.epoch, x.ready > 0, held(x)); got != want {
			t.Fatalf("task %d: state, seq, attempt, epoch, ready, leased = %s, want %s", i, got, want)
		}
	}
}
