package tasks_test

import (
	"fmt"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// ends are the ways in which a task with artifacts ends.
func ends(f *storetest.Fixture) map[string]func(l *tasks.Lease) {
	return map[string]func(l *tasks.Lease){
		"completed": func(l *tasks.Lease) { f.Append(l, storetest.Status(a2a.StateCompleted)) },
		"with the last chunk": func(l *tasks.Lease) {
			f.Append(l, storetest.Chunk("log", "the last"), storetest.Status(a2a.StateFailed, "why"))
		},
		"canceled": func(l *tasks.Lease) {
			if _, err := f.Tasks.Cancel(f.T.Context(), storetest.Ann, storetest.Agent, l.TaskID); err != nil {
				f.T.Fatal(err)
			}
		},
		"lost": func(l *tasks.Lease) {
			f.Expire(l.TaskID)
			policies := []tasks.Policy{{Agent: storetest.Agent, Fate: "fail", MaxAttempts: 1}}
			n, err := f.Tasks.Rescue(f.T.Context(), policies, tasks.Policy{MaxAttempts: 1}, 10)
			if err != nil || n != 1 {
				f.T.Fatalf("Rescue = %d, %v", n, err)
			}
		},
	}
}

// Artifacts read the same, whether they come from the log or were folded when the task ended.
func TestArtifactsReadTheSameFoldedOrNot(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	ends := ends(f)
	// Two events come before the chunks and one after them. The limit is 32 events.
	for _, chunks := range []int{1, 3, 27, 28, 29, 30, 31, 90} {
		for name, end := range ends {
			l := f.RunningTask()
			var want []a2a.Artifact
			for n := range chunks {
				u := storetest.Chunk("log", fmt.Sprint(n))
				switch {
				case n%7 == 3:
					u = storetest.Chunk("other", fmt.Sprint(n), "and more")
				case n == 20:
					u = storetest.Artifact("log", "again")
				}
				f.Append(l, u)
				want = a2a.Fold(want, u)
			}
			end(l)
			if name == "with the last chunk" {
				want = a2a.Fold(want, storetest.Chunk("log", "the last"))
			}
			task := f.Snapshot(l.TaskID)
			if !task.Status.State.Terminal() {
				t.Fatalf("%d chunks, %s: the task is %s", chunks, name, task.Status.State)
			}
			storetest.Same(t, fmt.Sprintf("artifacts of %d chunks, %s", chunks, name), want, task.Artifacts)
			folded := storetest.Value[bool](f, `SELECT folded FROM a2a.tasks WHERE id = $1`, l.TaskID.String())
			if long := task.LastSeq > 32; folded != long {
				t.Errorf("%d chunks, %s: folded is %t with %d events", chunks, name, folded, task.LastSeq)
			}
		}
	}
	f.Invariants()
}

// Folding a very large log would delay the end of its task. It is folded when its events are pruned.
func TestLargeLogIsFoldedWhenItIsPruned(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for name, end := range ends(f) {
		l := f.RunningTask()
		for n := range 40 {
			f.Append(l, storetest.Chunk("log", fmt.Sprint(n)))
		}
		f.Exec(`UPDATE a2a.tasks SET bytes = 17 << 20 WHERE id = $1`, l.TaskID.String())
		l.Bytes = 17 << 20
		end(l)
		if storetest.Value[bool](f, `SELECT folded FROM a2a.tasks WHERE id = $1`, l.TaskID.String()) {
			t.Errorf("%s: the large log was folded at the end of the task", name)
		}
		before := f.Snapshot(l.TaskID)
		if len(before.Artifacts) != 1 || len(before.Artifacts[0].Parts) < 40 || !before.Status.State.Terminal() {
			t.Errorf("%s: the task is %s with %d artifacts", name, before.Status.State, len(before.Artifacts))
		}
		if got := retire(f, 10, always(tasks.Prune)); got.Pruned != 1 {
			t.Errorf("%s: %+v", name, got)
		}
		storetest.Same(t, name+": pruned", before, f.Snapshot(l.TaskID))
	}
	f.Invariants()
}
