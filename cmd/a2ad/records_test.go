package main

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/term"
)

func TestStats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(oldTask, "bob", nil)
	w.complete()
	w.submit(taskID, "alice", nil)
	s := rows[stats](t, w.run(exitOK, "stats", "-o", "json"))[0]
	want := []statsTasks{{Agent: "words", State: "submitted", Tasks: 1}, {Agent: "words", State: "completed", Tasks: 1}}
	slices.SortFunc(s.Tasks, func(a, b statsTasks) int { return strings.Compare(b.State, a.State) })
	if diff := cmp.Diff(want, s.Tasks); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	if len(s.Queues) != 1 || s.Queues[0].Waiting != 1 || s.Database.Bytes == 0 {
		t.Errorf("%+v", s)
	}
	if i := w.run(exitOK, "stats"); !strings.Contains(i.stdout, "Queues\n") || !strings.Contains(i.stdout, "words") {
		t.Errorf("%s", i.stdout)
	}
}

// The operator sees which models the agents have used, of one task and of all.
func TestUsageIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	report := func(id, owner string, u a2a.Usage) {
		t.Helper()
		w.submit(id, owner, nil)
		b := tasks.Batch{
			Usage:  []a2a.Usage{u},
			Events: []a2a.Event{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}},
		}
		if _, err := w.store.Tasks.Append(t.Context(), w.claim(), b); err != nil {
			t.Fatal(err)
		}
	}
	report(oldTask, "bob", a2a.Usage{Model: "m1", Input: 1, Output: 2, Cached: 3, Reasoning: 4, Requests: 5})
	if _, err := w.store.Tasks.SumUsage(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	report(taskID, "alice", a2a.Usage{Model: "m2", Input: 100})
	today := time.Now().UTC().Format(time.DateOnly)
	m1 := usageRow{
		Agent: "words", Model: "m1", InputTokens: 1, OutputTokens: 2, CachedInputTokens: 3, ReasoningTokens: 4,
		Requests: 5,
	}
	m2 := usageRow{Agent: "words", Model: "m2", InputTokens: 100}
	alice := usageRow{Tenant: "acme", Owner: "alice", InputTokens: 100}
	bob := m1
	bob.Tenant, bob.Owner, bob.Agent, bob.Model = "acme", "bob", "", ""
	all := usageRow{
		Day: today, InputTokens: 101, OutputTokens: 2, CachedInputTokens: 3, ReasoningTokens: 4, Requests: 5,
	}
	for _, tt := range []struct {
		args []string
		want []usageRow
	}{
		{nil, []usageRow{m2, m1}},
		{[]string{"--since", "1h"}, []usageRow{m2, m1}},
		{[]string{"--since", "2100-01-01"}, nil},
		{[]string{"--by", "tenant,owner"}, []usageRow{alice, bob}},
		{[]string{"--by", "day"}, []usageRow{all}},
	} {
		got := rows[usageRow](t, w.run(exitOK, append([]string{"stats", "--usage", "-o", "json"}, tt.args...)...))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("stats --usage %v (-want +got):\n%s", tt.args, diff)
		}
	}
	if got := w.run(exitOK, "stats", "--usage").stdout; !strings.Contains(got, "words  m2") {
		t.Errorf("stats --usage shows\n%s", got)
	}
	show := w.run(exitOK, "task", "show", oldTask).stdout
	if !strings.Contains(show, "m1: input 1 (cached 3), output 2 (reasoning 4), requests 5") {
		t.Errorf("task show does not say what the task has used:\n%s", show)
	}
	w.run(exitUsage, "stats", "--by", "day")
	w.run(exitUsage, "stats", "--usage", "--by", "color")
}

// The operator sees which agent is unreachable, and that a task waits for it.
func TestUnreachableAgentIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	if err := w.store.Tasks.BeginOutage(t.Context(), "words", "connection refused", time.Minute); err != nil {
		t.Fatal(err)
	}
	s := rows[stats](t, w.run(exitOK, "stats", "-o", "json"))[0]
	if len(s.Unreachable) != 1 || s.Unreachable[0].Agent != "words" || s.Unreachable[0].Waiting != 1 ||
		s.Unreachable[0].Reason != "connection refused" || s.Unreachable[0].Since.IsZero() {
		t.Errorf("stats show %+v", s.Unreachable)
	}
	show := w.run(exitOK, "task", "show", taskID).stdout
	if !strings.Contains(show, "because its agent has been unreachable since") ||
		!strings.Contains(show, "0 probes: connection refused") {
		t.Errorf("task show does not say why the task waits:\n%s", show)
	}
	if err := w.store.Tasks.BeginOutage(t.Context(), "words", tasks.ReasonNoWorker, time.Minute); err != nil {
		t.Fatal(err)
	}
	if show := w.run(exitOK, "task", "show", taskID).stdout; !strings.Contains(show, "Z: no worker") {
		t.Errorf("task show counts probes of an agent without workers:\n%s", show)
	}
	w.complete()
	if show := w.run(exitOK, "task", "show", taskID).stdout; strings.Contains(show, "unreachable") {
		t.Errorf("task show says that a completed task waits:\n%s", show)
	}
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	created := rows[createdKey](t, w.run(exitOK, "apikey", "create", "-o", "json",
		"--tenant", "acme", "--owner", "ci", "--name", "laptop",
		"--scopes", "worker,tasks:read,worker", "--agents", "words,echo,words",
		"--expires-in", "12h", "--env", "test"))[0]
	if !strings.HasPrefix(created.Key, "a2ad_test_") || created.ExpiresAt == nil ||
		strings.Join(created.Scopes, " ") != "tasks:read worker" ||
		strings.Join(created.Agents, " ") != "echo words" {
		t.Errorf("%+v", created)
	}
	i := w.run(exitOK, "apikey", "create", "--tenant", "other", "--owner", "alice")
	if !strings.Contains(i.stdout, "a2ad_live_") || !strings.Contains(i.stderr, "cannot be shown again") {
		t.Errorf("%s%s", i.stdout, i.stderr)
	}
	listed := rows[keyRow](t, w.run(exitOK, "apikey", "ls", "--tenant", "acme", "-o", "json"))
	if len(listed) != 1 || listed[0].ID != created.ID || listed[0].Name != "laptop" || listed[0].RevokedAt != nil {
		t.Errorf("%+v", listed)
	}
	if all := rows[keyRow](t, w.run(exitOK, "apikey", "ls", "-o", "json")); len(all) != 2 {
		t.Errorf("%+v", all)
	}
	i = w.run(exitFailure, "apikey", "revoke", created.ID, "none")
	if i.stdout != created.ID+" revoked\n" || !strings.HasPrefix(i.stderr, "a2ad: key none: ") {
		t.Errorf("%s%s", i.stdout, i.stderr)
	}
	listed = rows[keyRow](t, w.run(exitOK, "apikey", "ls", "--tenant", "acme", "-o", "json"))
	if listed[0].RevokedAt == nil {
		t.Errorf("%+v", listed)
	}
}

func TestKeysRewrap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(exitUsage, "keys", "rewrap")
	w.env = append(w.env, "A2AD_KEYS="+seal.Generate("k2"))
	if i := w.run(exitOK, "keys", "rewrap"); i.stdout != "0 webhooks and keys encrypted with k2\n" {
		t.Errorf("%s", i.stdout)
	}
	if i := w.run(exitOK, "keys", "rewrap", "-o", "json"); i.stdout != `{"sealed":0,"key":"k2"}`+"\n" {
		t.Errorf("%s", i.stdout)
	}
}

func TestActions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	w.run(exitOK, "task", "cancel", taskID)
	w.run(exitOK, "apikey", "create", "--tenant", "other", "--owner", "ci")
	all := rows[actionRow](t, w.run(exitOK, "actions", "-o", "json"))
	if len(all) != 2 || all[0].Action != "key.create" || all[1].TaskID != taskID {
		t.Fatalf("%+v", all)
	}
	before := strconv.FormatInt(all[0].ID, 10)
	for _, tc := range []struct {
		args []string
		want int
	}{
		{[]string{"--action", "task.cancel"}, 1},
		{[]string{"--tenant", "other"}, 1},
		{[]string{"--actor", "operator"}, 2},
		{[]string{"--actor", "replica"}, 0},
		{[]string{"--before", before}, 1},
		{[]string{"--since", "1h"}, 2},
		{[]string{"--until", "1h"}, 0},
	} {
		got := rows[actionRow](t, w.run(exitOK, append([]string{"actions", "-o", "json"}, tc.args...)...))
		if len(got) != tc.want {
			t.Errorf("%v: %+v, want %d", tc.args, got, tc.want)
		}
	}
	if i := w.run(exitOK, "actions", "--limit", "1"); i.stderr != "next page: --before "+before+"\n" {
		t.Errorf("the next page is not named: %q", i.stderr)
	}
}

// TestOutputFailure checks that a full disk or a closed pipe is a failure.
func TestOutputFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(oldTask, "bob", nil)
	w.complete()
	w.submit(taskID, "alice", nil)
	for _, args := range [][]string{
		{"version"},
		{"version", "-o", "json"},
		{"task", "ls"},
		{"task", "ls", "-o", "json"},
		{"task", "show", oldTask, "-o", "json"},
		{"task", "watch", oldTask, "-o", "json"},
		{"apikey", "create", "--tenant", "t", "--owner", "o"},
		{"apikey", "ls"},
		{"task", "cancel", taskID}, {"task", "purge", "--yes", "--tenant", "acme", "--owner", "alice"},
	} {
		app := &App{Console: term.Console{Stdin: strings.NewReader(""), Stdout: fullDisk{}, Stderr: &bytes.Buffer{}}}
		err := runCommand(t.Context(), app, args, config.ReadEnviron(w.env))
		if code := finish(t.Context(), app, err); code != exitFailure {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }
