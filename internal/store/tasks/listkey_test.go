package tasks_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// The tasks of an owner, and those of a tenant, are one range of keys. So a list does not read the tasks of others.
func TestListKeysOfATenantAndOfAnOwnerAreARange(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	type bits struct{ Tenant, Owner, Agent int64 }
	of := func(tenant, owner, agent string) bits {
		t.Helper()
		k := storetest.Value[int64](f, "SELECT a2a.list_key($1, $2, $3)", tenant, owner, agent)
		return bits{k >> 44, k >> 16 & (1<<28 - 1), k & (1<<16 - 1)}
	}
	one := of("acme", "ann", "words")
	for what, c := range map[string]struct{ got, want bits }{
		"another agent":  {of("acme", "ann", "echo"), bits{one.Tenant, one.Owner, -1}},
		"another owner":  {of("acme", "bob", "words"), bits{one.Tenant, -1, one.Agent}},
		"another tenant": {of("evil", "ann", "words"), bits{-1, one.Owner, one.Agent}},
	} {
		for part, v := range map[string][3]int64{
			"tenant": {c.got.Tenant, c.want.Tenant, one.Tenant}, "owner": {c.got.Owner, c.want.Owner, one.Owner},
			"agent": {c.got.Agent, c.want.Agent, one.Agent},
		} {
			if v[1] >= 0 && v[0] != v[1] || v[1] < 0 && v[0] == v[2] {
				t.Errorf("%s: the bits of the %s are %d, those of the first key are %d", what, part, v[0], v[2])
			}
		}
	}
}

// The tasks of other owners, tenants and agents make neither a list slower nor a count of tasks in flight. With
// sharing, that holds for the tasks of other tenants.
func TestListsDoNotReadTasksOfOthers(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`
		INSERT INTO a2a.tasks (
		  id, tenant, owner, agent, context_id, state, status_at,
		  last_seq, last_at, last_message_seq, last_user_seq, created_at)
		SELECT ('019a0000-' || lpad(to_hex(i), 4, '0') || '-7000-8000-000000000000')::uuid,
		  CASE WHEN i % 3 = 0 THEN 'evil' ELSE 'acme' END, CASE WHEN i % 100 = 1 THEN 'ann' ELSE 'eve' END,
		  CASE WHEN i % 200 = 1 THEN 'echo' ELSE 'words' END,
		  'c', 2, now() + i * interval '1 second', 0, now(), 0, 0, now()
		FROM generate_series(1, 6000) i`)
	f.Exec("ANALYZE a2a.tasks")
	removed := regexp.MustCompile(`Rows Removed by Filter: (\d+)`)
	tests := []struct {
		name, statement, args, most string
	}{
		{"the list of an owner", "TaskPageForCaller", "'acme', 'ann', %t, 'words'", ""},
		{"the count of an owner's list", "TaskCountForCaller", "'acme', 'ann', %t, 'words'", ""},
		{"the list of a tenant", "TaskPageForCaller", "'evil', 'ann', %t, 'words'", "evil"},
		{"the count of a tenant's list", "TaskCountForCaller", "'evil', 'ann', %t, 'words'", "evil"},
		{"what is in flight", "TaskCountInFlightForCaller", "'acme', 'ann', 1000", ""},
	}
	for _, tt := range tests {
		args := tt.args
		if strings.Contains(args, "%t") {
			args = fmt.Sprintf(args, tt.most != "") + ", '', 0::smallint, '-infinity'"
			if strings.Contains(tt.statement, "Page") {
				args += ", 'infinity', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 50"
			} else {
				args += ", 100000"
			}
		}
		plan := analyze(f, tt.statement, args)
		others := 0
		for _, m := range removed.FindAllStringSubmatch(plan, -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			others += n
		}
		most := 0
		if tt.most != "" { // the tasks of other agents
			const others = "SELECT count(*)::int FROM a2a.tasks WHERE tenant = $1 AND agent <> 'words'"
			most = storetest.Value[int](f, others, tt.most)
		}
		if others > most || strings.Contains(plan, "Seq Scan") {
			t.Errorf("%s reads %d rows of others:\n%s", tt.name, others, plan)
		}
	}
}

// analyze runs a statement with a plan for its arguments, and returns EXPLAIN ANALYZE.
func analyze(f *storetest.Fixture, name, args string) string {
	f.T.Helper()
	tx, err := f.SQL.Begin(f.T.Context())
	if err != nil {
		f.T.Fatal(err)
	}
	defer tx.Rollback(f.T.Context()) //nolint:errcheck // nothing is written
	const settings = "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL jit = off; "
	if _, err := tx.Exec(f.T.Context(), settings+"PREPARE analyzed AS "+f.Statement(name)); err != nil {
		f.T.Fatalf("%s: %v", name, err)
	}
	rows, err := tx.Query(f.T.Context(),
		"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE analyzed ("+args+")")
	if err != nil {
		f.T.Fatalf("%s: %v", name, err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.T.Fatalf("%s: %v", name, err)
	}
	if _, err := tx.Exec(f.T.Context(), "DEALLOCATE analyzed"); err != nil {
		f.T.Fatal(err)
	}
	return strings.Join(plan, "\n")
}
