package tasks_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// lookups are the statements that find a task for its caller, with the role that runs them and their arguments: task,
// tenant, owner and sharing.
var lookups = []struct {
	name, role, args string
	shared           []bool
}{
	{"TaskHeadForCaller", "a2a_app", "'%[1]s', '%[2]s', '%[3]s'", []bool{false}},
	{"TaskHeadSharedForCaller", "a2a_app", "'%[1]s', '%[2]s'", []bool{true}},
	{"TaskLockForCaller", "a2a_worker", "%[4]t, '%[1]s', '%[2]s', '%[3]s'", []bool{false, true}},
}

// aRow matches a plan that found a row in a table.
var aRow = regexp.MustCompile(` on \w+ \w+ \(actual rows=[1-9]`)

// PostgreSQL does the same for the task of another caller as for an unknown id: it reads the same pages and no row. So
// a caller cannot learn from the time of the answer that a task exists. The plan is one that a server keeps, whether
// the tables were empty or full when it was made.
func TestLookupOfAnotherCallersTaskIsLikeThatOfAnUnknownOne(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	strangers := map[string]db.Caller{
		"an owner":                       {Tenant: "acme", Owner: "zoe"},
		"an owner with tasks":            {Tenant: "acme", Owner: "eve"},
		"a tenant":                       {Tenant: "evil", Owner: "bob"},
		"a tenant in front":              {Tenant: "abba", Owner: "bob"},
		"a tenant that shares":           {Tenant: "evil", Owner: "bob", Shared: true},
		"a tenant in front, that shares": {Tenant: "abba", Owner: "bob", Shared: true},
	}
	const theirs, unknown = "019a0000-0500-7000-8000-000000000000", "019a0000-0500-7000-8000-000000000001"
	early := newLookup(f)
	f.Exec(`
		INSERT INTO a2a.tasks (
		  id, tenant, owner, agent, context_id, state, status_at,
		  last_seq, last_at, last_message_seq, last_user_seq, created_at)
		SELECT ('019a0000-' || lpad(to_hex(i), 4, '0') || '-7000-8000-000000000000')::uuid,
		  'acme', CASE WHEN i % 9 = 1 THEN 'eve' ELSE 'bob' END, 'echo', 'c', 2, now(), 0, now(), 0, 0, now()
		FROM generate_series(1, 3000) i`)
	// An update, so that the row has two versions.
	f.Exec(`UPDATE a2a.tasks SET status_at = status_at + interval '1 second' WHERE id = $1`, theirs)
	f.Exec(`ANALYZE a2a.tasks`)
	f.Exec(`ANALYZE a2a.context_tasks`)
	for when, l := range map[string]*lookup{"a plan for empty tables": early, "a plan for full tables": newLookup(f)} {
		for i, s := range lookups {
			for _, shared := range s.shared {
				bob := db.Caller{
					Tenant: "acme", Owner: map[bool]string{false: "bob", true: "eve"}[shared], Shared: shared,
				}
				got := l.explain(i, bob, theirs)
				found := strings.Contains(strings.ReplaceAll(got, ".00", ""), "tasks_pkey on tasks t (actual rows=1 ")
				if !found {
					t.Errorf("%s, %s: its caller does not find the task:\n%s", when, s.name, got)
				}
			}
			for who, c := range strangers {
				if !slices.Contains(s.shared, c.Shared) {
					continue
				}
				l.explain(i, c, theirs) // reads the pages into the cache
				got, want := l.explain(i, c, theirs), l.explain(i, c, unknown)
				if got != want || strings.Contains(got, "Removed") || aRow.MatchString(got) ||
					!strings.Contains(got, "context_tasks_owner") {
					t.Errorf("%s, %s, %s: the task of another caller\n%s\nan unknown task\n%s",
						when, s.name, who, got, want)
				}
			}
		}
	}
}

// lookup has the statements prepared as those of a server.
type lookup struct {
	f    *storetest.Fixture
	conn []*pgx.Conn
}

func newLookup(f *storetest.Fixture) *lookup {
	f.T.Helper()
	l := &lookup{f: f}
	for _, s := range lookups {
		conn, err := pgx.Connect(f.T.Context(), f.URL)
		if err != nil {
			f.T.Fatal(err)
		}
		f.T.Cleanup(func() { conn.Close(context.WithoutCancel(f.T.Context())) })
		l.conn = append(l.conn, conn)
		prepare := storetest.PlanSettings + "; SET ROLE " + s.role + "; PREPARE l AS " + f.Statement(s.name)
		if _, err := conn.Exec(f.T.Context(), prepare); err != nil {
			f.T.Fatal(err)
		}
		// The first execution plans the statement.
		l.explain(len(l.conn)-1, db.Caller{Tenant: "none", Owner: "none"}, "019a0000-0000-7000-8000-000000000000")
	}
	return l
}

// explain looks a task up and returns EXPLAIN ANALYZE.
func (l *lookup) explain(i int, c db.Caller, task string) string {
	l.f.T.Helper()
	var plan []string
	err := pgx.BeginFunc(l.f.T.Context(), l.conn[i], func(tx pgx.Tx) error {
		sharing := map[bool]string{false: "owner", true: "tenant"}[c.Shared]
		const settings = `SELECT set_config('a2a.tenant', $1, true), set_config('a2a.owner', $2, true),
			set_config('a2a.sharing', $3, true)`
		if _, err := tx.Exec(l.f.T.Context(), settings, c.Tenant, c.Owner, sharing); err != nil {
			return err
		}
		args := fmt.Sprintf(lookups[i].args, task, c.Tenant, c.Owner, c.Shared)
		const explain = "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE l "
		rows, err := tx.Query(l.f.T.Context(), explain+"("+args+")")
		if err != nil {
			return err
		}
		plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		l.f.T.Fatal(err)
	}
	return strings.ReplaceAll(strings.Join(plan, "\n"), task, "the task")
}
