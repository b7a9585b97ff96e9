package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/term"
)

// fakeOperator stands where the database will be.
type fakeOperator struct {
	filter taskFilter
	purged []purgeFilter
	lists  int    // after so many lists, if it is not 0, stop is called
	stop   func() // or nil
	key    keySpec
	closed bool
	hang   context.CancelFunc // Watch cancels and waits
}

var someTime = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

func (f *fakeOperator) rows() []taskRow {
	lease := someTime.Add(30 * time.Second)
	return []taskRow{
		{
			ID: taskID, State: "working", Agent: "words", Tenant: "acme", Owner: "alice", ContextID: "c1", CreatedAt: someTime, UpdatedAt: someTime.Add(time.Second),
			Events: 12, Attempt: 2, Epoch: 3, Worker: "replica-1", LeaseUntil: &lease,
		},
		{
			ID: oldTask, State: "completed", Agent: "echo", Tenant: "acme", Owner: "bob\tthe\x1b[31mbuilder", ContextID: "c2", CreatedAt: someTime, UpdatedAt: someTime,
			Events: 3, Epoch: 1,
		},
	}
}

func (f *fakeOperator) Tasks(_ context.Context, filter taskFilter) ([]taskRow, error) {
	f.filter = filter
	rows := f.rows()
	if f.lists > 0 {
		if f.lists--; f.lists == 0 {
			f.stop()
		}
		rows[0].Events += int64(-f.lists) // of the newest task alone
	}
	return rows[:min(len(rows), filter.Limit)], nil
}

var errNoTask = errors.New("there is no such task")

func (f *fakeOperator) snapshot() a2a.Task {
	id, _ := a2a.ParseID(taskID)
	text := func(s string) []a2a.Part { return []a2a.Part{{Kind: a2a.PartText, Text: s}} }
	return a2a.Task{
		ID: id, Agent: "words", ContextID: "c1",
		Status:    a2a.Status{State: a2a.StateWorking, Message: &a2a.Message{Role: a2a.RoleAgent, Parts: text("counting")}},
		History:   []a2a.Message{{Role: a2a.RoleUser, Parts: append(text("count\nthese"), a2a.Part{Kind: a2a.PartFile, Filename: "a.txt", MediaType: "text/plain"})}},
		Artifacts: []a2a.Artifact{{ID: "count", Parts: text("2\n")}, {ID: "x", Name: "list", Parts: []a2a.Part{{Kind: a2a.PartData, Data: a2a.Raw(`{"n": 1}`)}}}},
	}
}

func (f *fakeOperator) Task(_ context.Context, id string) (taskDetail, error) {
	if id != taskID {
		return taskDetail{}, errNoTask
	}
	end, status := someTime.Add(time.Second), func(s a2a.State, text string) a2a.Event {
		u := &a2a.StatusUpdate{Status: a2a.Status{State: s}}
		if text != "" {
			u.Status.Message = &a2a.Message{Role: a2a.RoleAgent, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}
		}
		return u
	}
	chunk := &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "count"}}
	later := func(ms int) time.Time { return someTime.Add(time.Duration(ms) * time.Millisecond) }
	happened := &store.Timeline{
		Events: []store.Logged{
			{Seq: 1, At: someTime, Source: store.SourceCaller, Event: status(a2a.StateSubmitted, "")},
			{Seq: 2, At: later(3), Source: store.SourceWorker, Worker: "replica-0", Epoch: 1, Event: status(a2a.StateWorking, "")},
			{Seq: 3, At: later(900), Source: store.SourceServer, Event: &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}, Metadata: a2a.Raw(`{"a2ad/attempt":2,"a2ad/reason":"the worker was lost"}`)}},
			{Seq: 4, At: later(1100), Source: store.SourceWorker, Worker: "replica-1", Epoch: 3, Event: chunk, Bytes: 2000},
			{Seq: 5, At: later(1200), Source: store.SourceWorker, Worker: "replica-1", Epoch: 3, Event: chunk, Bytes: 200},
			{Seq: 6, At: later(1300), Source: store.SourceWorker, Worker: "replica-1", Epoch: 3, Event: status(a2a.StateWorking, strings.Repeat("counting\n", 20))},
		},
		Messages: []store.Said{
			{Seq: 1, AtSeq: 1, Message: a2a.Message{Role: a2a.RoleUser, Parts: f.snapshot().History[0].Parts}},
			{Seq: 2, AtSeq: 6, Message: a2a.Message{Role: a2a.RoleAgent}},
			{Seq: 3, AtSeq: 7, Message: a2a.Message{Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "and these"}}}},
		},
		Attempts: []store.Attempt{
			{Epoch: 1, Attempt: 1, Worker: "replica-0", ClaimedAt: later(3), EndedAt: end, Outcome: "expired", Error: "no sign of life"},
			{Epoch: 3, Attempt: 2, Worker: "replica-1", ClaimedAt: end},
		},
		Tries: []store.Tried{{ConfigID: "default", URL: "https://hooks.example/a2a", PushTry: store.PushTry{
			From: 1, Seq: 3, Outcome: "failed", Attempt: 2, Trigger: store.TriggerManual, StartedAt: later(1150), Try: store.Try{Took: 1234 * time.Millisecond, Status: 500, Reason: "answered 500"},
		}}},
		Actions: []store.Recorded{{At: later(1140), Actor: "operator ann@desk", Name: store.ActionPushReplay, Detail: json.RawMessage(`{"after":1}`)}},
	}
	return taskDetail{
		Timeline: newTimeline("acme/alice", happened),

		taskRow: f.rows()[0], Task: f.snapshot(), Raw: json.RawMessage(`{"kind":"task"}`),
		Attempts: []attemptRow{
			{Epoch: 1, Attempt: 1, Worker: "replica-0", ClaimedAt: someTime, EndedAt: &end, Outcome: "lost", Error: "no sign of life"},
			{Epoch: 3, Attempt: 2, Worker: "replica-1", ClaimedAt: end},
		},
	}, nil
}

func (f *fakeOperator) Watch(ctx context.Context, id string, after int64) iter.Seq2[watched, error] {
	return func(yield func(watched, error) bool) {
		if id != taskID {
			yield(watched{}, errNoTask)
			return
		}
		task := f.snapshot()
		part := func(s string) []a2a.Part { return []a2a.Part{{Kind: a2a.PartText, Text: s}} }
		items := []watched{
			{ID: "5-aaaaaaaa", Raw: json.RawMessage(`{"kind":"task"}`), Snapshot: &task},
			{ID: "6-bbbbbbbb", Raw: json.RawMessage(`{"kind":"artifact-update"}`), Entry: &a2a.Entry{Event: &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "more", Parts: part("and more")}}}},
			{ID: "7-cccccccc", Raw: json.RawMessage(`{"kind":"status-update"}`), Entry: &a2a.Entry{Event: &a2a.StatusUpdate{
				Status: a2a.Status{State: a2a.StateWorking}, Metadata: a2a.Raw(`{"a2ad/attempt":2,"a2ad/reason":"the worker was lost"}`),
			}}},
			{ID: "8-dddddddd", Raw: json.RawMessage(`{"kind":"status-update"}`), Entry: &a2a.Entry{Event: &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateFailed, Message: &a2a.Message{Parts: part("out of paper")}}}}},
		}
		if after > 0 {
			items = items[1:]
		}
		for i, w := range items {
			if f.hang != nil && i == 1 {
				f.hang()
				<-ctx.Done()
				yield(watched{}, ctx.Err())
				return
			}
			if !yield(w, nil) {
				return
			}
		}
	}
}

func (f *fakeOperator) Cancel(_ context.Context, id string) (taskRow, error) {
	for _, r := range f.rows() {
		if r.ID == id && r.State == "completed" {
			return taskRow{}, fmt.Errorf("task %s: the task is completed already", id)
		}
		if r.ID == id {
			r.State = "canceled"
			return r, nil
		}
	}
	return taskRow{}, fmt.Errorf("task %s: %w", id, errNoTask)
}

func (f *fakeOperator) CreateKey(_ context.Context, k keySpec) (createdKey, error) {
	f.key = k
	return createdKey{ID: "k1", Key: "a2ad_k1_secret", Tenant: k.Tenant, Owner: k.Owner, Name: k.Name, Scopes: k.Scopes, Agents: k.Agents, CreatedAt: someTime, ExpiresAt: expiry(k.ExpiresIn)}, nil
}

// expiry is when a key made at someTime runs out.
func expiry(in time.Duration) *time.Time {
	if in == 0 {
		return nil
	}
	at := someTime.Add(in)
	return &at
}

func (f *fakeOperator) Keys(context.Context, string) ([]keyRow, error) {
	return []keyRow{
		{ID: "k1", Tenant: "acme", Owner: "alice", Name: "laptop", Scopes: []string{"tasks:read", "tasks:write"}, CreatedAt: someTime, LastUsedAt: &someTime},
		{ID: "k2", Tenant: "acme", Owner: "worker", Scopes: []string{"worker"}, Agents: []string{"a", "b"}, CreatedAt: someTime, RevokedAt: &someTime},
		{ID: "k3", Tenant: "acme", Owner: "ci", Scopes: []string{"tasks:read"}, CreatedAt: someTime, ExpiresAt: expiry(time.Hour)},
	}, nil
}

func (f *fakeOperator) RevokeKey(_ context.Context, id string) (keyRow, error) {
	if id != "k1" {
		return keyRow{}, fmt.Errorf("key %s: there is no such key", id)
	}
	return keyRow{ID: id, Tenant: "acme", Owner: "alice", Scopes: []string{"worker"}, CreatedAt: someTime, RevokedAt: &someTime}, nil
}

func (f *fakeOperator) Close() { f.closed = true }

func (f *fakeOperator) use(app *App) {
	app.openOperator = func(_ context.Context, url string) (operator, error) {
		if url != "postgres://h/d" {
			return nil, fmt.Errorf("opened %q", url)
		}
		return f, nil
	}
}

const pushID = "019a9d40-0000-7000-8000-0000000000a1"

var onDatabase = []string{"A2AD_DATABASE_URL=postgres://h/d"}

// TestOperatorScreens are what a person, or with -o json a program, sees.
func TestOperatorScreens(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
	}{
		{"task-ls", []string{"task", "ls"}}, {"task-ls-json", []string{"task", "ls", "-o", "json"}}, {"task-ls-page", []string{"task", "ls", "--limit", "1"}},
		{"task-show", []string{"task", "show", taskID}}, {"task-show-json", []string{"task", "show", taskID, "-o", "json"}}, {"task-show-none", []string{"task", "show", "x"}},
		{"task-watch", []string{"task", "watch", taskID}}, {"task-watch-after", []string{"task", "watch", taskID, "--after", "5"}}, {"task-watch-json", []string{"task", "watch", taskID, "-o", "json"}},
		{"task-cancel", []string{"task", "cancel", oldTask, taskID, "x"}}, {"task-cancel-json", []string{"task", "cancel", taskID, "-o", "json"}},
		{"task-ls-since", []string{"task", "ls", "--since", "2026-01-02", "--until", "2026-01-02T05:00:00Z", "--id", "019a", "--limit", "1"}},
		{"task-retry", []string{"task", "retry", oldTask, taskID}}, {"task-retry-json", []string{"task", "retry", taskID, "-o", "json"}},
		{"task-purge", []string{"task", "purge", "--yes", taskID, "x"}}, {"task-purge-owner", []string{"task", "purge", "--yes", "--tenant", "acme", "--owner", "ann"}},
		{"task-purge-json", []string{"task", "purge", "--yes", "--tenant", "acme", "--owner", "ann", "--context", "c1", "-o", "json"}},
		{"stats", []string{"stats"}}, {"stats-json", []string{"stats", "-o", "json"}},
		{"actions", []string{"actions"}}, {"actions-json", []string{"actions", "-o", "json"}}, {"actions-page", []string{"actions", "--limit", "2"}},
		{"push-replay-json", []string{"push", "replay", pushID, "-o", "json"}}, {"push-enable-json", []string{"push", "enable", "--tenant", "acme", "https://hooks.example:443", "-o", "json"}},
		{"apikey-create", []string{"apikey", "create", "--tenant", "acme", "--owner", "alice", "--name", "laptop"}},
		{"apikey-create-json", []string{"apikey", "create", "--tenant", "acme", "--owner", "alice", "--scopes", "worker,tasks:read,worker", "-o", "json"}},
		{"apikey-create-bounded", []string{"apikey", "create", "--tenant", "acme", "--owner", "ci", "--agents", "words,echo,words", "--expires-in", "12h", "--env", "test"}},
		{"apikey-ls", []string{"apikey", "ls"}}, {"apikey-ls-json", []string{"apikey", "ls", "-o", "json"}},
		{"apikey-revoke", []string{"apikey", "revoke", "k1", "k3"}},
		{"push-ls", []string{"push", "ls"}}, {"push-ls-json", []string{"push", "ls", "--state", "dead", "-o", "json"}},
		{"push-attempts", []string{"push", "attempts", pushID}}, {"push-attempts-json", []string{"push", "attempts", pushID, "-o", "json"}},
		{"push-replay", []string{"push", "replay", pushID, "--after", "3"}}, {"push-enable", []string{"push", "enable", "--tenant", "acme", "https://hooks.example:443"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			op := &fakeOperator{}
			golden(t, tc.name, screenful(t, t.Context(), op.use, onDatabase, tc.args...))
			if !op.closed {
				t.Error("the database was left open")
			}
		})
	}
}

func TestTaskLsFilter(t *testing.T) {
	t.Parallel()
	op := &fakeOperator{}
	screenful(t, t.Context(), op.use, onDatabase, "task", "ls", "--tenant", "t", "--owner", "o", "--agent", "a", "--context", "c", "--state", "working,failed", "--before", "b", "--limit", "7",
		"--id", "019", "--since", "2026-01-02T03:04:05Z", "--until", "2026-01-03")
	want := taskFilter{
		Tenant: "t", Owner: "o", Agent: "a", ContextID: "c", States: []a2a.State{a2a.StateWorking, a2a.StateFailed}, Before: "b", Limit: 7,
		Prefix: "019", Since: someTime.Truncate(time.Second), Until: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC),
	}
	if diff := cmp.Diff(want, op.filter); diff != "" {
		t.Errorf("filter (-want +got):\n%s", diff)
	}
}

func TestTaskWatchInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	op := &fakeOperator{hang: cancel}
	golden(t, "task-watch-interrupted", screenful(t, ctx, op.use, onDatabase, "task", "watch", taskID))
}

// TestStateNames: the states that task ls takes are those that there are.
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

func TestAgentCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"words.yaml": "name: words\ndescription: Counts words.\nexecutor:\n  exec: {command: [wc, -w], input: text, output: text}\n",
		"bad.yaml":   "name: bad/name\nexecutor: {}\nlimits: {deadline: soon}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var i invocation
	i.run(t, "agent", "check", filepath.Join(dir, "words.yaml"))
	if want := filepath.Join(dir, "words.yaml") + ": ok, agent words\n"; i.code != exitOK || i.stdout != want {
		t.Errorf("exit code %d, %q, want %q", i.code, i.stdout, want)
	}
	i.run(t, "agent", "check", dir)
	if i.code != exitFailure || !strings.Contains(i.stdout, "bad.yaml:1: fault: ") || strings.Count(i.stdout, ": fault: ") < 2 {
		t.Errorf("exit code %d\n%s", i.code, i.stdout)
	}
	i.run(t, "agent", "check", dir, "-o", "json")
	var line checkedLine
	if err := json.Unmarshal([]byte(strings.SplitAfter(i.stdout, "\n")[1]), &line); err != nil || line.Level != "fault" || line.Line == 0 {
		t.Errorf("%v: %s", err, i.stdout)
	}
	i.run(t, "agent", "check", filepath.Join(dir, "none"))
	if i.code != exitFailure || !strings.Contains(i.stdout, "no such file") {
		t.Errorf("exit code %d\n%s", i.code, i.stdout)
	}
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	ready := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, "draining")
		}
	}))
	i := invocation{env: []string{"A2AD_ADMIN_LISTEN=" + strings.TrimPrefix(srv.URL, "http://")}}
	if i.run(t, "healthcheck"); i.code != exitOK || i.stdout != "ready\n" {
		t.Errorf("ready: exit code %d, %q, %q", i.code, i.stdout, i.stderr)
	}
	ready = false
	if i.run(t, "healthcheck"); i.code != exitFailure || i.stderr != "a2ad: not ready: 503 Service Unavailable draining\n" {
		t.Errorf("not ready: exit code %d, %q", i.code, i.stderr)
	}
	srv.Close()
	if i.run(t, "healthcheck"); i.code != exitFailure || !strings.Contains(i.stderr, "no answer from") {
		t.Errorf("gone: exit code %d, %q", i.code, i.stderr)
	}
	i.env = []string{"A2AD_ADMIN_LISTEN=off"}
	if i.run(t, "healthcheck"); i.code != exitFailure {
		t.Errorf("off: exit code %d", i.code)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	i := invocation{env: []string{"A2AD_DATABASE_URL=" + storetest.NewEmpty(t).URL}}
	applied := func() (n int) {
		for line := range strings.Lines(i.stdout) {
			var row migrationRow
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if row.Applied != nil {
				n++
			}
		}
		return n
	}
	if i.run(t, "migrate", "status", "-o", "json"); i.code != exitFailure || applied() != 0 || !strings.Contains(i.stderr, "a2ad migrate up") {
		t.Errorf("status before: exit code %d\n%s%s", i.code, i.stdout, i.stderr)
	}
	i.run(t, "migrate", "up", "-o", "json")
	all := applied()
	if i.code != exitOK || all == 0 || all != strings.Count(i.stdout, "\n") {
		t.Errorf("up: exit code %d\n%s%s", i.code, i.stdout, i.stderr)
	}
	if i.run(t, "migrate", "status", "-o", "json"); i.code != exitOK || applied() != all {
		t.Errorf("status after: exit code %d\n%s%s", i.code, i.stdout, i.stderr)
	}
	if i.run(t, "migrate", "down", "--yes", "-o", "json"); i.code != exitOK || applied() != all-1 {
		t.Errorf("down: exit code %d\n%s%s", i.code, i.stdout, i.stderr)
	}
}

// TestDatabaseOfDev: without A2AD_DATABASE_URL the operator works on the database of
// dev, beside its server while that runs, and else with one of its own for the time of
// the command. Where there is no database none is made.
func TestDatabaseOfDev(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	var i invocation
	for range 2 { // without the directory, and with an empty one
		if i.run(t, "migrate", "up", "--data-dir", dir); i.code != exitFailure || !strings.Contains(i.stderr, "A2AD_DATABASE_URL") || !strings.Contains(i.stderr, "a2ad dev") {
			t.Errorf("no database: exit code %d, %s", i.code, i.stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
			t.Error("the command made a database")
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// As root the server runs as somebody else, who must get in.
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	srv, err := devpg.Start(t.Context(), (&Database{config.Database{DataDir: dir}}).devPostgres())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := srv.EnsureDatabase(t.Context(), devDatabase); err != nil {
		t.Error(err)
	}
	if i.run(t, "migrate", "up", "--data-dir", dir); i.code != exitOK {
		t.Errorf("beside a running server: exit code %d, %s", i.code, i.stderr)
	}
	if err := srv.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if i.run(t, "migrate", "status", "--data-dir", dir); i.code != exitOK {
		t.Errorf("with a server of its own: exit code %d, %s", i.code, i.stderr)
	}
	if _, err := devpg.Locate(dir, devDatabase); !errors.Is(err, devpg.ErrNotRunning) {
		t.Errorf("after the command: %v, want no server", err)
	}
}

// TestOutputFailure: a full disk or a closed pipe is a failure, not silence.
func TestOutputFailure(t *testing.T) {
	t.Parallel()
	op := &fakeOperator{}
	for _, args := range [][]string{
		{"version"}, {"version", "-o", "json"}, {"task", "ls"}, {"task", "ls", "-o", "json"}, {"task", "show", taskID, "-o", "json"},
		{"task", "cancel", taskID}, {"apikey", "ls"}, {"apikey", "create", "--tenant", "t", "--owner", "o"}, {"task", "watch", taskID, "-o", "json"},
	} {
		app := &App{Console: term.Console{Stdin: strings.NewReader(""), Stdout: fullDisk{}, Stderr: &bytes.Buffer{}}}
		op.use(app)
		if code := finish(t.Context(), app, runCommand(t.Context(), app, args, config.ReadEnviron(onDatabase))); code != exitFailure {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func (f *fakeOperator) Pushes(_ context.Context, p pushFilter) ([]pushRow, error) {
	task, tenant, state := p.Task, p.Tenant, p.State
	at := f.rows()[0].CreatedAt
	rows := []pushRow{
		{
			ID: pushID, TaskID: f.rows()[0].ID, ConfigID: "default", Tenant: "acme", Owner: "ann", URL: "https://hooks.example/a2a",
			Origin: "https://hooks.example:443", State: "dead", Reason: "11 tries failed, the last one with: 500", Cursor: 3, Head: 7, Attempt: 11, CreatedAt: at,
		},
		{ID: "019a9d40-0000-7000-8000-0000000000a2", TaskID: f.rows()[0].ID, ConfigID: "b", Tenant: "acme", Owner: "ann", URL: "https://b.example/", Origin: "https://b.example:443", State: "done", Cursor: 7, Head: 7, CreatedAt: at},
	}
	return slices.DeleteFunc(rows, func(r pushRow) bool {
		return state != "" && r.State != state || tenant != "" && r.Tenant != tenant || task != "" && r.TaskID != task
	}), nil
}

func (f *fakeOperator) PushAttempts(context.Context, string, int) ([]pushTryRow, error) {
	return []pushTryRow{{From: 3, Seq: 7, Outcome: "failed", Attempt: 11, Trigger: "manual", StartedAt: f.rows()[0].CreatedAt, Ms: 12, RemoteIP: "192.0.2.1", Status: 500, Class: "server_error", Reason: "500 Internal Server Error"}}, nil
}

func (f *fakeOperator) ReplayPush(context.Context, string, int64) error { return nil }

func (f *fakeOperator) EnableDestination(context.Context, string, string) (bool, error) {
	return true, nil
}

func (f *fakeOperator) Rewrap(context.Context, seal.Ring) (int, error) { return 3, nil }

func (f *fakeOperator) SealedWith(context.Context) ([]store.Sealed, error) { return nil, nil }

func (f *fakeOperator) Retry(_ context.Context, id string) (retriedTask, error) {
	if id == oldTask {
		return retriedTask{}, fmt.Errorf("task %s: it is completed: %w", id, store.ErrNothingToRetry)
	}
	return retriedTask{ID: "019a9d40-0000-7000-8000-0000000000b1", Of: id, ContextID: "c1", State: "submitted"}, nil
}

func (f *fakeOperator) CountPurge(_ context.Context, p purgeFilter) (int64, error) {
	n, err := f.count(p)
	return int64(n), err
}

func (f *fakeOperator) count(p purgeFilter) (int, error) {
	switch p.ID {
	case "":
		return 3, nil
	case taskID:
		return 1, nil
	}
	return 0, fmt.Errorf("task %s: not a task id", p.ID)
}

func (f *fakeOperator) Purge(_ context.Context, p purgeFilter) (int, error) {
	f.purged = append(f.purged, p)
	return f.count(p)
}

func (f *fakeOperator) Actions(_ context.Context, a actionFilter) ([]actionRow, error) {
	rows := []actionRow{
		{ID: 9, At: someTime, Actor: "operator ann@desk", Action: "task.retry", Tenant: "acme", Owner: "alice", TaskID: taskID, Detail: json.RawMessage(`{"new":"019a9d40-0000-7000-8000-0000000000b1"}`)},
		{ID: 8, At: someTime, Actor: "replica r1", Action: "push.disable", Tenant: "acme", Detail: json.RawMessage(`{"destination":"https://hooks.example:443"}`)},
		{ID: 7, At: someTime, Actor: "address 192.0.2.1", Action: "signin.failed", Detail: json.RawMessage(`{}`)},
	}
	return rows[:min(len(rows), a.Limit)], nil
}

func (f *fakeOperator) Overview(context.Context) (*store.Overview, error) {
	return &store.Overview{
		Tasks: []store.TaskCount{
			{Agent: "echo", State: a2a.StateCompleted, Tasks: 1_203_450, Estimated: true}, {Agent: "words", State: a2a.StateSubmitted, Tasks: 12}, {Agent: "words", State: a2a.StateWorking, Tasks: 2},
			{Agent: "words", State: a2a.StateInputRequired, Tasks: 1},
		},
		Queues:  []store.QueueDepth{{Agent: "words", Waiting: 12, Due: 10, Oldest: 83 * time.Second}, {Agent: "late", Waiting: 1, Oldest: -time.Second}},
		Workers: []store.WorkerLoad{{Worker: "replica-1", Running: 2, Expired: 1}},
		Runs: []store.RunSeen{
			{Task: a2a.ID{0: 1, 15: 7}, Agent: "words", Worker: "replica-1", Attempt: 2, Age: 20 * time.Minute, LastSeq: 41, Silent: 19 * time.Minute},
			{Task: a2a.ID{0: 1, 15: 8}, Agent: "words", Worker: "replica-1", Attempt: 1, Age: 3 * time.Second, LastSeq: 2, Silent: 200 * time.Millisecond},
		},
		Replicas: []store.ReplicaSeen{{Name: "replica-1", Connections: 17, Listens: true}, {Name: "replica-2", Connections: 4}},
		Push:     store.PushBacklog{Webhooks: 4, Events: 9, Failing: 3, Dead: 1, Oldest: 26 * time.Hour},
		Down: []store.DestinationDown{
			{Tenant: "acme", Origin: "https://a.example:443", Fails: 7, OpenUntil: someTime, LastError: "connect: connection refused"}, {Tenant: "acme", Origin: "https://b.example:443", Fails: 900, DisabledAt: someTime},
		},
		Bytes:        5 << 30,
		Tables:       []store.TableSize{{Name: "task_events", Bytes: 3 << 30, IndexBytes: 1 << 29, Rows: 900_000, Dead: 12}, {Name: "task_ready", Bytes: 16 << 10, IndexBytes: 8 << 10}},
		Transactions: []store.OpenTransaction{{PID: 4711, Login: "bob", Application: "psql", State: "idle in transaction", For: 7 * time.Minute}},
		Hidden:       2,
	}, nil
}

// TestPurgeAsks: nothing goes without a yes, and a script must say so on the command line.
func TestPurgeAsks(t *testing.T) {
	t.Parallel()
	owner := []string{"task", "purge", "--tenant", "acme", "--owner", "ann"}
	for _, tc := range []struct {
		name, answer string
		asks         bool
		args         []string
		purged       int
	}{
		{"yes", "y\n", true, owner, 1}, {"no", "n\n", true, owner, 0}, {"nothing", "\n", true, owner, 0}, {"gone", "", true, owner, 0},
		{"script", "y\n", false, owner, 0}, {"one", "yes\n", true, []string{"task", "purge", taskID}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			op := &fakeOperator{}
			golden(t, "task-purge-ask-"+tc.name, screenful(t, t.Context(), func(app *App) {
				op.use(app)
				app.CanAsk, app.Stdin = tc.asks, strings.NewReader(tc.answer)
			}, onDatabase, tc.args...))
			if len(op.purged) != tc.purged {
				t.Errorf("purged %+v", op.purged)
			}
		})
	}
}

// unanswered is a terminal at which somebody presses Ctrl-C instead of answering.
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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, op := unanswered{cancel, make(chan struct{})}, &fakeOperator{}
	defer close(in.end)
	golden(t, "task-purge-ask-interrupted", screenful(t, ctx, func(app *App) {
		op.use(app)
		app.CanAsk, app.Stdin = true, in
	}, onDatabase, "task", "purge", taskID))
	if len(op.purged) != 0 {
		t.Errorf("purged %+v", op.purged)
	}
}

// TestTaskLsWatch shows the list again until it is interrupted; to a program only what changed, and on
// a terminal what it has room for, the newest tasks.
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
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			op := &fakeOperator{stop: cancel, lists: 3}
			golden(t, "task-ls-watch-"+tc.name, screenful(t, ctx, func(app *App) {
				op.use(app)
				app.Terminal, app.Lines = tc.terminal, tc.lines
			}, onDatabase, append([]string{"task", "ls", "--watch", "--every", "100ms"}, tc.args...)...))
		})
	}
}
