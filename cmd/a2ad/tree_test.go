package main

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// call makes the task of a lease call the agent words, as the step with this number.
func (w *world) call(l *tasks.Lease, seq int, key string) a2a.ID {
	w.Helper()
	child := db.NewTaskID()
	m := a2a.Message{Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "look it up"}}}
	_, err := w.store.Tasks.Append(w.Context(), l, tasks.Batch{ContextID: "c", Steps: []a2a.StepRecord{{
		Step: a2a.Step{Key: key, Name: "words"}, Seq: seq, Kind: a2a.StepCall, Child: child,
		Call: &a2a.Call{Key: key, Agent: "words", Message: m},
	}}})
	if err != nil {
		w.Fatal(err)
	}
	return child
}

// The tree has each called task below the one that has called it, in the order of the calls.
func TestTaskTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	l := w.claim()
	first, second := w.call(l, 1, "facts#1"), w.call(l, 2, "prices#1")
	inner := w.call(w.claim(), 1, "more#1") // made last, but below the first
	i := w.run(exitOK, "task", "show", "--tree", taskID)
	at := 0
	for _, line := range []string{
		"\n" + taskID + " ", "\n  " + first.String() + " ", "\n    " + inner.String() + " ",
		"\n  " + second.String() + " ",
	} {
		n := strings.Index(i.stdout[at:], line)
		if n < 0 {
			t.Fatalf("%q is missing, or in another place:\n%s", line, i.stdout)
		}
		at += n
	}
	got := rows[treeRow](t, w.run(exitOK, "task", "show", "--tree", "-o", "json", taskID))
	if len(got) != 4 || got[2].Depth != 2 || got[2].Key != "more#1" || got[3].State != "submitted" {
		t.Errorf("the tree is %+v", got)
	}
	i = w.run(exitOK, "task", "ls", "--roots", "-o", "json")
	if roots := rows[taskRow](t, i); len(roots) != 1 || roots[0].ID != taskID {
		t.Errorf("the tasks that no other has called are %+v", roots)
	}
	i = w.run(exitOK, "task", "show", first.String())
	for _, want := range []string{"called by  " + taskID, "more#1 (words), task " + inner.String()} {
		if !strings.Contains(i.stdout, want) {
			t.Errorf("%q is missing:\n%s", want, i.stdout)
		}
	}
}
