package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestTaskLs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(oldTask, "bob", nil)
	w.complete()
	w.submit(taskID, "alice", nil)
	for _, tc := range []struct {
		args []string
		want string // ids
	}{
		{nil, taskID + " " + oldTask},
		{[]string{"--tenant", "acme"}, taskID + " " + oldTask},
		{[]string{"--tenant", "other"}, ""},
		{[]string{"--owner", "bob"}, oldTask},
		{[]string{"--agent", "words", "--context", "c-alice"}, taskID},
		{[]string{"--agent", "echo"}, ""},
		{[]string{"--state", "completed,failed"}, oldTask},
		{[]string{"--id", oldTask[:16]}, oldTask},
		{[]string{"--before", taskID}, oldTask},
		{[]string{"--limit", "1"}, taskID},
		{[]string{"--since", "2024-11-01", "--until", "2024-11-11T00:00:00Z"}, ""},
	} {
		var ids []string
		for _, r := range rows[taskRow](t, w.run(exitOK, append([]string{"task", "ls", "-o", "json"}, tc.args...)...)) {
			ids = append(ids, r.ID)
		}
		if got := strings.Join(ids, " "); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.args, got, tc.want)
		}
	}
	if i := w.run(exitOK, "task", "ls", "--limit", "1"); i.stderr != "next page: --before "+taskID+"\n" {
		t.Errorf("the next page is not named: %q", i.stderr)
	}
	w.run(exitFailure, "task", "ls", "--before", "x")
	page := rows[taskRow](t, w.run(exitOK, "task", "ls", "--owner", "bob", "-o", "json"))
	if r := page[0]; r.State != "completed" || r.Owner != "bob" || r.Agent != "words" || r.ContextID != "c-bob" ||
		r.Events < 3 {
		t.Errorf("%+v", r)
	}
}

func TestTaskShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	if i := w.run(exitOK, "task", "show", taskID); !strings.Contains(i.stdout, "queued") {
		t.Errorf("a queued task:\n%s", i.stdout)
	}
	w.complete()
	d := rows[struct {
		taskDetail
		Task json.RawMessage `json:"task"`
	}](t, w.run(exitOK, "task", "show", taskID, "-o", "json"))[0]
	if d.State != "completed" || len(d.Attempts) != 1 || d.Attempts[0].Outcome == "" || len(d.Timeline) < 4 ||
		len(d.Task) < 100 {
		t.Errorf("%+v", d)
	}
	i := w.run(exitOK, "task", "show", taskID)
	for _, want := range []string{"acme/alice", "Timeline", "message", "attempt", "Messages", "user: hello",
		"Artifacts", "count: two"} {
		if !strings.Contains(i.stdout, want) {
			t.Errorf("%s is missing:\n%s", want, i.stdout)
		}
	}
	if i := w.run(exitFailure, "task", "show", "x"); i.stderr != "a2ad: task x: task not found\n" {
		t.Errorf("no id: %s", i.stderr)
	}
	if i := w.run(exitOK, "task", "show", taskID[:12]); !strings.Contains(i.stdout, taskID) {
		t.Errorf("by the beginning of its id: %s", i.stdout)
	}
	if i := w.run(exitFailure, "task", "show", oldTask); !strings.Contains(i.stderr, oldTask) {
		t.Errorf("no task: %s", i.stderr)
	}
}

func TestTaskCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(oldTask, "bob", nil)
	w.complete()
	w.submit(taskID, "alice", nil)
	i := w.run(exitFailure, "task", "cancel", oldTask, taskID, "x")
	if i.stdout != taskID+" canceled\n" || strings.Count(i.stderr, "a2ad: task ") != 2 ||
		!strings.Contains(i.stderr, oldTask) {
		t.Errorf("%s%s", i.stdout, i.stderr)
	}
	w.submit("01938c1e-5b7a-7c3e-9d7a-1f2b3c4d5e70", "alice", nil)
	i = w.run(exitOK, "task", "cancel", "-o", "json", "01938c1e-5b7a-7c3e-9d7a-1f2b3c4d5e70")
	if r := rows[taskRow](t, i); len(r) != 1 || r[0].State != "canceled" {
		t.Errorf("%s", i.stdout)
	}
	acts := rows[actionRow](t, w.run(exitOK, "actions", "--task", taskID, "-o", "json"))
	if len(acts) != 1 || acts[0].Action != "task.cancel" || !strings.HasPrefix(acts[0].Actor, "operator ") ||
		acts[0].Owner != "alice" {
		t.Errorf("the audit log has %+v", acts)
	}
}

func TestTaskRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(oldTask, "bob", nil)
	w.complete()
	w.submit(taskID, "alice", nil)
	w.run(exitOK, "task", "cancel", taskID)
	i := w.run(exitFailure, "task", "retry", oldTask, taskID)
	words := strings.Fields(i.stdout)
	if len(words) != 3 || words[0] != taskID || words[1] != "→" || !strings.Contains(i.stderr, "a2ad: task "+oldTask) {
		t.Fatalf("%s%s", i.stdout, i.stderr)
	}
	r := rows[taskRow](t, w.run(exitOK, "task", "ls", "--id", words[2], "-o", "json"))
	if len(r) != 1 || r[0].State != "submitted" || r[0].Owner != "alice" || r[0].ContextID != "c-alice" {
		t.Errorf("%+v", r)
	}
	if i := w.run(exitOK, "task", "show", taskID); !strings.Contains(i.stdout, "retried as  "+words[2]) {
		t.Errorf("the old task does not name the new one:\n%s", i.stdout)
	}
	if i := w.run(exitOK, "task", "show", words[2]); !strings.Contains(i.stdout, "retry of    "+taskID) &&
		!strings.Contains(i.stdout, "retry of  "+taskID) {
		t.Errorf("the new task does not name the old one:\n%s", i.stdout)
	}
	again := rows[retriedTask](t, w.run(exitOK, "task", "retry", taskID, "-o", "json"))
	if len(again) != 1 || again[0].Of != taskID || again[0].State != "submitted" || again[0].ContextID != "c-alice" {
		t.Errorf("%+v", again)
	}
}

// TestListsOfTasksSayWhy: the error of the newest attempt and questions are shown, cut unless the list is wide.
func TestListsOfTasksSayWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	const why = "the upstream server answered 502 Bad Gateway to the third request"
	if err := w.store.Tasks.Retry(t.Context(), w.claim(), why, time.Hour); err != nil {
		t.Fatal(err)
	}
	const short = "the upstream server answered 502 Bad Gateway to the third r…"
	if i := w.run(exitOK, "task", "ls"); !strings.Contains(i.stdout, short) {
		t.Errorf("%s", i.stdout)
	}
	const asks = "Refund order 1234?"
	w.submit(oldTask, "bob", nil)
	if _, err := w.store.Tasks.Append(t.Context(), w.claim(), storetest.Batch(
		storetest.Status(a2a.StateInputRequired, asks))); err != nil {
		t.Fatal(err)
	}
	if i := w.run(exitOK, "task", "ls", "--state", "TASK_STATE_INPUT_REQUIRED"); !strings.Contains(i.stdout, asks) {
		t.Errorf("the question is missing:\n%s", i.stdout)
	}
	i := w.run(exitOK, "task", "ls", "--wide")
	for _, want := range []string{why, asks, "AGE", "c-alice"} {
		if !strings.Contains(i.stdout, want) {
			t.Errorf("%s is missing:\n%s", want, i.stdout)
		}
	}
}

// TestStateNames checks that task ls accepts every state.
func TestStateNames(t *testing.T) {
	t.Parallel()
	var i invocation
	i.run(t, "task", "ls", "--state", "x")
	for s := a2a.StateNone; s < 200; s++ {
		if s.Valid() && !strings.Contains(i.stderr, " "+s.String()) {
			t.Errorf("%s is missing: %s", s, i.stderr)
		}
	}
}
