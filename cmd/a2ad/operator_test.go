package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// world is a database with tasks, and the commands on it.
type world struct {
	*testing.T
	store *store.Store
	env   []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pg := storetest.New(t)
	s, err := openStore(t.Context(), pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &world{t, s, []string{"A2AD_DATABASE_URL=" + pg.URL}}
}

// submit makes a task of agent words with a given id. An owner with a webhook has one.
func (w *world) submit(id, owner string, hook *webhooks.NewWebhook) a2a.ID {
	w.Helper()
	task, err := a2a.ParseID(id)
	if err != nil {
		w.Fatal(err)
	}
	made, err := w.store.Tasks.Submit(w.Context(), tasks.Submission{
		Caller: db.Caller{Tenant: "acme", Owner: owner}, Agent: "words", NewTask: task, ContextID: "c-" + owner, Push: hook,
		Message: a2a.Message{ID: "m-" + id, Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}},
	})
	if err != nil {
		w.Fatal(err)
	}
	return made.Task
}

// claim gives the oldest queued task of agent words to a worker.
func (w *world) claim() *tasks.Lease {
	w.Helper()
	leases, err := w.store.Tasks.NewClaimer().Claim(w.Context(), "words", 1, time.Minute, time.Hour)
	if err != nil || len(leases) != 1 {
		w.Fatalf("claim: %d leases, %v", len(leases), err)
	}
	return &leases[0]
}

func (w *world) append(lease *tasks.Lease, events ...a2a.Event) {
	w.Helper()
	if _, err := w.store.Tasks.Append(w.Context(), lease, tasks.Batch{Events: events}); err != nil {
		w.Fatal(err)
	}
}

// complete runs the oldest queued task: it says "two" in an artifact and completes.
func (w *world) complete() {
	w.Helper()
	artifact := a2a.Artifact{ID: "count", Parts: []a2a.Part{{Kind: a2a.PartText, Text: "two\n"}}}
	w.append(w.claim(), &a2a.ArtifactUpdate{Artifact: artifact, LastChunk: true}, statusUpdate(a2a.StateCompleted))
}

func statusUpdate(s a2a.State) *a2a.StatusUpdate {
	return &a2a.StatusUpdate{Status: a2a.Status{State: s}}
}

// run runs a command and checks its exit code.
func (w *world) run(code int, args ...string) *invocation {
	w.Helper()
	i := &invocation{env: w.env}
	if i.run(w.T, args...); i.code != code {
		w.Errorf("a2ad %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), i.code, code, i.stdout, i.stderr)
	}
	return i
}

// rows reads lines of JSON.
func rows[R any](t *testing.T, i *invocation) (list []R) {
	t.Helper()
	for line := range strings.Lines(i.stdout) {
		var row R
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, row)
	}
	return list
}

var (
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`)
	stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:\d\d)`)
	uids   = regexp.MustCompile(`"id":"(\d+)-[0-9a-f]{8}"`)
)

// steady replaces times and the uids of events.
func steady(text string) string {
	text = times.ReplaceAllString(text, "2026-01-02 03:04:05Z")
	text = stamps.ReplaceAllString(text, "2026-01-02T03:04:05Z")
	return uids.ReplaceAllString(text, `"id":"$1-aaaaaaaa"`)
}

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
	if r := page[0]; r.State != "completed" || r.Owner != "bob" || r.Agent != "words" || r.ContextID != "c-bob" || r.Events < 3 {
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
	if d.State != "completed" || len(d.Attempts) != 1 || d.Attempts[0].Outcome == "" || len(d.Timeline) < 4 || len(d.Task) < 100 {
		t.Errorf("%+v", d)
	}
	i := w.run(exitOK, "task", "show", taskID)
	for _, want := range []string{"acme/alice", "Timeline", "message", "attempt", "Messages", "user: hello", "Artifacts", "count: two"} {
		if !strings.Contains(i.stdout, want) {
			t.Errorf("%s is missing:\n%s", want, i.stdout)
		}
	}
	if i := w.run(exitFailure, "task", "show", "x"); i.stderr != "a2ad: task x: not a task id\n" {
		t.Errorf("no id: %s", i.stderr)
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
	if i.stdout != taskID+" canceled\n" || strings.Count(i.stderr, "a2ad: task ") != 2 || !strings.Contains(i.stderr, oldTask) {
		t.Errorf("%s%s", i.stdout, i.stderr)
	}
	w.submit("01938c1e-5b7a-7c3e-9d7a-1f2b3c4d5e70", "alice", nil)
	i = w.run(exitOK, "task", "cancel", "-o", "json", "01938c1e-5b7a-7c3e-9d7a-1f2b3c4d5e70")
	if r := rows[taskRow](t, i); len(r) != 1 || r[0].State != "canceled" {
		t.Errorf("%s", i.stdout)
	}
	acts := rows[actionRow](t, w.run(exitOK, "actions", "--task", taskID, "-o", "json"))
	if len(acts) != 1 || acts[0].Action != "task.cancel" || !strings.HasPrefix(acts[0].Actor, "operator ") || acts[0].Owner != "alice" {
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
	if len(strings.Fields(i.stdout)) != 1 || !strings.Contains(i.stderr, "a2ad: task "+oldTask) {
		t.Fatalf("%s%s", i.stdout, i.stderr)
	}
	r := rows[taskRow](t, w.run(exitOK, "task", "ls", "--id", strings.TrimSpace(i.stdout), "-o", "json"))
	if len(r) != 1 || r[0].State != "submitted" || r[0].Owner != "alice" || r[0].ContextID != "c-alice" {
		t.Errorf("%+v", r)
	}
	again := rows[retriedTask](t, w.run(exitOK, "task", "retry", taskID, "-o", "json"))
	if len(again) != 1 || again[0].Of != taskID || again[0].State != "submitted" || again[0].ContextID != "c-alice" {
		t.Errorf("%+v", again)
	}
}

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
	if i := w.run(exitOK, append(owner, "-o", "json")...); i.stdout != `{"tenant":"acme","owner":"ann","purged":1}`+"\n" {
		t.Errorf("%s", i.stdout)
	}
	if i := w.run(exitOK, "task", "ls", "-o", "json"); i.stdout != "" {
		t.Errorf("left: %s", i.stdout)
	}
}

// TestPurgeAsks checks that a purge needs a yes, and that a script must pass --yes.
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

// scriptedTerminal is a terminal. When a text appears, after the texts before it, the next step is taken.
type scriptedTerminal struct {
	seen  bytes.Buffer
	from  int // where the next text may begin
	steps []step
}

type step struct {
	text string
	do   func()
}

func (s *scriptedTerminal) Write(p []byte) (int, error) {
	n, err := s.seen.Write(p)
	for len(s.steps) > 0 {
		next := s.steps[0]
		at := strings.Index(s.seen.String()[s.from:], next.text)
		if at < 0 {
			break
		}
		s.from += at + len(next.text)
		s.steps = s.steps[1:]
		next.do()
	}
	return n, err
}

func TestTaskWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lease *tasks.Lease
	chunk := func(text string, more bool) *a2a.ArtifactUpdate {
		parts := []a2a.Part{{Kind: a2a.PartText, Text: text}}
		return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "count", Parts: parts}, Append: more}
	}
	screen := &scriptedTerminal{steps: []step{
		{"submitted", func() { lease = w.claim(); w.append(lease, chunk("one ", false)) }},
		{"one ", func() { w.append(lease, chunk("two\n", true)) }},
		{"two\n", cancel},
	}}
	onScreen := func(app *App) { app.Stdout, app.Stderr = screen, screen }
	got := screenful(t, ctx, onScreen, w.env, "task", "watch", taskID)
	golden(t, "task-watch-interrupted", screen.seen.String()+got)
	w.append(lease, statusUpdate(a2a.StateFailed))
	for name, args := range map[string][]string{
		"task-watch": {taskID}, "task-watch-after": {taskID, "--after", "3"}, "task-watch-end": {taskID, "--after", "99"},
		"task-watch-json": {taskID, "-o", "json", "--after", "2"}, "task-watch-none": {oldTask}, "task-watch-bad": {"x"},
	} {
		golden(t, name, steady(screenful(t, t.Context(), nil, w.env, append([]string{"task", "watch"}, args...)...)))
	}
}

// TestTaskLsWatch lists again until it is interrupted: for a program only what changed, and on a
// terminal as many of the newest tasks as fit.
func TestTaskLsWatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		terminal bool
		lines    int
		args     []string
	}{{"terminal", true, 0, nil}, {"low", true, 3, nil}, {"pipe", false, 0, nil}, {"json", false, 0, []string{"-o", "json"}}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.submit(oldTask, "bob", nil)
			w.complete()
			w.submit(taskID, "alice", nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			screen := &scriptedTerminal{steps: []step{{taskID, w.complete}, {taskID, cancel}}}
			got := screenful(t, ctx, func(app *App) {
				app.Terminal, app.Lines, app.Stdout, app.Stderr = tc.terminal, tc.lines, screen, screen
			}, w.env, append([]string{"task", "ls", "--watch", "--every", "100ms"}, tc.args...)...)
			golden(t, "task-ls-watch-"+tc.name, steady(screen.seen.String()+got))
		})
	}
}

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

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	created := rows[createdKey](t, w.run(exitOK, "apikey", "create", "--tenant", "acme", "--owner", "ci", "--name", "laptop",
		"--scopes", "worker,tasks:read,worker", "--agents", "words,echo,words", "--expires-in", "12h", "--env", "test", "-o", "json"))[0]
	if !strings.HasPrefix(created.Key, "a2ad_test_") || created.ExpiresAt == nil || strings.Join(created.Scopes, " ") != "tasks:read worker" ||
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

func TestWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const origin = "https://hooks.example:443"
	w.submit(oldTask, "bob", nil)
	w.submit(taskID, "alice", &webhooks.NewWebhook{
		ConfigID: "default", URL: "https://hooks.example/a2a", Origin: origin, Version: a2a.PushV10,
		Seal: func(a2a.ID) (token, credentials []byte, err error) { return nil, nil, nil },
	})
	w.complete()
	list := rows[pushRow](t, w.run(exitOK, "push", "ls", "-o", "json"))
	if len(list) != 1 || list[0].TaskID != taskID || list[0].State != "active" || list[0].Origin != origin {
		t.Fatalf("%+v", list)
	}
	id := list[0].ID
	for _, args := range [][]string{{"--state", "dead"}, {"--owner", "bob"}, {"--origin", "https://other:443"}, {"--task", oldTask}, {"--before", id}} {
		if i := w.run(exitOK, append([]string{"push", "ls", "-o", "json"}, args...)...); i.stdout != "" {
			t.Errorf("%v: %s", args, i.stdout)
		}
	}
	if i := w.run(exitOK, "push", "ls", "--limit", "1"); i.stderr != "next page: --before "+id+"\n" {
		t.Errorf("the next page is not named: %q", i.stderr)
	}
	if i := w.run(exitOK, "push", "attempts", id, "-o", "json"); i.stdout != "" {
		t.Errorf("attempts: %s", i.stdout)
	}
	if i := w.run(exitFailure, "push", "attempts", "x"); i.stderr != "a2ad: webhook x: not the id of a webhook\n" {
		t.Errorf("%s", i.stderr)
	}
	if i := w.run(exitOK, "push", "replay", id, "--after", "0", "-o", "json"); i.stdout != `{"id":"`+id+`","replayed":true}`+"\n" {
		t.Errorf("%s", i.stdout)
	}
	if i := w.run(exitFailure, "push", "replay", id, "x"); i.stdout != id+" is delivered again\n" || !strings.Contains(i.stderr, "webhook x") {
		t.Errorf("%s%s", i.stdout, i.stderr)
	}
	enable := []string{"push", "enable", "--tenant", "acme", origin}
	if i := w.run(exitFailure, enable...); !strings.Contains(i.stderr, "is already enabled") {
		t.Errorf("%s", i.stderr)
	}
	change := `INSERT INTO a2a.push_destinations (tenant, origin, fails, disabled_at) VALUES ('acme', '` + origin + `', 9, now())
		ON CONFLICT (tenant, origin) DO UPDATE SET disabled_at = now()`
	databaseSetting(t, strings.TrimPrefix(w.env[0], "A2AD_DATABASE_URL="), change)
	if r := rows[pushRow](t, w.run(exitOK, "push", "ls", "-o", "json")); r[0].show() != "destination disabled" {
		t.Errorf("%+v", r)
	}
	if i := w.run(exitOK, append(enable, "-o", "json")...); i.stdout != `{"tenant":"acme","origin":"`+origin+`","enabled":true}`+"\n" {
		t.Errorf("%s", i.stdout)
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
		{[]string{"--action", "task.cancel"}, 1}, {[]string{"--tenant", "other"}, 1}, {[]string{"--actor", "operator"}, 2},
		{[]string{"--actor", "replica"}, 0}, {[]string{"--before", before}, 1}, {[]string{"--since", "1h"}, 2}, {[]string{"--until", "1h"}, 0},
	} {
		if got := rows[actionRow](t, w.run(exitOK, append([]string{"actions", "-o", "json"}, tc.args...)...)); len(got) != tc.want {
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
		{"version"}, {"version", "-o", "json"}, {"task", "ls"}, {"task", "ls", "-o", "json"}, {"task", "show", oldTask, "-o", "json"},
		{"task", "watch", oldTask, "-o", "json"}, {"apikey", "create", "--tenant", "t", "--owner", "o"}, {"apikey", "ls"},
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

// TestStateNames checks that task ls accepts every state.
func TestStateNames(t *testing.T) {
	t.Parallel()
	var i invocation
	i.run(t, "task", "ls", "--state", "x")
	for s := a2a.StateNone; s < 200; s++ {
		if s.Valid() && !strings.Contains(i.stderr, `"`+s.String()+`"`) {
			t.Errorf("%s is missing: %s", s, i.stderr)
		}
	}
}
