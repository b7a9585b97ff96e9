package operate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/pgcheck"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestListTasksByTimeAndIDPrefix(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	var made []a2a.ID
	for i := range 4 { // a minute apart
		id, created := db.NewTaskID(), at.Add(time.Duration(i)*time.Minute)
		ms := created.UnixMilli()
		for b := range 6 {
			id[b] = byte(ms >> (8 * (5 - b)))
		}
		made = append(made, id)
		in := storetest.Submission("x")
		in.NewTask = id
		f.Submit(in)
		f.Exec("UPDATE a2a.tasks SET created_at = $1 WHERE id = $2", created, id)
	}
	for _, tc := range []struct {
		name string
		f    operate.TaskFilter
		want []a2a.ID
	}{
		{"since", operate.TaskFilter{Since: at.Add(2 * time.Minute)}, []a2a.ID{made[3], made[2]}},
		{"until, which is exclusive", operate.TaskFilter{Until: at.Add(time.Minute)}, []a2a.ID{made[0]}},
		{
			"between", operate.TaskFilter{Since: at.Add(time.Second), Until: at.Add(3 * time.Minute)},
			[]a2a.ID{made[2], made[1]},
		},
		{"prefix", operate.TaskFilter{Prefix: made[1].String()[:12]}, []a2a.ID{made[1]}},
		{"prefix in capitals, without dashes, of odd length", operate.TaskFilter{Prefix: "019CB4F"}, nil},
		{"whole id as prefix", operate.TaskFilter{Prefix: made[2].String()}, []a2a.ID{made[2]}},
		{
			"prefix and time", operate.TaskFilter{Prefix: made[0].String()[:4], Since: at.Add(3 * time.Minute)},
			[]a2a.ID{made[3]},
		},
	} {
		tc.f.Limit = 10
		rows, err := f.Operate.ListTasks(t.Context(), tc.f)
		if err != nil {
			t.Fatal(err)
		}
		var got []a2a.ID
		for _, r := range rows {
			got = append(got, r.ID)
		}
		if tc.name == "prefix in capitals, without dashes, of odd length" {
			if made[0].String()[:7] == "019cb4f" && len(got) == 0 {
				t.Errorf("%s: nothing", tc.name)
			}
			continue
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	for _, prefix := range []string{"x", "019%", made[0].String() + "0"} {
		_, err := f.Operate.ListTasks(t.Context(), operate.TaskFilter{Prefix: prefix, Limit: 1})
		if !errors.Is(err, operate.ErrNoPrefix) {
			t.Errorf("prefix %q: %v, want ErrNoPrefix", prefix, err)
		}
	}
}

// In a large table, the number of ended tasks is estimated from a sample. The others are counted.
func TestTasksOfALargeTableAreEstimated(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.AddCompleted(20_000, "ann", storetest.Agent)
	f.NewTask()
	f.Exec(`UPDATE a2a.tasks SET state = 3 WHERE id = $1`, f.NewTask().String())
	pages := storetest.Value[int64](f, `SELECT pg_relation_size('a2a.tasks') / current_setting('block_size')::bigint`)
	for _, tc := range []struct {
		pages     int64
		estimated bool
	}{{pages + 1, false}, {pages / 2, true}} {
		got, err := countTasks(t.Context(), f.DB, tc.pages)
		if err != nil || len(got) != 3 {
			t.Fatalf("%d of %d pages: %+v, %v", tc.pages, pages, got, err)
		}
		storetest.Same(t, "tasks that have not ended", []operate.TaskCount{
			{Agent: storetest.Agent, State: a2a.StateSubmitted, Tasks: 1},
			{Agent: storetest.Agent, State: a2a.StateInputRequired, Tasks: 1},
		}, got[:2])
		exact := got[2].Tasks == 20_000
		if c := got[2]; c.Estimated != tc.estimated || !tc.estimated && !exact || c.Tasks < 15_000 || c.Tasks > 25_000 {
			t.Errorf("%d of %d pages: %+v, want about 20,000", tc.pages, pages, c)
		}
	}
	plan := strings.Join(f.Explain("", "CountTasks"), "\n")
	for _, scan := range []string{"tasks_running", "tasks_asking", "Sample Scan on tasks"} {
		if !strings.Contains(plan, scan) {
			t.Errorf("no %s in\n%s", scan, plan)
		}
	}
	if strings.Contains(plan, "Seq Scan on tasks") {
		t.Errorf("the statement reads all tasks:\n%s", plan)
	}
}

func TestOverviewCountsWhatThereIs(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.NewTask()
	canceled := f.NewTask()
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, canceled); err != nil {
		t.Fatal(err)
	}
	f.NewTask()
	f.Claim(1)
	o, err := f.Operate.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "tasks", []operate.TaskCount{
		{Agent: storetest.Agent, State: a2a.StateSubmitted, Tasks: 1},
		{Agent: storetest.Agent, State: a2a.StateWorking, Tasks: 1},
		{Agent: storetest.Agent, State: a2a.StateCanceled, Tasks: 1},
	}, o.Tasks)
	if len(o.Queues) != 1 || o.Queues[0].Agent != storetest.Agent || o.Queues[0].Waiting != 1 || o.Queues[0].Due != 1 ||
		o.Queues[0].Oldest < 0 {
		t.Errorf("queues %+v", o.Queues)
	}
	if len(o.Workers) != 1 || o.Workers[0].Running != 1 || o.Workers[0].Expired != 0 {
		t.Errorf("workers %+v", o.Workers)
	}
	isTasks := func(s operate.TableSize) bool { return s.Name == "tasks" && s.Bytes > 0 }
	if o.Bytes == 0 || !slices.ContainsFunc(o.Tables, isTasks) {
		t.Errorf("%d bytes, tables %+v", o.Bytes, o.Tables)
	}
	if len(o.Replicas) == 0 || o.Replicas[0].Connections == 0 || o.Replicas[0].Listens {
		t.Errorf("replicas %+v", o.Replicas)
	}
}

// Operators and alerts see each kind of delay apart from the others.
func TestOverviewAndGaugesShowDelays(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	hooked := map[string]a2a.ID{}
	for _, name := range []string{"late", "slow", "dead", "off", "deleted"} {
		in, p := storetest.Submission("x"), storetest.NewWebhook("default")
		in.Push = &p
		hooked[name] = f.Submit(in).Task
	}
	f.Claim(5)
	if err := f.Webhooks.Delete(t.Context(), storetest.Ann, hooked["deleted"], "default"); err != nil {
		t.Fatal(err)
	}
	due, later := f.NewTask(), f.NewTask()
	for _, change := range []struct {
		task  a2a.ID
		query string
	}{
		{hooked["late"], "UPDATE a2a.push_configs SET attempt = 1 WHERE task_id = $1"},
		{hooked["dead"], "UPDATE a2a.push_configs SET state = 'dead', reason = 'x' WHERE task_id = $1"},
		{hooked["off"], "UPDATE a2a.push_configs SET state = 'disabled', reason = 'x' WHERE task_id = $1"},
		{hooked["late"], `
			UPDATE a2a.task_events SET committed_at = committed_at - interval '2 h' WHERE seq = 1 AND task_id = $1`},
		{hooked["dead"], `
			UPDATE a2a.task_events SET committed_at = committed_at - interval '3 h' WHERE seq = 1 AND task_id = $1`},
		{hooked["deleted"], `
			UPDATE a2a.task_events SET committed_at = committed_at - interval '4 h' WHERE seq = 1 AND task_id = $1`},
		{hooked["off"], `
			UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 s' WHERE task_id = $1`},
		{hooked["slow"], "UPDATE a2a.tasks SET last_at = last_at - interval '5 h' WHERE id = $1"},
		{hooked["slow"], "UPDATE a2a.task_attempts SET claimed_at = claimed_at - interval '6 h' WHERE task_id = $1"},
		{due, "UPDATE a2a.task_ready SET run_at = clock_timestamp() - interval '1 h' WHERE task_id = $1"},
		{later, "UPDATE a2a.task_ready SET run_at = clock_timestamp() + interval '1 h' WHERE task_id = $1"},
		{due, `
			INSERT INTO a2a.push_destinations (tenant, origin, open_until)
			SELECT 'acme', 'open', t.created_at + interval '1 h' FROM a2a.tasks t WHERE t.id = $1`},
		{due, `
			INSERT INTO a2a.push_destinations (tenant, origin, open_until)
			SELECT 'acme', 'closed', t.created_at FROM a2a.tasks t WHERE t.id = $1`},
		{due, `
			INSERT INTO a2a.push_destinations (tenant, origin, open_until, disabled_at)
			SELECT 'acme', 'off', t.created_at + interval '1 h', t.created_at FROM a2a.tasks t WHERE t.id = $1`},
	} {
		if n := f.Exec(change.query, change.task.String()); n != 1 {
			t.Fatalf("%s: %d rows, want 1", change.query, n)
		}
	}
	about := func(what string, got, want time.Duration) {
		t.Helper()
		if got < want || got > want+10*time.Minute {
			t.Errorf("%s: %s, want about %s", what, got, want)
		}
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

	g, err := f.Operate.Gauges(t.Context())
	if err != nil || len(g.Queues) != 1 {
		t.Fatalf("%+v, %v", g, err)
	}
	storetest.Same(t, "gauges",
		[]int64{1, 2, 1, 1}, []int64{g.Queues[0].Waiting, g.PushBacklog, g.DestinationsOpen, g.DestinationsOff})
	about("the oldest task in the queue", seconds(g.Queues[0].Oldest), time.Hour)
	about("the oldest event", seconds(g.PushOldest), 2*time.Hour)

	o, err := f.Operate.Overview(t.Context())
	if err != nil || len(o.Queues) != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	storetest.Same(t, "queue", []int64{2, 1}, []int64{o.Queues[0].Waiting, o.Queues[0].Due})
	about("the oldest task in the queue", o.Queues[0].Oldest, time.Hour)
	storetest.Same(t, "workers", []operate.WorkerLoad{{Worker: "r1", Running: 5, Expired: 1}}, o.Workers)
	if len(o.Runs) != 5 || o.Runs[0].Task != hooked["slow"] || o.Runs[0].Agent != storetest.Agent ||
		o.Runs[0].Worker != "r1" || o.Runs[0].Attempt != 1 || o.Runs[0].LastSeq != 2 {
		t.Fatalf("runs %+v", o.Runs)
	}
	about("the run that began first", o.Runs[0].Age, 6*time.Hour)
	about("the run that is silent", o.Runs[0].Silent, 5*time.Hour)
	if o.Runs[1].Silent > o.Runs[0].Silent || o.Runs[1].Silent > 10*time.Minute {
		t.Errorf("the second run has been silent for %s", o.Runs[1].Silent)
	}
	about("the oldest event", o.Push.Oldest, 2*time.Hour)
	o.Push.Oldest = 0
	storetest.Same(t, "webhooks", operate.PushBacklog{Webhooks: 2, Events: 4, Failing: 1, Dead: 1, Disabled: 1}, o.Push)
	var down []string
	for _, d := range o.Down {
		down = append(down, fmt.Sprintf("%s, disabled %t", d.Origin, !d.DisabledAt.IsZero()))
	}
	storetest.Same(t, "down", []string{"off, disabled true", "open, disabled false"}, down)
}

func TestGaugesAndOverviewShowTheOldestTransaction(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	conn, err := pgx.Connect(t.Context(), f.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	// The transaction of a forgotten psql.
	for _, query := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM a2a.tasks"} {
		if _, err := conn.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	var age float64
	for age < 1.1 {
		const query = "SELECT extract(epoch FROM clock_timestamp() - now())::float8"
		if err := conn.QueryRow(t.Context(), query).Scan(&age); err != nil {
			t.Fatal(err)
		}
	}
	g, err := f.Operate.Gauges(t.Context())
	if err != nil || g.OldestTransaction < age {
		t.Errorf("the oldest transaction is %v s old, want %v or more: %v", g.OldestTransaction, age, err)
	}
	o, err := f.Operate.Overview(t.Context())
	isOurs := func(x operate.OpenTransaction) bool { return x.PID == int(conn.PgConn().PID()) }
	if err != nil || !slices.ContainsFunc(o.Transactions, isOurs) {
		t.Errorf("the transaction is not in %+v: %v", o.Transactions, err)
	}
}

func TestTimelineShowsTheSourceOfEachEvent(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t, func(c *store.Config) { c.Actor = "operator ann@desk" })
	id := f.NewTask()
	f.Claim(1)
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, id); err != nil {
		t.Fatal(err)
	}
	tl, err := f.Operate.Timeline(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var sources []int16
	for _, e := range tl.Events {
		sources = append(sources, e.Source)
	}
	storetest.Same(t, "sources", []int16{operate.SourceCaller, operate.SourceWorker, operate.SourceCaller}, sources)
	if len(tl.Messages) != 1 || tl.Messages[0].AtSeq != 1 || len(tl.Attempts) != 1 ||
		tl.Attempts[0].Outcome != "canceled" || len(tl.Actions) != 1 || len(tl.Tries) != 0 {
		t.Errorf("timeline %+v, want 1 message, 1 canceled attempt and 1 action", tl)
	}
}

func TestInspectFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in, err := pgcheck.Inspect(t.Context(), f.URL)
	if err != nil {
		t.Fatal(err)
	}
	if in.Version < 150000 || in.Encoding != "UTF8" || in.Schema != operate.SchemaVersion() || len(in.Roles) != 4 ||
		len(in.CannotBe) != 0 || len(in.Unread) != 0 ||
		in.Pooler != (pgcheck.Pooler{}) || in.Settings["fsync"].Value == "" || len(in.BrokenIndex) != 0 ||
		in.SchemaErr != nil {
		t.Errorf("a healthy database: %+v", in)
	}
	for _, table := range in.Tables {
		if table.Owner != "a2a_owner" || !table.View && !table.Secured || !table.WorkerReads || table.AppWrites ||
			table.View != table.AuditReads {
			t.Errorf("a healthy database: table %+v", table)
		}
	}
	conn, err := pgx.Connect(t.Context(), f.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, fault := range []string{
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$",
		"GRANT UPDATE ON a2a.tasks TO a2a_app", "ALTER TABLE a2a.tasks NO FORCE ROW LEVEL SECURITY",
		"REVOKE SELECT ON a2a.messages FROM a2a_worker",
		`DELETE FROM public.a2a_goose_version
		WHERE version_id = (SELECT max(version_id) FROM public.a2a_goose_version)`,
	} {
		if _, err := conn.Exec(t.Context(), fault); err != nil {
			t.Fatalf("%s: %v", fault, err)
		}
	}
	if in, err = pgcheck.Inspect(t.Context(), f.URL); err != nil {
		t.Fatal(err)
	}
	rights := map[string]pgcheck.TableRights{}
	for _, r := range in.Tables {
		rights[r.Name] = r
	}
	if in.Settings["synchronous_commit"].Value != "off" || in.Schema >= operate.SchemaVersion() ||
		!rights["tasks"].AppWrites || rights["tasks"].Secured || rights["messages"].WorkerReads {
		t.Errorf("a database with faults: %+v", in)
	}
}

// countTasks counts as the overview does, with pages as the size of a large table.
func countTasks(ctx context.Context, d *db.DB, pages int64) (list []operate.TaskCount, err error) {
	err = d.Search(ctx, func(tx *db.Tx) error {
		list, err = operate.CountTasks(ctx, tx, pages)
		return err
	})
	return list, err
}
