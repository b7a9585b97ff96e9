package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// A database is dumped while clients, agents and webhooks are busy, then restored on another server and served.
// Everything acknowledged before the dump exists, running tasks run again, webhooks arrive, and a reader that saw
// more than the backup holds gets a gap.
func TestRestoredBackupContinuesTasks(t *testing.T) {
	t.Parallel()
	needPrograms(t, "pg_dump", "pg_dumpall", "pg_restore", "psql")
	keys := seal.Generate("k1")
	from := storetest.NewServer(t, nil)
	c := clusterOn(t, storetest.NewOn(t, from))
	sink := newHookSink(t, nil)
	a, b := c.start("a", hooking(keys)...), c.start("b", hooking(keys)...)

	g := newGate(t)
	var waiting []string
	for i := range 5 {
		op := fmt.Sprintf(`{"op":"chunk","id":"a","n":%d},`, i+1) + g.op() +
			`,{"op":"chunk","id":"b","n":3},{"op":"complete","text":"done"}`
		waiting = append(waiting, c.sendHooked(a, `{"url":"`+sink.URL+`/x","token":"tok"}`, op))
	}
	for _, task := range waiting {
		c.runner(task)
	}
	asks := submit(t, c.client(a, "script"), play(`{"op":"input","text":"?"},{"op":"complete"}`))
	c.awaitState(asks, "INPUT_REQUIRED")
	l := c.startLoad(4, a, b)
	l.progress(20)
	acked := map[string]string{}
	l.acked.Range(func(key, task any) bool { acked[key.(string)] = task.(string); return true })
	ended := column[string](c, `SELECT id::text FROM audit.task WHERE state = 'COMPLETED' LIMIT 5`)

	_, commands := documented(t, "back-up.md")
	if len(commands) != 2 {
		t.Fatalf("the document has %d blocks", len(commands))
	}
	name, err := pgxpool.ParseConfig(c.url)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, create := range []string{`CREATE ROLE a2ad_backup LOGIN BYPASSRLS IN ROLE pg_read_all_data`,
		`CREATE ROLE a2ad_migrate LOGIN`} {
		if _, err := c.db.Exec(bounded(t), create); err != nil {
			t.Fatal(err)
		}
	}
	shell(t, commands[0], dir, nil, "ADMIN_URL="+from.URL("postgres"),
		"BACKUP_URL="+strings.Replace(c.url, name.ConnConfig.User+"@", "a2ad_backup@", 1))

	g.open() // tasks continue after the backup
	l.progress(5)
	l.finish()
	task := waiting[0]
	c.awaitState(task, "COMPLETED")
	seen := follow(t, c.client(a, "script").Resubscribe(bounded(t), task,
		client.StreamOptions{LastEventID: "1-" + one[string](c,
			`SELECT left(event_uid::text, 8) FROM audit.event WHERE task_id::text = $1 AND seq = 1`, task)}), nil)

	to := storetest.NewServer(t, nil)
	const db = "a2ad"
	shell(t, commands[1], dir, nil, "NEW_ADMIN_URL="+to.URL("postgres"), "NEW_URL="+to.URL(db))

	restored := clusterOn(t, &storetest.DB{URL: to.URL(db)})
	for key, task := range acked {
		if got := one[int](restored, `SELECT count(*) FROM audit.message WHERE idem_key = $1 AND task_id::text = $2`,
			key, task); got != 1 {
			t.Errorf("%s was acknowledged before the backup as task %s and exists %d times", key, task, got)
		}
	}
	for _, task := range waiting {
		if got := restored.state(task); got != "WORKING" {
			t.Errorf("task %s is %s in the backup, want WORKING: the fault did not happen", task, got)
		}
	}
	r := restored.start("r", hooking(keys)...)
	for _, task := range waiting {
		restored.awaitState(task, "COMPLETED")
	}
	for _, task := range ended {
		if got := restored.state(task); got != "COMPLETED" {
			t.Errorf("task %s is %s, and was completed before the backup", task, got)
		}
	}
	// This reader saw events that the backup does not hold.
	last := seen[len(seen)-1]
	again := follow(t, (&client.Client{URL: r.base + "/agents/script", Retry: c.retry}).Resubscribe(bounded(t), task,
		client.StreamOptions{LastEventID: last.ID}), nil)
	if len(again) == 0 || !again[0].Gap {
		t.Errorf("a resume after %s, which is not in the backup, does not report the gap: %v", last.ID, again)
	}
	if got, err := restored.client(r, "script").Send(bounded(t),
		client.SendParams{Message: reply(asks, "yes")}); err != nil || got.State != a2a.StateCompleted {
		t.Errorf("the answer to a question from before: %s, %v", got.Raw, err)
	}
	restored.awaitDelivered()
	if n := one[int](restored,
		`SELECT count(*) FROM audit.delivery WHERE task_id::text = ANY($1) AND state = 'delivered'`, waiting); n == 0 {
		t.Error("no webhook of the restored tasks was delivered")
	}
}
