package storetest

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
)

// TablesOfTasks are the tables with rows of a task, except those that triggers fill.
var TablesOfTasks = []string{"tasks", "messages", "task_events", "task_attempts", "idempotency_keys", "artifacts",
	"artifact_parts", "task_checkpoints", "task_steps", "task_usage", "task_ready", "task_leases", "task_waits",
	"task_parked", "push_configs", "push_attempts"}

// CopyTasks adds copies from+1 to upTo of the models: tasks of other owners, half of them of other tenants, each with
// the rows of its model. Those that run are of other agents. Only the first whole of them have all events and parts of
// artifacts; the others have three.
func (f *Fixture) CopyTasks(models []a2a.ID, from, upTo, whole int) {
	f.T.Helper()
	f.Exec(`DROP TABLE IF EXISTS copies`)
	f.Exec(`
		CREATE UNLOGGED TABLE copies AS
		SELECT g, m.id AS model, ('019a0000-0000-7000-8000-' || lpad(to_hex(g), 12, '0'))::uuid AS id,
		  CASE WHEN g % 2 = 0 THEN 'acme' ELSE 'tenant-' || g % 10 END AS tenant, 'owner-' || g % 100 AS owner,
		  CASE WHEN g % 4 = 0 AND l.task_id IS NULL THEN $4 ELSE 'agent-' || g % 10 END AS agent
		FROM generate_series($1::bigint + 1, $2::bigint) g
		JOIN unnest($3::uuid[]) WITH ORDINALITY m(id, i) ON m.i = g % cardinality($3) + 1
		LEFT JOIN a2a.task_leases l ON l.task_id = m.id`,
		from, upTo, models, Agent)
	f.Exec(`ANALYZE copies`)
	for _, table := range TablesOfTasks {
		f.Exec(f.copyStatement(table), whole)
	}
	f.Exec(`DROP TABLE copies`)
}

// copyStatement returns the statement that copies the rows of a table.
func (f *Fixture) copyStatement(table string) string {
	f.T.Helper()
	rows, err := f.SQL.Query(f.T.Context(), `
		SELECT a.attname FROM pg_attribute a
		WHERE a.attrelid = ('a2a.' || $1)::regclass AND a.attnum > 0 AND NOT a.attisdropped
		  AND a.attgenerated = '' AND a.attidentity = '' AND a.attname <> 'xid'`, table)
	if err != nil {
		f.T.Fatalf("read columns of %s: %v", table, err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.T.Fatalf("read columns of %s: %v", table, err)
	}
	values := make([]string, len(columns))
	for i, name := range columns {
		values[i] = copiedValue(table, name)
	}
	key, only := "task_id", "$1::int >= 0"
	switch table {
	case "tasks":
		key = "id"
	case "task_events", "artifact_parts":
		only = "(n.g <= $1 OR r.seq <= 3)"
	}
	return fmt.Sprintf("INSERT INTO a2a.%s (%s) SELECT %s FROM copies n JOIN a2a.%s r ON r.%s = n.model "+
		"WHERE %s ORDER BY n.g", table, strings.Join(columns, ", "), strings.Join(values, ", "), table, key, only)
}

// copiedValue is the expression for a column of a copy.
func copiedValue(table, name string) string {
	switch name {
	case "id":
		if table != "tasks" {
			return "gen_random_uuid()"
		}
		return "n.id"
	case "task_id":
		return "n.id"
	case "tenant", "owner", "agent":
		return "n." + name
	case "queue":
		return "n.agent"
	case "context_id":
		return "'context-' || n.g"
	case "event_uid":
		return "gen_random_uuid()"
	case "key":
		if table == "idempotency_keys" {
			return "'h:' || n.g"
		}
	case "origin":
		return "'https://host-' || n.g % 1000 || ':443'"
	case "list_key":
		return "a2a.list_key(n.tenant, n.owner, n.agent)"
	case "status_at", "created_at", "last_at":
		return "r." + name + " - n.g * interval '1 ms'"
	}
	return "r." + name
}
