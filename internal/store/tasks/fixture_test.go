package tasks_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Most tests need one agent and one caller.
const agent = "words"

var ann = db.Caller{Tenant: "acme", Owner: "ann"}

// fixture is a store on a database of its own, what it told others, and a connection behind its back.
type fixture struct {
	*store.Store
	t   testing.TB
	ctx context.Context
	url string
	sql *pgxpool.Pool

	attemptsGo bool // the test sweeps attempts, so events without one are no fault

	mu        sync.Mutex
	wakes     []string                 // guarded by mu
	committed map[a2a.ID][][]a2a.Entry // guarded by mu
}

func newFixture(t testing.TB, change ...func(*store.Config)) *fixture {
	t.Helper()
	pg := storetest.New(t)
	f := &fixture{t: t, ctx: t.Context(), url: pg.URL, sql: pg.Pool(t), committed: map[a2a.ID][][]a2a.Entry{}}
	f.Store = f.replica("r1", change...)
	return f
}

// replica opens another store on the same database, as another process would.
func (f *fixture) replica(name string, change ...func(*store.Config)) *store.Store {
	f.t.Helper()
	cfg := store.Config{Config: db.Config{URL: f.url, Replica: name, PoolSize: 8}}
	cfg.Wake = func(keys ...string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.wakes = append(f.wakes, keys...)
	}
	cfg.Committed = func(id a2a.ID, events []a2a.Entry) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.committed[id] = append(f.committed[id], events)
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := store.Open(f.ctx, cfg)
	if err != nil {
		f.t.Fatalf("open store: %v", err)
	}
	f.t.Cleanup(s.Close)
	return s
}

// takeWakes returns the keys that were woken since the last call, sorted, each once.
func (f *fixture) takeWakes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := slices.Compact(slices.Sorted(slices.Values(f.wakes)))
	f.wakes = nil
	return keys
}

// takeCommitted returns what Committed was told about a task since the last call, but for how
// many messages there were, which is known only where the answer was not lost.
func (f *fixture) takeCommitted(id a2a.ID) [][]a2a.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.committed[id]
	delete(f.committed, id)
	for _, entries := range calls {
		for i := range entries {
			entries[i].Messages = 0
		}
	}
	return calls
}

func message(id, text string) a2a.Message {
	return a2a.Message{ID: id, Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}
}

func submission(text string) tasks.Submission {
	return tasks.Submission{Caller: ann, Agent: agent, ContextID: "ctx", Message: message("m-"+text, text)}
}

func (f *fixture) submit(in tasks.Submission) tasks.Submitted {
	f.t.Helper()
	out, err := f.Tasks.Submit(f.ctx, in)
	if err != nil {
		f.t.Fatalf("submit: %v", err)
	}
	return out
}

// task submits one new task.
func (f *fixture) task() a2a.ID {
	f.t.Helper()
	return f.submit(submission("hello")).Task
}

// say adds a client's message to a task.
func (f *fixture) say(task a2a.ID, text string) tasks.Submitted {
	f.t.Helper()
	in := submission(text)
	in.Task, in.ContextID = task, ""
	return f.submit(in)
}

const ttl = time.Minute

func (f *fixture) claim(slots int) []tasks.Lease {
	f.t.Helper()
	leases, err := f.Tasks.NewClaimer().Claim(f.ctx, agent, slots, ttl, time.Hour)
	if err != nil {
		f.t.Fatalf("claim: %v", err)
	}
	return leases
}

// submitMany submits n tasks at once.
func (f *fixture) submitMany(n int) {
	f.t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := f.Tasks.Submit(f.ctx, submission("hello")); err != nil {
				f.t.Error(err)
			}
		})
	}
	wg.Wait()
}

// waitGone returns when no backend of that name is left: then what it did is in the statistics.
func (f *fixture) waitGone(name string) {
	f.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for value[bool](f, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1)", name) {
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			f.t.Fatalf("a backend of %s is left", name)
		}
	}
}

// running submits a task and claims it.
func (f *fixture) running() *tasks.Lease {
	f.t.Helper()
	return f.claimTask(f.task())
}

// claimTask claims until it has the task, which must be waiting.
func (f *fixture) claimTask(task a2a.ID) *tasks.Lease {
	f.t.Helper()
	leases := f.claim(1000)
	for i := range leases {
		if leases[i].TaskID == task {
			return &leases[i]
		}
	}
	f.t.Fatalf("task %s does not wait for a worker", task)
	return nil
}

func (f *fixture) append(l *tasks.Lease, events ...a2a.Event) tasks.Appended {
	f.t.Helper()
	out, err := f.Tasks.Append(f.ctx, l, tasks.Batch{Events: events})
	if err != nil {
		f.t.Fatalf("append: %v", err)
	}
	return out
}

// status is a status event; text, if there is one, is its message.
func status(s a2a.State, text ...string) *a2a.StatusUpdate {
	u := &a2a.StatusUpdate{Status: a2a.Status{State: s}}
	if len(text) > 0 {
		u.Status.Message = &a2a.Message{ID: "agent-" + text[0], Role: a2a.RoleAgent, Parts: texts(text...)}
	}
	return u
}

// chunk is an artifact event with append, whole one without.
func chunk(id string, text ...string) *a2a.ArtifactUpdate {
	u := whole(id, text...)
	u.Append = true
	return u
}

func whole(id string, text ...string) *a2a.ArtifactUpdate {
	return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: id, Name: "name of " + id, Parts: texts(text...)}}
}

func texts(text ...string) []a2a.Part {
	parts := make([]a2a.Part, len(text))
	for i, s := range text {
		parts[i] = a2a.Part{Kind: a2a.PartText, Text: s}
	}
	return parts
}

func (f *fixture) snapshot(task a2a.ID) *a2a.Task {
	f.t.Helper()
	t, err := f.Tasks.SnapshotOfAny(f.ctx, task, tasks.Want{Artifacts: true})
	if err != nil {
		f.t.Fatalf("snapshot: %v", err)
	}
	return t
}

func (f *fixture) log(task a2a.ID) []a2a.Entry {
	f.t.Helper()
	entries, err := f.Tasks.EventsAfter(f.ctx, task, 0, 100_000)
	if err != nil {
		f.t.Fatalf("read log: %v", err)
	}
	return entries
}

// states returns the states that a task's log went through.
func (f *fixture) states(task a2a.ID) []a2a.State {
	f.t.Helper()
	var states []a2a.State
	for _, e := range f.log(task) {
		if s := e.State(); s != a2a.StateNone {
			states = append(states, s)
		}
	}
	return states
}

func (f *fixture) exec(query string, args ...any) int64 {
	f.t.Helper()
	tag, err := f.sql.Exec(f.ctx, query, args...)
	if err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	return tag.RowsAffected()
}

// value reads one value; a null is the zero value.
func value[T any](f *fixture, query string, args ...any) T {
	f.t.Helper()
	var v *T
	if err := f.sql.QueryRow(f.ctx, query, args...).Scan(&v); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	if v == nil {
		return *new(T)
	}
	return *v
}

// expire makes a lease one that ran out: tests move time, they do not spend it.
func (f *fixture) expire(task a2a.ID) {
	f.t.Helper()
	n := f.exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second' WHERE task_id = $1", task)
	if n != 1 {
		f.t.Fatalf("task %s has %d leases, want 1", task, n)
	}
}

// hold locks rows for the rest of the test or until release is called.
func (f *fixture) hold(query string, args ...any) (release func()) {
	f.t.Helper()
	tx, err := f.sql.Begin(f.ctx)
	if err != nil {
		f.t.Fatalf("begin: %v", err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.WithoutCancel(f.ctx)) })
	f.t.Cleanup(release)
	if _, err := tx.Exec(f.ctx, query, args...); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	return release
}

// waitBlocked returns when n backends of the database wait for a lock. Nothing tells of that but the server's own view.
func (f *fixture) waitBlocked(n int) {
	f.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		got := value[int](f, `SELECT count(*)::int FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND cardinality(pg_blocking_pids(pid)) > 0`)
		if got >= n {
			return
		}
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			f.t.Fatalf("%d backends wait for a lock, want %d", got, n)
		}
	}
}

type attempt struct {
	Epoch          int64
	Attempt        int
	Worker         string
	Outcome, Error string
}

func (f *fixture) attempts(task a2a.ID) []attempt {
	f.t.Helper()
	rows, err := f.Operate.Attempts(f.ctx, task)
	if err != nil {
		f.t.Fatalf("attempts: %v", err)
	}
	out := make([]attempt, len(rows))
	for i, r := range rows {
		out[i] = attempt{r.Epoch, r.Attempt, r.Worker, r.Outcome, r.Error}
		if r.EndedAt.IsZero() != (r.Outcome == "") {
			f.t.Errorf("attempt %+v: outcome %q, ended at %v", out[i], r.Outcome, r.EndedAt)
		}
	}
	return out
}

// same compares, where an empty list is like none.
func same[T any](t rapid.TB, what string, want, got T) {
	t.Helper()
	// The log does not hold the number of messages that the writer of an event tells, and nobody foresees when a lease runs out.
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(a2a.Entry{}, "Messages"), cmpopts.IgnoreFields(tasks.Lease{}, "Until")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantCode(t rapid.TB, err error, code a2a.ErrorCode) {
	t.Helper()
	if err == nil || a2a.CodeOf(err) != code {
		t.Errorf("error = %v, want one with code %s", err, code.Reason())
	}
}

const withoutClaim = "an event without a claim"

// bad lists what must never be so in the database. Each query returns tasks.
var bad = []struct{ name, query string }{
	{"events are not first_seq..last_seq", `SELECT t.id FROM a2a.tasks t LEFT JOIN a2a.task_events e ON e.task_id = t.id GROUP BY t.id
		HAVING count(e.seq) <> t.last_seq - t.first_seq + 1 OR min(e.seq) <> t.first_seq OR max(e.seq) <> t.last_seq`},
	{"messages are not 1..last_message_seq", `SELECT t.id FROM a2a.tasks t LEFT JOIN a2a.messages m ON m.task_id = t.id GROUP BY t.id
		HAVING count(m.seq) <> t.last_message_seq OR min(m.seq) <> 1 OR max(m.seq) <> t.last_message_seq
			OR max(m.seq) FILTER (WHERE m.role = 1) <> t.last_user_seq`},
	{"messages do not stand in the order of their events", `SELECT m.task_id FROM (SELECT *, lag(at_seq) OVER (PARTITION BY task_id ORDER BY seq) AS before FROM a2a.messages) m
		JOIN a2a.tasks t ON t.id = m.task_id WHERE m.at_seq < m.before OR m.at_seq < 1 OR m.at_seq > t.last_seq + 1
			OR m.role = 2 AND NOT EXISTS (SELECT FROM a2a.task_events e WHERE e.task_id = m.task_id AND e.seq = m.at_seq AND e.kind = 1 AND e.body::text LIKE '%"message"%') AND m.at_seq >= t.first_seq`},
	{"an event behind the terminal one", `SELECT e.task_id FROM a2a.task_events e JOIN a2a.tasks t ON t.id = e.task_id
		WHERE e.state >= 100 AND e.seq <> t.last_seq`},
	{"the state is not that of the last status", `SELECT t.id FROM a2a.tasks t
		WHERE t.state IS DISTINCT FROM (SELECT e.state FROM a2a.task_events e WHERE e.task_id = t.id AND e.kind = 1 ORDER BY e.seq DESC LIMIT 1)`},
	{"status_at is not the time of the last status", `SELECT t.id FROM a2a.tasks t
		WHERE t.status_at IS DISTINCT FROM (SELECT date_trunc('milliseconds', e.committed_at) FROM a2a.task_events e WHERE e.task_id = t.id AND e.kind = 1 ORDER BY e.seq DESC LIMIT 1)`},
	{"last_at is not the time of the last event", `SELECT t.id FROM a2a.tasks t JOIN a2a.task_events e ON e.task_id = t.id AND e.seq = t.last_seq
		WHERE e.committed_at <> t.last_at`},
	{"time runs backwards", `SELECT e.task_id FROM (SELECT *, lag(committed_at) OVER (PARTITION BY task_id ORDER BY seq) AS before FROM a2a.task_events) e
		WHERE e.committed_at < e.before`},
	{"an older epoch wrote behind a newer one", `SELECT e.task_id FROM (SELECT *, max(epoch) OVER (PARTITION BY task_id ORDER BY seq) AS newest FROM a2a.task_events) e
		WHERE e.source = 1 AND e.epoch < e.newest`},
	{withoutClaim, `SELECT e.task_id FROM a2a.task_events e WHERE e.source = 1
		AND NOT EXISTS (SELECT FROM a2a.task_attempts a WHERE a.task_id = e.task_id AND a.epoch = e.epoch AND a.worker = e.worker)`},
	{"an illegal transition", `SELECT e.task_id FROM (SELECT task_id, seq, state, lag(state) OVER (PARTITION BY task_id ORDER BY seq) AS before FROM a2a.task_events WHERE kind = 1) e
		WHERE e.before >= 100 OR e.state = 1 AND e.before = 2 OR e.state = 1 AND e.before = 1 OR e.state IN (3, 4) AND e.before IN (3, 4) OR e.before IS NULL AND e.state <> 1 AND e.seq = 1`},
	{"ready_at without its row, or a row without it", `SELECT coalesce(t.id, r.task_id) FROM (SELECT * FROM a2a.tasks WHERE ready_at IS NOT NULL) t
		FULL JOIN a2a.task_ready r ON r.task_id = t.id AND r.run_at = t.ready_at AND r.queue = t.agent AND r.priority = t.priority AND r.tenant = t.tenant
		WHERE t.id IS NULL OR r.task_id IS NULL`},
	{"waits for a worker though it should not, or the other way round", `SELECT t.id FROM a2a.tasks t LEFT JOIN a2a.task_leases l ON l.task_id = t.id
		WHERE CASE t.state WHEN 1 THEN t.ready_at IS NULL OR l.task_id IS NOT NULL
			WHEN 2 THEN (t.ready_at IS NULL) = (l.task_id IS NULL) ELSE t.ready_at IS NOT NULL OR l.task_id IS NOT NULL END`},
	{"a lease of another epoch, or of no task", `SELECT l.task_id FROM a2a.task_leases l LEFT JOIN a2a.tasks t ON t.id = l.task_id
		WHERE t.lease_epoch IS DISTINCT FROM l.epoch`},
	{"an attempt that is open without a lease", `SELECT a.task_id FROM a2a.task_attempts a
		WHERE (a.ended_at IS NULL) <> EXISTS (SELECT FROM a2a.task_leases l WHERE l.task_id = a.task_id AND l.epoch = a.epoch)`},
	{"an attempt of an epoch to come", `SELECT a.task_id FROM a2a.task_attempts a JOIN a2a.tasks t ON t.id = a.task_id WHERE a.epoch > t.lease_epoch`},
	{"artifacts folded and not marked so, or the other way round", `SELECT t.id FROM a2a.tasks t WHERE t.folded <> EXISTS (SELECT FROM a2a.artifacts a WHERE a.task_id = t.id)
		OR NOT t.folded AND EXISTS (SELECT FROM a2a.artifact_parts p WHERE p.task_id = t.id)`},
	{"folded artifacts of a living task", `SELECT t.id FROM a2a.artifacts a JOIN a2a.tasks t ON t.id = a.task_id WHERE t.state < 100`},
	{"a checkpoint of an ended task", `SELECT t.id FROM a2a.task_checkpoints c JOIN a2a.tasks t ON t.id = c.task_id WHERE t.state >= 100`},
	{"a webhook that does not know of the newest event", `SELECT t.id FROM a2a.push_configs p JOIN a2a.tasks t ON t.id = p.task_id
		WHERE p.deleted_at IS NULL AND p.head_seq <> t.last_seq AND (t.reply <> 1 OR t.state > 2)`},
	{"a parked webhook that is in no list", `SELECT p.task_id FROM a2a.push_configs p WHERE p.parked AND p.state = 'active' AND p.deleted_at IS NULL
		AND p.cursor_seq < p.head_seq AND NOT EXISTS (SELECT FROM a2a.push_parked l WHERE l.tenant = p.tenant AND l.origin = p.origin)`},
	{"an attempt that ended before it began", `SELECT a.task_id FROM a2a.task_attempts a WHERE a.ended_at < a.claimed_at`},
	{"a number in lists that is another's", `SELECT t.id FROM a2a.tasks t WHERE t.list_key <> a2a.list_key(t.tenant, t.owner, t.agent)`},
	{"a key of no task", `SELECT k.task_id FROM a2a.idempotency_keys k LEFT JOIN a2a.tasks t ON t.id = k.task_id WHERE t.id IS NULL`},
}

// invariants fails the test for everything in the database that must not be so.
func (f *fixture) invariants() {
	f.t.Helper()
	if text := f.broken(""); text != "" {
		f.t.Error(text)
	}
}

// broken describes what must not be so, of one agent's tasks or of all; it asks in one round trip.
func (f *fixture) broken(agent string) string {
	f.t.Helper()
	var b pgx.Batch
	for _, q := range bad {
		b.Queue("SELECT coalesce(string_agg(DISTINCT x.id::text, ' '), '') FROM ("+q.query+") AS x(id) WHERE $1 = '' OR x.id IN (SELECT t.id FROM a2a.tasks t WHERE t.agent = $1)", agent)
	}
	res := f.sql.SendBatch(f.ctx, &b)
	defer res.Close()
	var text strings.Builder
	for _, q := range bad {
		var ids string
		if err := res.QueryRow().Scan(&ids); err != nil {
			f.t.Fatalf("%s: %v", q.name, err)
		}
		if ids != "" && !(f.attemptsGo && q.name == withoutClaim) {
			text.WriteString(q.name + ": " + ids + "\n")
		}
	}
	return text.String()
}
