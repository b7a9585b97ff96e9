package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestTaskPurge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	w.submit(oldTask, "ann", nil)
	i := w.run(exitFailure, "task", "purge", "--yes", taskID, taskID, "x")
	if i.stdout != taskID+" purged\n" || strings.Count(i.stderr, "a2ad: task ") != 2 {
		t.Errorf("%s%s", i.stdout, i.stderr)
	}
	owner := []string{"task", "purge", "--yes", "--tenant", "acme", "--owner", "ann"}
	if i := w.run(exitOK, append(owner, "--context", "none")...); i.stdout != "0 tasks purged\n" {
		t.Errorf("%s", i.stdout)
	}
	i = w.run(exitOK, append(owner, "-o", "json")...)
	if i.stdout != `{"tenant":"acme","owner":"ann","purged":1}`+"\n" {
		t.Errorf("%s", i.stdout)
	}
	if i := w.run(exitOK, "task", "ls", "-o", "json"); i.stdout != "" {
		t.Errorf("left: %s", i.stdout)
	}
}

// TestPurgeAsks checks that a purge asks for confirmation, and that a script must pass --yes.
func TestPurgeAsks(t *testing.T) {
	t.Parallel()
	owner := []string{"task", "purge", "--tenant", "acme", "--owner", "ann"}
	for _, tc := range []struct {
		name, answer string
		asks         bool
		args         []string
		left         int
	}{
		{"yes", "y\n", true, owner, 1},
		{"no", "n\n", true, owner, 3},
		{"nothing", "\n", true, owner, 3},
		{"gone", "", true, owner, 3},
		{"script", "y\n", false, owner, 3},
		{"one", "yes\n", true, []string{"task", "purge", taskID}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.submit(taskID, "bob", nil)
			w.submit(oldTask, "ann", nil)
			w.submit("01938c1e-5b7a-7c3e-9d7a-1f2b3c4d5e70", "ann", nil)
			golden(t, "task-purge-ask-"+tc.name, screenful(t, t.Context(), func(app *App) {
				app.CanAsk, app.Stdin = tc.asks, strings.NewReader(tc.answer)
			}, w.env, tc.args...))
			if left := rows[taskRow](t, w.run(exitOK, "task", "ls", "-o", "json")); len(left) != tc.left {
				t.Errorf("%d tasks are left, want %d", len(left), tc.left)
			}
		})
	}
}

// unanswered is a terminal at which a person presses Ctrl-C instead of answering.
type unanswered struct {
	interrupt context.CancelFunc
	end       chan struct{}
}

func (u unanswered) Read([]byte) (int, error) {
	u.interrupt()
	<-u.end
	return 0, io.EOF
}

func TestPurgeIsInterruptedWhileItAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "bob", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in := unanswered{cancel, make(chan struct{})}
	defer close(in.end)
	golden(t, "task-purge-ask-interrupted", screenful(t, ctx, func(app *App) {
		app.CanAsk, app.Stdin = true, in
	}, w.env, "task", "purge", taskID))
	if left := rows[taskRow](t, w.run(exitOK, "task", "ls", "-o", "json")); len(left) != 1 {
		t.Errorf("%d tasks are left, want 1", len(left))
	}
}
