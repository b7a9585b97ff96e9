package maintenance

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// readTasks counts the tasks that retention reads.
type readTasks struct {
	mu   sync.Mutex
	rows int64 // guarded by mu
}

type readKey struct{}

func (r *readTasks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, readKey{},
		strings.Contains(data.SQL, "name: RetireScan") || strings.Contains(data.SQL, "name: RetireRead"))
}

func (r *readTasks) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if ctx.Value(readKey{}).(bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.rows += data.CommandTag.RowsAffected()
	}
}

// reset returns how many rows were read since the last call.
func (r *readTasks) reset() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.rows
	r.rows = 0
	return n
}

// rounds is a Retirer whose rounds a test makes by hand.
type rounds struct {
	*Retirer
	t     *testing.T
	sql   *pgxpool.Pool
	read  *readTasks
	rules map[string]a2a.Retention
}

func newRounds(t *testing.T, rules map[string]a2a.Retention) *rounds {
	t.Helper()
	pg := storetest.New(t)
	r := &rounds{t: t, sql: pg.Pool(t), read: &readTasks{}, rules: rules}
	s, err := store.Open(t.Context(), store.Config{Config: db.Config{URL: pg.URL, Replica: "r1", PoolSize: 4,
		Tracer: r.read}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r.Retirer = &Retirer{Store: s.Tasks, Logger: slog.New(slog.DiscardHandler),
		Rules: func() (map[string]a2a.Retention, a2a.Retention) { return r.rules, a2a.Retention{} }}
	return r
}

// tasks makes tasks of an agent that were made and ended so long ago; ended < 0: they have not ended.
func (r *rounds) tasks(agent string, n int, made, ended time.Duration) {
	r.t.Helper()
	state, at := a2a.StateCompleted, ended
	if ended < 0 {
		state, at = a2a.StateWorking, made
	}
	_, err := r.sql.Exec(r.t.Context(), `
		INSERT INTO a2a.tasks (id, tenant, owner, agent, context_id, state, status_at, last_seq, last_at,
		  last_message_seq, last_user_seq, read_user_seq, created_at)
		SELECT (left(x, 8) || '-' || right(x, 4) || '-7000-8000-' || right(gen_random_uuid()::text, 12))::uuid,
		  'acme', 'ann', $1, 'c', $2, now() - $4::interval, 2, now(), 1, 1, 1, now()
		FROM generate_series(1, $5) g, LATERAL (
		  SELECT lpad(to_hex((extract(epoch FROM now() - $3::interval) * 1000)::bigint + 0 * g), 12, '0') AS x) y`,
		agent, int(state), made, at, n)
	if err != nil {
		r.t.Fatal(err)
	}
}

// round makes a round, and returns how many tasks it read and how many there are after it.
func (r *rounds) round() (read int64, left int) {
	r.t.Helper()
	r.Retirer.round(r.t.Context())
	if err := r.sql.QueryRow(r.t.Context(), "SELECT count(*) FROM a2a.tasks").Scan(&left); err != nil {
		r.t.Fatal(err)
	}
	return r.read.reset(), left
}

func (r *rounds) want(what string, read int64, left int) {
	r.t.Helper()
	if gotRead, gotLeft := r.round(); gotRead != read || gotLeft != left {
		r.t.Errorf("%s: a round read %d tasks and left %d, want %d and %d", what, gotRead, gotLeft, read, left)
	}
}

func (r *rounds) exec(sql string) {
	r.t.Helper()
	if _, err := r.sql.Exec(r.t.Context(), sql); err != nil {
		r.t.Fatal(err)
	}
}

const day = 24 * time.Hour

// A round reads the tasks that have become old enough, and none of those that are kept.
func TestRoundsDoNotReadKeptTasksAgain(t *testing.T) {
	t.Parallel()
	r := newRounds(t, map[string]a2a.Retention{"kept": {Log: day}, "months": {Completed: 90 * day, Log: day}})
	r.tasks("kept", 2500, 30*day, 30*day)
	r.tasks("months", 2500, 30*day, 30*day)
	if read, left := r.round(); read < 5000 || left != 5000 {
		t.Errorf("from the start: %d tasks read and %d left, want all 5000", read, left)
	}
	r.want("after that", 0, 5000)
	r.tasks("kept", 3, 25*time.Hour, 25*time.Hour)
	r.want("with three more", 3, 5003)
	r.want("after them", 0, 5003)
	r.rules["kept"] = a2a.Retention{Completed: 10 * day}
	if _, left := r.round(); left != 2503 {
		t.Errorf("after a change of the rules %d tasks are left, want 2503", left)
	}
}

// Tasks that were skipped because they ended late, have not ended or are kept are removed when they are due.
func TestRoundsReadTasksAgainThatEndedLate(t *testing.T) {
	t.Parallel()
	r := newRounds(t, map[string]a2a.Retention{"a": {Completed: 10 * day, Failed: -1}})
	r.tasks("a", 1, 30*day, 9*day)
	r.tasks("a", 1, 30*day, -1)
	r.tasks("a", 1, 30*day, 30*day)
	r.exec(`INSERT INTO a2a.push_configs (id, task_id, config_id, tenant, owner, agent, url, origin, schemes,
		  wire_version, from_seq, cursor_seq, head_seq)
		SELECT gen_random_uuid(), t.id, 'default', 'acme', 'ann', 'a', 'u', 'x', '{}', 3, 0, 1, 2
		FROM a2a.tasks t WHERE t.status_at < now() - interval '20 days' AND t.state >= 100`)
	r.want("from the start", 4, 3) // the one with a webhook is tried twice
	r.want("while the webhook has something to deliver", 1, 3)
	r.exec("UPDATE a2a.push_configs SET cursor_seq = head_seq")
	r.want("when it has been delivered", 1, 2)
	r.want("while none is due", 0, 2)
	if n := len(r.marks.later); n != 2 {
		t.Fatalf("%d tasks are to be read again, want 2", n)
	}
	for id, at := range r.marks.later {
		if in := time.Until(at); in < 23*time.Hour || in > 10*day {
			t.Errorf("a task is read again in %s, want a day or ten", in)
		}
		r.marks.later[id] = time.Now() // as if it were then
	}
	r.exec("UPDATE a2a.tasks SET state = 100, status_at = now() - interval '11 days'")
	r.want("when they are due", 2, 0)
	if n := len(r.marks.later); n != 0 {
		t.Errorf("%d tasks are still to be read again", n)
	}
}

// While another replica works, a round ends, and the next one continues where it was.
func TestRoundContinuesAfterAnotherReplica(t *testing.T) {
	t.Parallel()
	r := newRounds(t, map[string]a2a.Retention{"a": {Completed: 10 * day}})
	r.tasks("a", 3, 30*day, 30*day)
	tx, err := r.sql.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1630691684, 4)"); err != nil {
		t.Fatal(err)
	}
	r.want("while another is at it", 0, 3)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.want("after it", 3, 0)
}

// If there is more to read again than is kept, all of it is read from the start soon.
func TestRoundsStartOverFromTimeToTime(t *testing.T) {
	t.Parallel()
	r := newRounds(t, map[string]a2a.Retention{"a": {Log: 10 * day}})
	r.tasks("a", 3, 30*day, 30*day)
	r.want("from the start", 3, 3)
	r.want("after that", 0, 3)
	r.marks.began = r.marks.began.Add(-wholeSoon)
	r.want("an hour later", 0, 3)
	r.marks.missed = true
	r.want("if more was to be read again", 3, 3)
	r.marks.began = r.marks.began.Add(-wholeEvery)
	r.want("a day later", 3, 3)
}
