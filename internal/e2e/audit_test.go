package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/seal"
)

// answers runs the query that docs/how-to/audit-queries.md gives for a question, and returns the rows.
func (c *cluster) answers(question string) []map[string]any {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", "audit-queries.md"))
	if err != nil {
		c.t.Fatal(err)
	}
	_, below, asked := strings.Cut(string(data), "\n"+question)
	_, sql, has := strings.Cut(below, " <<'SQL'\n")
	sql, _, ends := strings.Cut(sql, ";\nSQL\n```")
	if !asked || !has || !ends {
		c.t.Fatalf("docs/how-to/audit-queries.md does not answer %s", question)
	}
	rows, err := c.db.Query(c.t.Context(), "SELECT to_json(q)::text FROM ("+sql+") q")
	if err != nil {
		c.t.Fatalf("%s: %v", question, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		c.t.Fatalf("%s: %v", question, err)
	}
	var list []map[string]any
	for _, line := range lines {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			c.t.Fatal(err)
		}
		list = append(list, row)
	}
	return list
}

// The answers of docs/how-to/audit-queries.md must match what happened: a webhook that replaces another one under its
// id, one that needs three attempts, and a task that fails once.
func TestAuditQueriesMatchWhatHappened(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var refused atomic.Int32
	sink := newHookSink(t, func(_ int, r *http.Request) bool { return r.URL.Path == "/second" && refused.Add(1) <= 2 })
	a := c.start("a", hooking(seal.Generate("k1"))...)
	task := c.sendHooked(a, `{"url":"`+sink.URL+`/first"}`, `{"op":"input","text":"?"}`, `{"op":"complete"}`)
	c.awaitDelivered()
	for _, call := range []struct{ method, params string }{
		{"tasks/pushNotificationConfig/delete", `{"id":"` + task + `","pushNotificationConfigId":"default"}`},
		{"tasks/pushNotificationConfig/set", `{"taskId":"` + task + `","pushNotificationConfig":{"url":"` + sink.URL +
			`/second"}}`},
	} {
		if got := c.rpc(a, "script", call.method, call.params); got.code != 0 {
			t.Fatalf("%s: %s", call.method, got.body)
		}
	}
	if _, err := c.client(a, "script").Send(bounded(t), client.SendParams{Message: reply(task, "yes")}); err != nil {
		t.Fatal(err)
	}
	fails := submit(t, c.client(a, "script"), play(`{"op":"error","text":"out of luck"}`))
	c.awaitState(fails, "COMPLETED")
	c.awaitDelivered()

	delivered := map[string]float64{}
	for _, row := range c.answers("What was delivered to whom?") {
		delivered[strings.TrimPrefix(row["url"].(string), sink.URL)] += row["events"].(float64)
		if want := map[string]float64{"/first": 1,
			"/second": 3}[strings.TrimPrefix(row["url"].(string), sink.URL)]; row["most_tries"] != want ||
			row["state"] != "delivered" {
			t.Errorf("delivered: %v, want %v tries at most", row, want)
		}
	}
	last := one[float64](c, `SELECT last_seq FROM audit.task WHERE id::text = $1`, task)
	want := map[string]float64{"/first": 3, "/second": last - 3}
	if diff := cmp.Diff(want, delivered); diff != "" {
		t.Errorf("events delivered to each webhook (-want +got):\n%s", diff)
	}
	late := map[string]float64{}
	for _, row := range c.answers("How late do webhooks arrive?") {
		late[strings.TrimPrefix(row["url"].(string), sink.URL)] = row["events"].(float64)
	}
	if diff := cmp.Diff(want, late); diff != "" {
		t.Errorf("events that had to be delivered (-want +got):\n%s", diff)
	}
	if rows := c.answers("What does each agent cost?"); len(rows) != 1 || rows[0]["agent"] != "script" ||
		rows[0]["tasks"] != 2.0 || rows[0]["attempts"] != 4.0 {
		t.Errorf("cost: %v, want 2 tasks and 4 attempts", rows)
	}
	if rows := c.answers("Which tasks needed more than one attempt, and why?"); len(rows) != 2 ||
		rows[0]["task_id"] != fails || rows[0]["outcome"] != "retry" {
		t.Errorf("needed more than one attempt: %v, want %s", rows, fails)
	}
	for _, row := range c.answers("Which tasks took longest,") {
		if strings.HasPrefix(row["waited"].(string), "-") {
			t.Errorf("a task has waited for a negative time: %v", row)
		}
	}
}
