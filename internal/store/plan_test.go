package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// kept has a connection plan as those of the server do: once, for no arguments in particular.
const kept = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off"

// statement returns the text of one of the server's statements.
func (f *fixture) statement(name string) string {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join("dbsqlc", "*.sql.go"))
	if err != nil {
		f.t.Fatal(err)
	}
	text := regexp.MustCompile("(?s)`-- name: " + name + " :\\w+\n(.*?)`")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.t.Fatal(err)
		}
		if m := text.FindSubmatch(data); m != nil {
			return string(m[1])
		}
	}
	f.t.Fatalf("there is no statement %s", name)
	return ""
}

// explain returns the plan that the server's connections keep of one of its statements.
func (f *fixture) explain(more, name string) []string {
	f.t.Helper()
	sql := f.statement(name)
	args := 0
	for strings.Contains(sql, fmt.Sprintf("$%d", args+1)) {
		args++
	}
	conn, err := f.sql.Acquire(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(f.ctx, kept+"; "+more+"; PREPARE planned AS "+sql); err != nil {
		f.t.Fatalf("%s: %v", name, err)
	}
	rows, err := conn.Query(f.ctx, "EXPLAIN EXECUTE planned ("+strings.TrimSuffix(strings.Repeat("NULL, ", args), ", ")+")")
	if err != nil {
		f.t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := conn.Exec(f.ctx, "DEALLOCATE planned; RESET ALL"); err != nil {
		f.t.Fatal(err)
	}
	return plan
}

// A plan that is kept must not be one for tables that are nearly empty now: what reads all of
// a table, because it has one row, reads all of it when it has a million.
func TestPlansLookUpWhateverTheStatistics(t *testing.T) {
	t.Parallel()
	const claim = "SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
	scan := regexp.MustCompile(`(Seq Scan on|(?:Index|Index Only) Scan (?:Backward )?using|Bitmap Index Scan on|Tid Scan on) (\w+)`)
	f := newFixture(t)
	// Of an index the first column must be looked for: else it is walked over from end to end.
	first := map[string]string{}
	rows, err := f.sql.Query(f.ctx, `SELECT c.relname AS index, pg_get_indexdef(i.indexrelid, 1, false) AS column
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'a2a'::regnamespace`)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByName[struct{ Index, Column string }])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range columns {
		first[c.Index] = c.Column
	}
	statements := strings.Fields(`TaskClaim
		EventAppend TaskSubmit MessageAdd TaskCancel TaskLockForCaller LeaseRenew LeaseHold LeaseRelease LeaseRetry RunEnded TaskStates TasksAhead
		EventsAfter EventUID ArtifactFold TaskHeadForCaller TaskHeadSharedForCaller TaskSnapshots TaskSnapshotAt TaskCountInFlightForCaller PushHeadMove PushClaim PushFirst PushTarget
		PushDelivered PushFailed PushRenew PushReleased PushAttemptInsert`)
	look := func(when string) {
		t.Helper()
		for _, name := range statements {
			settings := ""
			if name == "TaskClaim" {
				settings = claim
			}
			plan := f.explain(settings, name)
			looked := 0
			for i, line := range plan {
				m := scan.FindStringSubmatch(line)
				if m == nil || m[2] == "push_destinations" { // those that fail
					continue
				}
				looked++
				cond := ""
				if i+1 < len(plan) && strings.Contains(plan[i+1], "Cond: ") {
					cond = plan[i+1]
				}
				if cond == "" || first[m[2]] != "" && !regexp.MustCompile(`\b`+first[m[2]]+`\b`).MatchString(cond) {
					t.Errorf("%s, %s: %s\n%s", when, name, m[0], strings.Join(plan, "\n"))
				}
			}
			if looked == 0 && name != "TaskSubmit" && name != "PushAttemptInsert" {
				t.Errorf("%s, %s: no scan was found in\n%s", when, name, strings.Join(plan, "\n"))
			}
		}
	}
	look("new tables")
	f.submitMany(1)
	vacuum := func() {
		if _, err := f.sql.Exec(f.ctx, "VACUUM ANALYZE"); err != nil {
			t.Fatal(err)
		}
	}
	vacuum()
	look("one task")
	f.claim(1)
	vacuum()
	look("one lease")
	f.exec("TRUNCATE a2a.tasks, a2a.task_leases, a2a.task_ready, a2a.task_events, a2a.task_attempts, a2a.messages")
	vacuum()
	look("nothing any more")
}

// What many runs append at once is put together by hash: row by row it would be quadratic.
func TestAppendJoinsGroupsByHash(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	plan := strings.Join(f.explain("", "EventAppend"), "\n")
	if got := strings.Count(plan, "Hash Join"); got != 2 { // events, and messages, to their batches
		t.Errorf("%d hash joins in\n%s", got, plan)
	}
}
