package tasks_test

import (
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// The sweep deletes the attempts of tasks that ended long ago. All other attempts stay, and so do the tasks.
func TestSweepDeletesAttemptsOfTasksThatEndedLongAgo(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.AttemptsSwept = true
	ended := func(ago string) a2a.ID {
		l := f.RunningTask()
		f.Append(l, storetest.Status(a2a.StateCompleted, ""))
		f.Exec("UPDATE a2a.tasks SET status_at = clock_timestamp() - $2::interval WHERE id = $1",
			l.TaskID.String(), ago)
		return l.TaskID
	}
	old := []a2a.ID{ended("3 days"), ended("3 days"), ended("3 days")}
	lately, running := ended("1 day"), f.RunningTask().TaskID
	f.Exec("UPDATE a2a.tasks SET status_at = clock_timestamp() - interval '3 days' WHERE id = $1", running.String())
	f.Exec(`
		INSERT INTO a2a.task_attempts
		SELECT task_id, epoch - 1, 1, worker, claimed_at, claimed_at, 'retry' FROM a2a.task_attempts
		WHERE task_id = ANY ($1::uuid[])`, []string{old[0].String(), running.String()})
	age := func(table, id string) { // an id contains the time at which the task was made
		f.Exec("UPDATE a2a." + table + " SET " + id + " = ('01000000' || substr(" + id + "::text, 9))::uuid")
	}
	age("tasks", "id")
	age("task_attempts", "task_id")
	w := tasks.AttemptSweep{Keep: 48 * time.Hour, Batch: 2}
	sum, steps := 0, 0
	for more := true; more; steps++ {
		n, again, err := f.Tasks.SweepAttempts(t.Context(), &w)
		if err != nil {
			t.Fatal(err)
		}
		sum, more = sum+n, again
	}
	if sum != 4 || steps < 4 {
		t.Errorf("%d attempts deleted in %d steps, want 4 of 7 in at least 4 steps", sum, steps)
	}
	left := f.Column(`
		SELECT right(task_id::text, 12) || ' ' || count(*) FROM a2a.task_attempts
		GROUP BY task_id ORDER BY count(*)`)
	tail := func(id a2a.ID) string { s := id.String(); return s[len(s)-12:] }
	if len(left) != 2 || left[0] != tail(lately)+" 1" || left[1] != tail(running)+" 2" {
		t.Errorf("attempts left: %v, want 1 of %s and 2 of %s", left, lately, running)
	}
	if n := storetest.Value[int](f, "SELECT count(*) FROM a2a.tasks"); n != 5 {
		t.Errorf("%d tasks are left, want all 5", n)
	}
	swept := f.Tasks.Counts().Swept[db.SweepOfAttempts]
	if swept.Removed != 4 || time.Since(swept.At) > time.Hour {
		t.Errorf("counted %+v, want 4 removed", swept)
	}
	again := tasks.AttemptSweep{Keep: 48 * time.Hour, Batch: 10}
	if n, _, err := f.Tasks.SweepAttempts(t.Context(), &again); n != 0 || err != nil {
		t.Errorf("a second sweep deleted %d, %v, want none", n, err)
	}
}

// An imported task has a random id, which says nothing about its age.
func TestSweepDeletesAttemptsOfImportedTasks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.AttemptsSwept = true
	var left []string
	for i, id := range []string{"80000000", "f0000000", "f0000001"} {
		l := f.RunningTask()
		f.Append(l, storetest.Status(a2a.StateCompleted, ""))
		imported := id + l.TaskID.String()[8:]
		f.Exec("UPDATE a2a.tasks SET id = $2, status_at = clock_timestamp() - $3::interval WHERE id = $1",
			l.TaskID.String(), imported, []string{"3 days", "1 hour", "3 days"}[i])
		f.Exec("UPDATE a2a.task_attempts SET task_id = $2 WHERE task_id = $1", l.TaskID.String(), imported)
		if i == 1 {
			left = append(left, imported)
		}
	}
	w := tasks.AttemptSweep{Keep: 48 * time.Hour, Batch: 1}
	sum := 0
	for more := true; more; {
		n, again, err := f.Tasks.SweepAttempts(t.Context(), &w)
		if err != nil {
			t.Fatal(err)
		}
		sum, more = sum+n, again
	}
	got := f.Column("SELECT task_id::text FROM a2a.task_attempts")
	if sum != 2 || !slices.Equal(got, left) {
		t.Errorf("%d deleted, and those of %v left, want 2 and %v", sum, got, left)
	}
}
