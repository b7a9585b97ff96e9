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

// scans says why a statement may read a whole table or index. All others look rows up by key.
var scans = map[string]string{
	"APIKeyList":            "report: all keys",
	"BrowserSessionList":    "report: a table of one row for each browser that is signed in (DB.Browse)",
	"BrowserSessionsRevoke": "operator: a table of one row for each browser that is signed in",
	"ActionList":            "report: planned for its arguments (DB.Search)",
	"CancelsForget":         "maintenance: task_cancels holds only what agents do not know yet",
	"CountLeases":           "report: planned for its arguments (DB.Search)",
	"CountOpen":             "report: planned for its arguments (DB.Search); only tasks that have not ended",
	"CountParked":           "report and metrics: planned for its arguments (DB.Search)",
	"CountPushes":           "report: planned for its arguments (DB.Search)",
	"CountLanes":            "report: planned for its arguments (DB.Browse)",
	"CountReady":            "report: planned for its arguments (DB.Search)",
	"CountWaiting":          "report and metrics: planned for its arguments (DB.Search)",
	"CountTasks":            "report: planned for its arguments (DB.Search), and reads a sample of ended tasks",
	"CountTicksMissed":      "metrics: planned for its arguments (DB.Search)",
	"DestinationsDown":      "report: planned for its arguments (DB.Search); only destinations that failed",
	"DestinationsDownCount": "metrics: planned for its arguments (DB.Search); only destinations that failed",
	"JobClaim":              "the index jobs_running has only jobs that have not ended",
	"JobList":               "report: planned for its arguments (DB.Browse)",
	"LeaseRescue":           "reads all leases: an index on lease_until would cost every renewal",
	"OrphanNext":            "task_orphans holds only what is to be canceled at once",
	"Outages":               "a table of one row for each agent that cannot be reached",
	"OutagesForget":         "a table of one row for each agent that cannot be reached",
	"PurgeCount":            "operator: planned for its arguments (DB.Search)",
	"PushBacklog":           "metrics: planned for its arguments (DB.Search)",
	"PushDestinations":      "operator: planned for its arguments (DB.Browse)",
	"PushesSince":           "operator: planned for its arguments (DB.Browse)",
	"PushList":              "operator: planned for its arguments (DB.Search)",
	"PushSweepDestinations": "maintenance: only destinations that failed",
	"QueueDepths":           "metrics: planned for its arguments (DB.Search)",
	"AgentsSeen":            "a table of one row for each agent with remote workers",
	"RunsBySilence":         "report: planned for its arguments (DB.Search)",
	"ScheduleList":          "a table of one row for each schedule of the agent files",
	"SavedViewInsert":       "a table of what operators have saved, about 50 rows",
	"SavedViews":            "a table of what operators have saved, about 50 rows",
	"SchemaFloor":           "a table of one row",
	"SchemaVersion":         "a table of one row for each migration",
	"SealedWith":            "doctor: tries all sealed secrets",
	"ServerKeys":            "a table of a few keys",
	"UsageByDay":            "report: planned for its arguments (DB.Search)",
	"UsageSum":              "maintenance: usage_pending holds only what was reported in the last minute",
	"WorkersForget":         "a table of one row for each worker that was in touch lately",
	"WorkersKnown":          "a table of one row for each worker that was in touch lately",
	"WorkersBusy":           "report: planned for its arguments (DB.Browse); reads all leases",
	"WaitsAnchor":           "reads all leases, like LeaseRescue; of other waits only those that began in the future",
	"TaskCountForCaller":    "planned for its arguments (DB.SearchAs)",
	"TaskList":              "operator: planned for its arguments (DB.Search)",
	"LeasesExpire":          "operator: reads all leases, like LeaseRescue",
	"RunningByAgent":        "report: planned for its arguments (DB.Browse); reads all leases",
	"Stops":                 "a table of what operators have stopped, at most 1,000 rows",
	"TaskSearch":            "operator: planned for its arguments (DB.Browse)",
	"TaskPageForCaller":     "planned for its arguments (DB.SearchAs)",
}

// claimSettings are those of the connections that claim.
const claimSettings = "SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"

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

// firstColumns returns the first column of each index. A condition without that column reads the whole index.
func firstColumns(f *storetest.Fixture) map[string]string {
	f.T.Helper()
	rows, err := f.SQL.Query(f.T.Context(),
		`SELECT c.relname AS index, pg_get_indexdef(i.indexrelid, 1, false) AS column
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
	aScan = regexp.MustCompile(`(Seq Scan on|Sample Scan on|Bitmap Index Scan on|Tid Scan on|` +
		`(?:Index|Index Only) Scan (?:Backward )?using) (\w+)`)
	aTable = regexp.MustCompile(`(?:FROM|JOIN|USING|UPDATE) a2a\.\w+`)
)

// fullScans returns what a plan reads completely, and how many scans the plan has.
func fullScans(first map[string]string, plan []string) (full []string, count int) {
	for i, line := range plan {
		m := aScan.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		count++
		if strings.HasPrefix(m[2], "pg_") { // tables of PostgreSQL are small
			continue
		}
		cond := ""
		if i+1 < len(plan) && strings.Contains(plan[i+1], "Cond: ") {
			cond = plan[i+1]
		}
		if cond == "" || first[m[2]] != "" && !regexp.MustCompile(`\b`+first[m[2]]+`\b`).MatchString(cond) {
			full = append(full, m[0])
		}
	}
	return full, count
}

// A connection keeps the first plan of a statement. A plan that reads a whole table while it has one row reads the
// whole table when it has a million rows, too. So no statement may have such a plan unless scans says why.
func TestPlansLookUpWhateverTheStatistics(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	first := firstColumns(f)
	names := statements(t)
	for name := range scans {
		if !slices.Contains(names, name) {
			t.Errorf("there is no statement %s", name)
		}
	}
	scanned := map[string]bool{}
	check := func(when string) {
		t.Helper()
		for _, name := range names {
			settings := ""
			if name == "TaskClaim" {
				settings = claimSettings
			}
			plan := f.Explain(settings, name)
			full, count := fullScans(first, plan)
			if len(full) > 0 && scans[name] != "" {
				scanned[name] = true
			} else if len(full) > 0 {
				t.Errorf("%s, %s: %s\n%s", when, name, strings.Join(full, ", "), strings.Join(plan, "\n"))
			}
			if count == 0 && aTable.MatchString(f.Statement(name)) {
				t.Errorf("%s, %s: no scan was found in\n%s", when, name, strings.Join(plan, "\n"))
			}
		}
	}
	check("new tables")
	f.SubmitMany(1)
	vacuum := func() {
		if _, err := f.SQL.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
			t.Fatal(err)
		}
	}
	vacuum()
	check("one task")
	f.Claim(1)
	vacuum()
	check("one lease")
	f.Exec("TRUNCATE a2a.tasks, a2a.task_leases, a2a.task_ready, a2a.task_events, a2a.task_attempts, a2a.messages")
	vacuum()
	check("empty tables")
	for name, why := range scans {
		// The test does not control the statistics of PostgreSQL's own tables.
		if !scanned[name] && !strings.HasSuffix(why, "PostgreSQL's own tables") {
			t.Errorf("%s looks up every row: it needs no exemption", name)
		}
	}
}
