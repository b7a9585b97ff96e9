package main

import (
	"strings"
	"testing"
	"time"
)

const thirdTask = "01938c1e-5b7a-7c3e-9d7a-1f2b3c4d5e70"

// park submits a task, and parks it after its only attempt.
func (w *world) park(id, owner string, limit time.Duration) {
	w.Helper()
	w.submit(id, owner, nil)
	if err := w.store.Tasks.Park(w.Context(), w.claim(), "attempt 1 of 1: bad luck", limit); err != nil {
		w.Fatal(err)
	}
}

// parkedTasks returns the ids of the tasks that `a2ad task ls --parked` lists.
func (w *world) parkedTasks() string {
	w.Helper()
	var ids []string
	for _, r := range rows[taskRow](w.T, w.run(exitOK, "task", "ls", "--parked", "-o", "json")) {
		if r.Parked == nil || r.Parked.Reason != "attempt 1 of 1: bad luck" {
			w.Errorf("%+v", r)
		}
		ids = append(ids, r.ID)
	}
	return strings.Join(ids, " ")
}

func TestTaskResume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.park(oldTask, "bob", time.Hour)
	w.park(taskID, "alice", 0)
	w.submit(thirdTask, "alice", nil)
	if got := w.parkedTasks(); got != taskID+" "+oldTask {
		t.Errorf("parked are %s", got)
	}
	for id, want := range map[string]string{oldTask: " until ", taskID: ": attempt 1 of 1: bad luck"} {
		if i := w.run(exitOK, "task", "show", id); !strings.Contains(i.stdout, want) ||
			!strings.Contains(i.stdout, "working: parked: attempt 1 of 1: bad luck") {
			t.Errorf("%s is missing:\n%s", want, i.stdout)
		}
	}
	if i := w.run(exitOK, "task", "ls"); strings.Count(i.stdout, "working, parked") != 2 {
		t.Errorf("%s", i.stdout)
	}
	i := w.run(exitFailure, "task", "resume", oldTask, thirdTask, "x")
	if i.stdout != oldTask+" resumed\n" || !strings.Contains(i.stderr, "task "+thirdTask+" is not parked") {
		t.Errorf("%s%s", i.stdout, i.stderr)
	}
	i = w.run(exitOK, "task", "resume", "--reason", "fixed", "-o", "json", taskID)
	want := `{"id":"` + taskID + `","agent":"words","tenant":"acme","owner":"alice",` +
		`"parked":"attempt 1 of 1: bad luck"}`
	if i.stdout != want+"\n" {
		t.Errorf("%s, want %s", i.stdout, want)
	}
	acts := rows[actionRow](t, w.run(exitOK, "actions", "--task", taskID, "-o", "json"))
	if len(acts) != 1 || acts[0].Action != "task.resume" || !strings.Contains(string(acts[0].Detail), `"fixed"`) {
		t.Errorf("the audit log has %+v", acts)
	}
	if got := w.parkedTasks(); got != "" {
		t.Errorf("still parked are %s", got)
	}
	if i := w.run(exitOK, "task", "resume", "--all", "--yes"); i.stdout != "" || i.stderr != "0 tasks resumed\n" {
		t.Errorf("%s%s", i.stdout, i.stderr)
	}
}

// Filters select parked tasks of the tenant, owner or agent that they name, and no others.
func TestTaskResumeSelects(t *testing.T) {
	t.Parallel()
	const all = thirdTask + " " + taskID + " " + oldTask
	for _, tc := range []struct {
		name, answer string
		asks         bool
		args         []string
		left         string
	}{
		{"yes", "y\n", true, []string{"--agent", "words"}, ""},
		{"no", "n\n", true, []string{"--agent", "words"}, all},
		{"script", "", false, []string{"--all"}, all},
		{"owner", "", false, []string{"--tenant", "acme", "--owner", "ann", "--yes"}, taskID},
		{"tenant", "", false, []string{"--tenant", "other", "--yes"}, all},
		{"agent", "", false, []string{"--agent", "echo", "--yes"}, all},
		{"both", "", false, []string{"--agent", "echo", taskID}, all},
		{"none", "", false, nil, all},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.park(oldTask, "ann", 0)
			w.park(taskID, "bob", 0)
			w.park(thirdTask, "ann", 0)
			golden(t, "task-resume-"+tc.name, screenful(t, t.Context(), func(app *App) {
				app.CanAsk, app.Stdin = tc.asks, strings.NewReader(tc.answer)
			}, w.env, append([]string{"task", "resume"}, tc.args...)...))
			if got := w.parkedTasks(); got != tc.left {
				t.Errorf("left are %s, want %s", got, tc.left)
			}
		})
	}
}
