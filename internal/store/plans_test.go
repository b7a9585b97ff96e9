package store_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// walks says why a statement may read a table, or an index, from end to end. All others look up.
var walks = map[string]string{
	"APIKeyList":            "report: all keys",
	"ActionList":            "report: planned for its arguments (Store.search)",
	"CancelsForget":         "maintenance: task_cancels holds only what agents were not told yet",
	"CountLeases":           "report: planned for its arguments (Store.search)",
	"CountPushes":           "report: planned for its arguments (Store.search)",
	"CountReady":            "report: planned for its arguments (Store.search)",
	"CountTasks":            "report: planned for its arguments (Store.search), and reads a sample of ended tasks",
	"DestinationsDown":      "report: planned for its arguments (Store.search); only destinations that failed",
	"DestinationsDownCount": "metrics: planned for its arguments (Store.search); only destinations that failed",
	"LeaseRescue":           "reads all leases, which are the tasks that run now: an index on lease_until would cost each renewal",
	"PurgeCount":            "operator: planned for its arguments (Store.search)",
	"PushBacklog":           "metrics: planned for its arguments (Store.search)",
	"PushList":              "operator: planned for its arguments (Store.search)",
	"PushSweepDestinations": "maintenance: only destinations that failed",
	"QueueDepths":           "metrics: planned for its arguments (Store.search)",
	"RunsBySilence":         "report: planned for its arguments (Store.search)",
	"SchemaFloor":           "a table of one row",
	"SchemaVersion":         "a table of one row for each migration",
	"SealedWith":            "doctor: tries all sealed secrets",
	"ServerKeys":            "a table of a few keys",
	"WaitsAnchor":           "reads all leases, as LeaseRescue does; of other waits only those that began in the future",
	"TaskCountForCaller":    "planned for its arguments (Store.searchAs)",
	"TaskList":              "operator: planned for its arguments (Store.search)",
	"TaskPageForCaller":     "planned for its arguments (Store.searchAs)",
}

// statements returns the names of all statements in queries.
func statements(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "queries", "*", "*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("queries: %v, %v", files, err)
	}
	name := regexp.MustCompile(`(?m)^-- name: (\w+) :\w+$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return names
}

// firstColumns returns the first column of each index: it must be looked for, else the index
// is walked over from end to end.
func firstColumns(f *storetest.Fixture) map[string]string {
	f.T.Helper()
	rows, err := f.SQL.Query(f.T.Context(), `SELECT c.relname AS index, pg_get_indexdef(i.indexrelid, 1, false) AS column
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'a2a'::regnamespace`)
	if err != nil {
		f.T.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByName[struct{ Index, Column string }])
	if err != nil {
		f.T.Fatal(err)
	}
	first := map[string]string{}
	for _, c := range columns {
		first[c.Index] = c.Column
	}
	return first
}

var (
	aScan  = regexp.MustCompile(`(Seq Scan on|Sample Scan on|(?:Index|Index Only) Scan (?:Backward )?using|Bitmap Index Scan on|Tid Scan on) (\w+)`)
	aTable = regexp.MustCompile(`(?:FROM|JOIN|USING|UPDATE) a2a\.\w+`)
)

// walksOf returns what a plan reads from end to end.
func walksOf(first map[string]string, plan []string) (bad []string, scans int) {
	for i, line := range plan {
		m := aScan.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		scans++
		if strings.HasPrefix(m[2], "pg_") { // PostgreSQL's own tables are small
			continue
		}
		cond := ""
		if i+1 < len(plan) && strings.Contains(plan[i+1], "Cond: ") {
			cond = plan[i+1]
		}
		if cond == "" || first[m[2]] != "" && !regexp.MustCompile(`\b`+first[m[2]]+`\b`).MatchString(cond) {
			bad = append(bad, m[0])
		}
	}
	return bad, scans
}

// A plan that is kept must not be one for tables that are nearly empty now: what reads all of
// a table, because it has one row, reads all of it when it has a million. This is so for each
// statement that there is, but for those which say why they may.
func TestPlansLookUpWhateverTheStatistics(t *testing.T) {
	t.Parallel()
	const claim = "SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
	f := storetest.Open(t)
	first := firstColumns(f)
	names := statements(t)
	for name := range walks {
		if !slices.Contains(names, name) {
			t.Errorf("there is no statement %s any more", name)
		}
	}
	walked := map[string]bool{}
	look := func(when string) {
		t.Helper()
		for _, name := range names {
			settings := ""
			if name == "TaskClaim" {
				settings = claim
			}
			plan := f.Explain(settings, name)
			bad, scans := walksOf(first, plan)
			if len(bad) > 0 && walks[name] != "" {
				walked[name] = true
			} else if len(bad) > 0 {
				t.Errorf("%s, %s: %s\n%s", when, name, strings.Join(bad, ", "), strings.Join(plan, "\n"))
			}
			if scans == 0 && aTable.MatchString(f.Statement(name)) {
				t.Errorf("%s, %s: no scan was found in\n%s", when, name, strings.Join(plan, "\n"))
			}
		}
	}
	look("new tables")
	f.SubmitMany(1)
	vacuum := func() {
		if _, err := f.SQL.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
			t.Fatal(err)
		}
	}
	vacuum()
	look("one task")
	f.Claim(1)
	vacuum()
	look("one lease")
	f.Exec("TRUNCATE a2a.tasks, a2a.task_leases, a2a.task_ready, a2a.task_events, a2a.task_attempts, a2a.messages")
	vacuum()
	look("nothing any more")
	for name, why := range walks {
		// The statistics of PostgreSQL's own tables are not those of the test.
		if !walked[name] && !strings.HasSuffix(why, "PostgreSQL's own tables") {
			t.Errorf("%s looks up all that it reads: it needs no exemption", name)
		}
	}
}
