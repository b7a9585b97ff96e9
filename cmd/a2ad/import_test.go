package main

import (
	"database/sql"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/e2e/check"
)

// sdkStore writes the SQLite file of an SDK's server from a dump.
func sdkStore(t *testing.T, dump string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "internal", "importer", "testdata", dump))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tasks.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), string(text)); err != nil {
		t.Fatal(err)
	}
	return file
}

// checkInvariants checks what the end-to-end tests check.
func (w *world) checkInvariants() {
	w.Helper()
	conn, err := pgx.Connect(w.Context(), strings.TrimPrefix(w.env[0], "A2AD_DATABASE_URL="))
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close(w.Context())
	found, err := check.Database(w.Context(), conn, 0)
	if err != nil {
		w.Fatal(err)
	}
	for _, v := range found {
		w.Error(v)
	}
}

var sources = regexp.MustCompile(`(sqlite:)?/\S+/tasks\.`)

// screen is what a person sees, without what differs from run to run.
func (w *world) screen(args ...string) string {
	w.Helper()
	return sources.ReplaceAllString(steady(screenful(w.T, w.Context(), nil, w.env, args...)), "${1}DIR/tasks.")
}

// withKeys gives a world a key to encrypt secrets with.
func (w *world) withKeys() *world {
	w.env = append(w.env, "A2AD_KEYS=k1:"+key32)
	return w
}

func TestImportOfPython03(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withKeys()
	from := "sqlite:" + sdkStore(t, "python-0.3.sql")
	args := []string{"import", "--from", from, "--agent", "words", "--tenant", "acme", "--owner", "ann"}
	golden(t, "import-dry-run", w.screen(append(args, "--dry-run")...))
	if i := w.run(exitOK, "task", "ls", "-o", "json"); i.stdout != "" {
		t.Fatalf("the dry run has stored %s", i.stdout)
	}
	golden(t, "import", w.screen(args...))
	golden(t, "import-again", w.screen(append(args, "--running", "fail")...))
	golden(t, "import-tasks", w.screen("task", "ls"))
	golden(t, "import-task", w.screen("task", "show", "0f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e01"))
	i := w.run(exitOK, "actions", "--action", "task.import", "--tenant", "acme", "-o", "json")
	if !strings.Contains(i.stdout, `"source":"sqlite:tasks.db","tasks":3`) || strings.Count(i.stdout, "\n") != 2 {
		t.Errorf("the audit log has\n%s", i.stdout)
	}
	w.checkInvariants()
}

func TestImportOfPython10KeepsOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withKeys()
	from := "sqlite+aiosqlite:///" + sdkStore(t, "python-1.0.sql")
	i := w.run(exitOK, "import", "--from", from, "--agent", "words", "--source-owner", "bob", "-o", "json")
	if want := `{"dryRun":false,"states":{"input-required":{"imported":1,"known":0,"skipped":0,"problems":0}},` +
		`"webhooks":1}` + "\n"; i.stdout != want {
		t.Errorf("got %s", i.stdout)
	}
	w.run(exitOK, "import", "--from", from, "--agent", "words", "--running", "submit")
	owners := map[string]int{}
	for _, r := range rows[taskRow](t, w.run(exitOK, "task", "ls", "-o", "json")) {
		owners[r.Tenant+"/"+r.Owner+" "+r.State]++
	}
	want := map[string]int{"default/ann completed": 1, "default/ann submitted": 1, "default/bob input-required": 1}
	for key, n := range want {
		if owners[key] != n {
			t.Errorf("tasks %v, want %v", owners, want)
		}
	}
	w.claim() // what was submitted again
}

func TestImportOfJavaScriptKeepsTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withKeys()
	from := "sqlite:" + sdkStore(t, "js-1.3.sql")
	w.run(exitOK, "import", "--from", from, "--agent", "words")
	owners := map[string]string{}
	for _, r := range rows[taskRow](t, w.run(exitOK, "task", "ls", "-o", "json")) {
		owners[r.Tenant+"/"+r.Owner] = r.State
	}
	if owners["acme/ann"] != "completed" || owners["acme/unknown"] != "input-required" || len(owners) != 2 {
		t.Errorf("tasks %v", owners)
	}
	i := w.run(exitOK, "push", "ls", "-o", "json")
	if !strings.Contains(i.stdout, "hooks.example.org/a2a") || strings.Contains(i.stdout, "another") {
		t.Errorf("webhooks:\n%s", i.stdout)
	}
	w.checkInvariants()
}

func TestImportSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "tasks.jsonl")
	text := `{"id":"1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e01","status":{"state":"completed"},"history":[{"parts":[]}]}
{"id":"1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e02","status":{"state":"TASK_STATE_COMPLETED","timestamp":"yesterday"}}
not json
{"task":{"id":"1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e03","status":{"state":"completed"},"color":"red"}}
{"task":{"id":"1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e04","status":{"state":"completed"}, "color":"red"},"owner":"ann"}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	golden(t, "import-problems", w.screen("import", "--from", file, "--agent", "words"))
	for _, args := range [][]string{
		{"import", "--from", "mysql://u:secret@h/db", "--agent", "words"},
		{"import", "--from", "tasks.txt", "--agent", "words"},
		{"import", "--from", "sqlite:" + filepath.Join(t.TempDir(), "missing.db"), "--agent", "words"},
	} {
		stderr := w.run(exitFailure, args...).stderr
		if !strings.Contains(stderr, "--from: ") || strings.Contains(stderr, "secret") {
			t.Errorf("%v: %s", args, stderr)
		}
	}
	w.checkInvariants()
}

// TestImportFromPostgres reads the tables that a2a-python 1.x makes there, in a schema of their own.
func TestImportFromPostgres(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withKeys()
	url := strings.TrimPrefix(w.env[0], "A2AD_DATABASE_URL=")
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `
		CREATE SCHEMA sdk;
		CREATE TABLE sdk.tasks (id varchar(36) PRIMARY KEY, context_id varchar(36) NOT NULL, kind varchar(16) NOT NULL,
		  owner varchar(255), last_updated timestamp, status json NOT NULL, artifacts json, history json,
		  protocol_version varchar(16), metadata json);
		CREATE TABLE sdk.hooks (task_id varchar(36), config_id varchar(255), config_data bytea NOT NULL,
		  owner varchar(255), protocol_version varchar(16), PRIMARY KEY (task_id, config_id));
		INSERT INTO sdk.tasks VALUES ('1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e02', 'c-2', 'task', 'bob', now(),
		  '{"state": "TASK_STATE_INPUT_REQUIRED", "message": {"messageId": "m-6", "role": "ROLE_AGENT",
		    "parts": [{"text": "Where to?"}]}, "timestamp": "2026-03-04T05:06:02.123456Z"}', '[]',
		  '[{"messageId": "m-5", "role": "ROLE_USER", "parts": [{"text": "A trip"}]}]', '1.0', 'null');
		INSERT INTO sdk.hooks VALUES ('1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e02', 'hook',
		  '{"url": "https://hooks.example.org/a2a", "token": "secret"}', 'bob', '1.0'),
		  ('1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e02', 'sealed', 'gAAAAABo', 'bob', '1.0')`); err != nil {
		t.Fatal(err)
	}
	i := w.run(exitOK, "import", "--from", url, "--agent", "words", "--table", "sdk.tasks",
		"--webhook-table", "sdk.hooks", "-o", "json")
	want := `{"task":"1f6b6e0c-27d5-4f4c-9d3e-1f2b3c4d5e02","problem":"is imported without its webhook \"sealed\": ` +
		`it is not a JSON object, perhaps because the old server encrypted it: its client must set it again"}` + "\n" +
		`{"dryRun":false,"states":{"input-required":{"imported":1,"known":0,"skipped":0,"problems":0}},` +
		`"webhooks":1}` + "\n"
	if i.stdout != want {
		t.Errorf("got %s", i.stdout)
	}
	got := rows[taskRow](t, w.run(exitOK, "task", "ls", "-o", "json"))
	if len(got) != 1 || got[0].Owner != "bob" || got[0].State != "input-required" {
		t.Errorf("tasks %+v", got)
	}
	w.checkInvariants()
}

// An import into the database of dev follows the rules of dev, unless the operator has set others.
func TestImportIntoDevFollowsItsRules(t *testing.T) {
	t.Parallel()
	hook := a2a.PushConfig{URL: "http://127.0.0.1:7777/hook", Token: "secret"}
	c := ImportCmd{}
	c.DataDir = t.TempDir()
	if _, err := c.webhook(&hook); err == nil {
		t.Error("a webhook on loopback was taken without the rules of dev")
	}
	if err := c.asDev(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.webhook(&hook); err != nil {
		t.Errorf("dev refuses %s: %v", hook.URL, err)
	}
	c = ImportCmd{PushAllowCIDRs: config.Prefixes{netip.MustParsePrefix("10.0.0.0/8")}}
	c.DataDir = t.TempDir()
	if err := c.asDev(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.webhook(&hook); err == nil {
		t.Error("the rules of dev replaced those of the operator")
	}
}

func TestSourceLabelHasNoSecrets(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"postgres://u:secret@db.example.org:5432/tasks?password=secret": "postgres://db.example.org:5432/tasks",
		"postgresql+asyncpg://u:secret@/tasks?host=/run":                "postgres:///tasks",
		"postgres://u:se cret@h/tasks":                                  "postgres",
		"sqlite+aiosqlite:////home/ann/tasks.db":                        "sqlite:tasks.db",
		"sqlite:tasks.db":                                               "sqlite:tasks.db",
		"sqlite:///home/ann/tasks.db?key=se/cret":                       "sqlite:tasks.db",
		"/home/ann/tasks.jsonl":                                         "tasks.jsonl",
	} {
		if got := sourceLabel(from); got != want {
			t.Errorf("%s: got %s, want %s", from, got, want)
		}
	}
}
