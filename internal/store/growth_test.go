package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// grows says why a statement without a scan may read more when there are more tasks.
var grows = map[string]string{
	"PurgeScan":      "operator: walks all tasks in the order of their ids, for filters that are not known in advance",
	"RecentFailures": "operator: walks the tasks that failed, for filters that are not known in advance",
	"Questions":      "operator: walks the tasks that wait for a person, for filters that are not known in advance",
}

// ofCallers reports whether the role that sees only the caller's rows runs a statement.
func ofCallers(name string) bool {
	return strings.HasSuffix(name, "ForCaller") || name == "TaskSnapshots" || name == "TaskSizes"
}

// No statement costs more because there are other tasks, whatever PostgreSQL knows about the tables: each one is run
// with arguments for the tasks of one caller while tasks of other callers are added. make test-plans does it with
// millions of tasks, and on several versions of PostgreSQL.
func TestStatementsReadNoOtherTasks(t *testing.T) {
	t.Parallel()
	sizes, chunks := growthSizes(t)
	g := newGrowth(t, chunks)
	statements := g.Statements()
	for name := range grows {
		if _, ok := statements[name]; !ok {
			t.Errorf("there is no statement %s", name)
		}
	}
	most, have := map[string]int{}, 0
	for _, n := range sizes {
		g.CopyTasks(g.models(), have, n, wholeCopies/chunks)
		have = n
		g.check(fmt.Sprintf("%d other tasks, not analyzed", n), statements, most)
		if _, err := g.SQL.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
			t.Fatal(err)
		}
		g.check(fmt.Sprintf("%d other tasks", n), statements, most)
	}
	for key := range values {
		if !g.used[key] {
			t.Errorf("no statement uses the value of %q", key)
		}
	}
}

// wholeCopies is how many chunks the copies have together at most. Beyond them, other tasks have no chunks.
const wholeCopies = 3_000_000

// growthSizes returns the numbers of other tasks, and how many chunks of an artifact each task has.
func growthSizes(t *testing.T) (sizes []int, chunks int) {
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("A2AD_TEST_PLANS=%q, want numbers of tasks, and A2AD_TEST_PLANS_CHUNKS a number of chunks", s)
		}
		return n
	}
	chunks = 10
	if v := os.Getenv("A2AD_TEST_PLANS_CHUNKS"); v != "" {
		chunks = number(v)
	}
	for _, s := range strings.Fields(os.Getenv("A2AD_TEST_PLANS")) {
		sizes = append(sizes, number(s))
	}
	if sizes == nil {
		sizes = []int{300, 3000}
	}
	return sizes, chunks
}

// growth is a database in which the number of other tasks grows.
type growth struct {
	*storetest.Fixture
	probes []probe
	conns  map[string]*pgx.Conn // by who uses them
	first  map[string]string    // first columns of indexes
	used   map[string]bool      // keys of values
}

// probe is a task of the caller.
type probe struct {
	id                      a2a.ID
	epoch, lastSeq, webhook string
}

func newGrowth(t *testing.T, chunks int) *growth {
	t.Helper()
	g := &growth{Fixture: storetest.Open(t), conns: map[string]*pgx.Conn{}, used: map[string]bool{}}
	g.first = firstColumns(g.Fixture)
	g.Exec(`
		DO $$ DECLARE c regclass; BEGIN
		  FOR c IN SELECT oid FROM pg_class WHERE relnamespace = 'a2a'::regnamespace AND relkind = 'r' LOOP
		    EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', c);
		  END LOOP;
		END $$`)
	completed := storetest.Status(a2a.StateCompleted, "done")
	g.addProbe(max(chunks, 40), completed) // the store folds its artifact
	g.addProbe(chunks, storetest.Status(a2a.StateFailed, "no"))
	g.addProbe(chunks, storetest.Status(a2a.StateInputRequired, "why?"))
	g.addProbe(chunks, &a2a.Wait{Signal: "go"})
	g.addProbe(chunks, nil)
	g.addProbe(0, nil)
	for who, role := range map[string]string{
		"an owner": db.RoleApp, "a tenant": db.RoleApp, "the server": db.RoleWorker,
	} {
		conn, err := pgx.Connect(t.Context(), g.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(t.Context()) })
		g.conns[who] = conn
		if _, err := conn.Exec(t.Context(), storetest.PlanSettings+"; SET ROLE "+role+
			"; SET a2a.tenant = 'acme'; SET a2a.owner = 'ann'; SET a2a.sharing = "+
			map[bool]string{true: "tenant", false: "owner"}[who == "a tenant"]); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// addProbe adds a task with chunks that ended its run in some way, or still runs. Without chunks nobody has claimed it.
func (g *growth) addProbe(chunks int, end a2a.Event) {
	g.T.Helper()
	id := g.Submit(tasks.Submission{
		Caller: storetest.Ann, Agent: storetest.Agent, ContextID: "talk", Key: fmt.Sprintf("h:k%d", len(g.probes)),
		Message: storetest.Message("m", "x"),
	}).Task
	g.SetWebhook(id, "hook")
	if chunks > 0 {
		l := g.ClaimTask(id)
		for i := range chunks {
			g.Append(l, storetest.Chunk("a", fmt.Sprint(i)))
		}
		b := tasks.Batch{
			Checkpoint: a2a.Raw(`{}`), Usage: []a2a.Usage{{Model: "m", Input: 1}},
			Steps: []a2a.StepRecord{{
				Seq: 1, Kind: a2a.StepWork, Step: a2a.Step{Key: "s", Result: a2a.Raw(`1`)}, Ended: true,
			}},
		}
		if wait, ok := end.(*a2a.Wait); ok {
			b.Wait = wait
		} else if end != nil {
			b.Events = []a2a.Event{end}
		}
		if _, err := g.Tasks.Append(g.T.Context(), l, b); err != nil {
			g.T.Fatal(err)
		}
	}
	p := probe{id: id}
	row := g.SQL.QueryRow(g.T.Context(), `SELECT t.lease_epoch::text, t.last_seq::text, w.id::text
		FROM a2a.tasks t JOIN a2a.push_configs w ON w.task_id = t.id WHERE t.id = $1`, id)
	if err := row.Scan(&p.epoch, &p.lastSeq, &p.webhook); err != nil {
		g.T.Fatal(err)
	}
	g.probes = append(g.probes, p)
}

func (g *growth) models() (ids []a2a.ID) {
	for _, p := range g.probes {
		ids = append(ids, p.id)
	}
	return ids
}

// check runs all statements. most is how many blocks each may read; the first check sets it.
func (g *growth) check(when string, statements map[string]storetest.NamedStatement, most map[string]int) {
	g.T.Helper()
	all, found, refused := 0, 0, 0
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		for who := range g.conns {
			if who != "the server" && !ofCallers(name) {
				continue
			}
			c, err := g.cost(who, name, statements[name])
			if db.IsCode(err, "42501") { // a role with other rights runs it
				refused++
				continue
			}
			if err != nil {
				g.T.Errorf("%s for %s: %v", name, who, err)
				continue
			}
			if ofTasks.MatchString(statements[name].SQL) {
				all++
				if c.found {
					found++
				}
			}
			key := name + " for " + who
			limit, ok := most[key]
			if !ok {
				most[key] = 3*c.blocks + 50*len(g.probes) // indexes get deeper
			}
			exempt := scans[name]+grows[name] != "" && !ofCallers(name)
			if ok && !exempt && c.blocks > limit {
				g.T.Errorf("%s, %s: reads %d blocks, more than %d\n%s", when, key, c.blocks, limit, c.plan)
			}
			if scans[name] == "" && len(c.full) > 0 {
				g.T.Errorf("%s, %s: %s\n%s", when, key, strings.Join(c.full, ", "), c.plan)
			}
		}
	}
	g.T.Logf("%s: %d of %d statements about tasks found rows; %d are for other roles", when, found, all, refused)
	if 10*found < 6*all { // the others have the wrong arguments, or need tasks in another state
		g.T.Errorf("%s: only %d of %d statements about tasks found rows", when, found, all)
	}
}

// ofTasks matches statements that read or change a table with rows of each task.
var ofTasks = regexp.MustCompile(
	`(?:FROM|JOIN|UPDATE|USING) a2a\.(?:` + strings.Join(storetest.TablesOfTasks, "|") + `)\b`)

// cost is what a statement did for all probes.
type cost struct {
	blocks, most int      // for all probes, and for one
	found        bool     // rows
	full         []string // tables and indexes that the plan reads completely
	plan         string   // with the most blocks
}

// cost runs a statement for each probe and rolls it back.
func (g *growth) cost(who, name string, s storetest.NamedStatement) (c cost, err error) {
	ctx, conn := g.T.Context(), g.conns[who]
	settings := "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; "
	if strings.Contains(scans[name], "planned for its arguments") {
		settings = "SET plan_cache_mode = force_custom_plan; SET enable_seqscan = on; "
	} else if name == "TaskClaim" {
		settings += claimSettings + "; "
	}
	if _, err := conn.Exec(ctx, settings+"PREPARE planned AS "+s.SQL); err != nil {
		return c, err
	}
	defer func() {
		if _, e := conn.Exec(ctx, "DEALLOCATE planned; RESET enable_bitmapscan; RESET enable_hashjoin; "+
			"RESET enable_mergejoin"); err == nil {
			err = e
		}
	}()
	var types []string
	if err := conn.QueryRow(ctx, `SELECT ARRAY(SELECT t::text FROM pg_catalog.unnest(parameter_types) t)
		FROM pg_catalog.pg_prepared_statements WHERE name = 'planned'`).Scan(&types); err != nil {
		return c, err
	}
	var refused error
	ran := false
	for _, p := range g.probes {
		out, err := g.explain(conn, p, "EXECUTE planned"+g.arguments(who, name, s.Params, types, p))
		if db.IsCode(err, "23505") || db.IsCode(err, "23514") { // for a task in this state
			refused = err
			continue
		}
		if err != nil {
			return c, err
		}
		ran = true
		var plans []struct{ Plan plan }
		if err := json.Unmarshal(out, &plans); err != nil {
			return c, err
		}
		n, found := plans[0].Plan.blocks()
		if n >= c.most {
			c.most, c.plan = n, plans[0].Plan.text("  ")
		}
		c.blocks, c.found = c.blocks+n, c.found || found
		c.full = plans[0].Plan.full(g.first, nil)
	}
	if !ran {
		return c, refused
	}
	return c, nil
}

// explain runs a statement in a transaction that it rolls back.
func (g *growth) explain(conn *pgx.Conn, p probe, sql string) (out []byte, err error) {
	err = pgx.BeginFunc(g.T.Context(), conn, func(tx pgx.Tx) error {
		named := "{" + p.id.String() + "}"
		if _, err := tx.Exec(g.T.Context(), "SELECT set_config('a2a.tasks', $1, true)", named); err != nil {
			return err
		}
		explain := "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + sql
		if err := tx.QueryRow(g.T.Context(), explain, pgx.QueryExecModeSimpleProtocol).Scan(&out); err != nil {
			return err
		}
		return errRollBack
	})
	if errors.Is(err, errRollBack) {
		err = nil
	}
	return out, err
}

var errRollBack = errors.New("roll back")

// plan is what PostgreSQL says about one node of a plan, after its execution.
type plan struct {
	Type   string  `json:"Node Type"`
	Index  string  `json:"Index Name"`
	Table  string  `json:"Relation Name"`
	Cond   string  `json:"Index Cond"`
	Tid    string  `json:"TID Cond"`
	Actual float64 `json:"Actual Rows"`
	Hit    int     `json:"Shared Hit Blocks"`
	Read   int     `json:"Shared Read Blocks"`
	Plans  []plan  `json:"Plans"`
}

// ofServer reports whether a node reads a table of PostgreSQL itself.
func (p *plan) ofServer() bool {
	return strings.HasPrefix(p.Table, "pg_") || strings.HasPrefix(p.Index, "pg_")
}

// blocks returns how many blocks of tables and indexes the plan read, and whether it found a row. Blocks of a scan
// within a scan count twice.
func (p *plan) blocks() (n int, found bool) {
	if (strings.HasSuffix(p.Type, "Scan") || p.Type == "ModifyTable") && !p.ofServer() {
		n, found = p.Hit+p.Read, p.Table != "" && p.Actual > 0
	}
	for i := range p.Plans {
		m, f := p.Plans[i].blocks()
		n, found = n+m, found || f
	}
	return n, found
}

// text describes the plan, a line for each node.
func (p *plan) text(indent string) string {
	line := fmt.Sprintf("%s%s %s %s: %d blocks, %v rows", indent, p.Type, p.Table, p.Index, p.Hit+p.Read, p.Actual)
	if p.Cond != "" {
		line += ", " + p.Cond
	}
	for i := range p.Plans {
		line += "\n" + p.Plans[i].text(indent+"  ")
	}
	return line
}

// full appends the tables and indexes that the plan would read completely, also in nodes that were not executed.
func (p *plan) full(first map[string]string, list []string) []string {
	if p.Type == "Seq Scan" || p.Type == "Sample Scan" || p.Type == "Tid Scan" && p.Tid == "" ||
		p.Index != "" && !strings.Contains(p.Cond, first[p.Index]) || p.Index != "" && p.Cond == "" {
		if !p.ofServer() {
			list = append(list, p.Type+" on "+p.Table+p.Index)
		}
	}
	for i := range p.Plans {
		list = p.Plans[i].full(first, list)
	}
	return list
}
