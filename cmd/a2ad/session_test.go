package main

import (
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
)

func TestSessionCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, owner := range []string{"ann", "ann", "bob"} {
		err := w.store.Access.OpenSession(t.Context(), access.NewSession{
			Session: access.Session{Tenant: "acme", Owner: owner, Subject: owner, Scopes: []string{"operator:read"}},
			Token:   owner + time.Now().String(), Life: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if out := w.run(exitOK, "session", "ls").stdout; strings.Count(out, "acme/ann") != 2 ||
		!strings.Contains(out, "oidc bob") || !strings.Contains(out, "operator:read") {
		t.Errorf("session ls printed %s", out)
	}
	out := w.run(exitOK, "session", "revoke", "--tenant", "acme", "--owner", "ann", "--reason", "left").stdout
	if out != "2 sessions ended\n" {
		t.Errorf("session revoke printed %s", out)
	}
	id := strings.Fields(strings.Split(w.run(exitOK, "session", "ls").stdout, "\n")[1])[0]
	if out := w.run(exitOK, "session", "revoke", id).stdout; out != "1 session ended\n" {
		t.Errorf("session revoke printed %s", out)
	}
	if i := w.run(exitFailure, "session", "revoke", id); !strings.Contains(i.stderr, "no such session") {
		t.Errorf("session revoke said %s", i.stderr)
	}
}

func TestTaskAssign(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("0190a0b0-0000-7000-8000-000000000001", "ann", nil).String()
	if i := w.run(exitFailure, "task", "assign", id, "Carl"); !strings.Contains(i.stderr, "does not wait") {
		t.Errorf("a task that asks nothing: %s", i.stderr)
	}
	w.append(w.claim(), statusUpdate(a2a.StateInputRequired))
	if out := w.run(exitOK, "task", "assign", id, "Carl").stdout; out != id+" assigned to Carl\n" {
		t.Errorf("task assign printed %s", out)
	}
	if out := w.run(exitOK, "task", "ls", "-o", "json").stdout; !strings.Contains(out, `"assignee":"Carl"`) {
		t.Errorf("task ls printed %s", out)
	}
	if out := w.run(exitOK, "task", "assign", id, "--unassign").stdout; out != id+" unassigned\n" {
		t.Errorf("task assign printed %s", out)
	}
}
