package check_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/e2e/check"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const grace = 5 * time.Second

// fill creates the tasks of a healthy server and returns their ids: three ended ones, one of them after a second
// attempt, and one that waits for its client.
func fill(t *testing.T, url string) []string {
	t.Helper()
	ctx := t.Context()
	s, err := store.Open(ctx, store.Config{Config: db.Config{URL: url, Replica: "w1", PoolSize: 4}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ids []string
	for i := range 4 {
		sub, err := s.Tasks.Submit(ctx, tasks.Submission{
			Caller: db.Caller{Tenant: "t1", Owner: "u1"}, Agent: "echo", ContextID: "c",
			Key: fmt.Sprintf("h:k%d", i),
			Message: a2a.Message{ID: fmt.Sprintf("m%d", i), Role: a2a.RoleUser,
				Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, sub.Task.String())
		lease := claim(t, s)
		if i == 1 {
			if err := s.Tasks.Retry(ctx, lease, "bad luck", 0); err != nil {
				t.Fatal(err)
			}
			lease = claim(t, s)
		}
		state := a2a.StateCompleted
		if i == 3 {
			state = a2a.StateInputRequired
		}
		_, err = s.Tasks.Append(ctx, lease, tasks.Batch{Events: []a2a.Event{
			&a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}},
				LastChunk: true},
			&a2a.StatusUpdate{Status: a2a.Status{State: state}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

func claim(t *testing.T, s *store.Store) *tasks.Lease {
	t.Helper()
	leases, err := s.Tasks.NewClaimer().Claim(t.Context(), "echo", 1, time.Minute, 0)
	if err != nil || len(leases) != 1 {
		t.Fatalf("claim: %d leases, %v", len(leases), err)
	}
	return &leases[0]
}

// webhooks gives each ended task a webhook that received everything. Tables replace the views, because the storage of
// deliveries is not under test.
const webhooks = `
	DROP VIEW audit.delivery, audit.push_config CASCADE;
	CREATE TABLE audit.push_config (id text, task_id uuid, from_seq bigint, deleted_after_seq bigint);
	CREATE TABLE audit.delivery (config_id text, task_id uuid, seq bigint, state text, tries int, reason text,
	delivered_at timestamptz);
	INSERT INTO audit.push_config SELECT 'default', t.id, 0, NULL FROM a2a.tasks t WHERE t.state >= 100;
	INSERT INTO audit.delivery
	SELECT p.id, e.task_id, e.seq, 'delivered', 1, NULL, now() + e.seq * interval '1 ms'
	FROM audit.push_config p JOIN a2a.task_events e ON e.task_id = p.task_id;`

// mutation plants one violation; $T is the id of an ended task.
type mutation struct {
	name, sql string
	want      []string // prefixes of the names of the violated invariants; none: it is legal
}

const (
	noKeyOfEvents   = `ALTER TABLE a2a.task_events DROP CONSTRAINT task_events_pkey; `
	noKeyOfAttempts = `ALTER TABLE a2a.task_attempts DROP CONSTRAINT task_attempts_pkey; `
	// another writes one more event of task $T. The table's constraints are not under test.
	more = `INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, source, epoch, worker, committed_at,
		artifact_id, body)
		SELECT task_id, %s, gen_random_uuid(), 2, 1, epoch, worker, %s, 'a', '{}' FROM a2a.task_events
		WHERE task_id = $T AND seq = 4; `
	planted = `INSERT INTO a2a.task_parked `
	another = `INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body, digest, idem_key, dedupe_mid) `
)

// A task that waits for its client has a wait as well, for nothing or for a signal.
const (
	waitForNothing = `INSERT INTO a2a.task_steps (task_id, seq, key, kind, epoch, worker)
		SELECT t.id, 1, 'w', 2, 1, 'w1' FROM a2a.tasks t WHERE t.state = 3 LIMIT 1;
		INSERT INTO a2a.task_waits (task_id, epoch, step, due_at)
		SELECT s.task_id, 2, 1, 'infinity' FROM a2a.task_steps s; `
	waitForSignal = waitForNothing + `UPDATE a2a.task_waits SET on_signal = 's'; `
)

// call adds an open call of a task, to a task that waits for its client.
func call(child string) string {
	return `INSERT INTO a2a.task_steps (task_id, seq, key, kind, epoch, worker, child_id, on_parent_end)
		SELECT t.id, 1, 'c', 3, 1, 'w1', ` + child + `, 1 FROM a2a.tasks t WHERE t.state = 3 LIMIT 1`
}

// step writes a recorded step of task $T.
func step(seq int, worker string, epoch int) string {
	return fmt.Sprintf(`INSERT INTO a2a.task_steps (task_id, seq, key, kind, result, ended_at, epoch, worker)
		VALUES ($T, %d, 'k%[1]d', 1, '1', now(), %d, '%s')`, seq, epoch, worker)
}

var mutations = []mutation{
	{"clean", `SELECT 1`, nil},
	{"a task never claimed", `UPDATE a2a.task_events SET state = 1 WHERE task_id = $T AND seq = 2`,
		[]string{"I2a", "I4d"}},
	{"a question after a question",
		`UPDATE a2a.task_events SET state = 3 WHERE task_id = $T AND seq = 2; UPDATE a2a.task_events
			SET state = 4, kind = 1, artifact_id = NULL WHERE task_id = $T AND seq = 3`, []string{"I2a", "I4d"}},
	{"no submission", `UPDATE a2a.task_events SET state = 2 WHERE task_id = $T AND seq = 1`, []string{"I2a"}},
	{"an event after the end", fmt.Sprintf(more, "5", "committed_at") +
		`UPDATE a2a.tasks SET last_seq = 5 WHERE id = $T`, []string{"I2b", "I5a"}},
	{"a status after the end", `DROP INDEX a2a.task_events_terminal; ` + fmt.Sprintf(more, "5", "committed_at") + `
		UPDATE a2a.tasks SET last_seq = 5 WHERE id = $T; UPDATE a2a.task_events
		SET kind = 1, state = 100, artifact_id = NULL WHERE task_id = $T AND seq = 5`, []string{"I2b", "I5a"}},
	{"a state without an event", `UPDATE a2a.tasks SET state = 101 WHERE id = $T`, []string{"I2c"}},
	{"a gap", `DELETE FROM a2a.task_events WHERE task_id = $T AND seq = 3`, []string{"I3a"}},
	{"a log that begins late", `UPDATE a2a.task_events SET seq = seq + 1 WHERE task_id = $T
		AND seq = 4; UPDATE a2a.task_events SET seq = 4 WHERE task_id = $T AND seq = 3;
		UPDATE a2a.task_events SET seq = 3 WHERE task_id = $T AND seq = 2; UPDATE a2a.task_events SET seq = 2
		WHERE task_id = $T AND seq = 1; UPDATE a2a.tasks SET last_seq = 5 WHERE id = $T`, []string{"I3a", "I5a"}},
	{"a number twice", noKeyOfEvents + fmt.Sprintf(more, "3", "committed_at"), []string{"I3a"}},
	{"an end that is missing", `UPDATE a2a.tasks SET last_seq = 5 WHERE id = $T`, []string{"I3a"}},
	{"a log without a task", `DELETE FROM a2a.tasks WHERE id = $T`, []string{"I3a", "I7b"}},
	{"time that goes backwards",
		`UPDATE a2a.task_events SET committed_at = committed_at - interval '1 h' WHERE task_id = $T AND seq = 3`,
		[]string{"I3b"}},
	{"a zombie that writes", `INSERT INTO a2a.task_attempts
		SELECT task_id, 2, 2, 'w2', claimed_at, ended_at, 'completed' FROM a2a.task_attempts WHERE task_id = $T;
		UPDATE a2a.task_events SET epoch = 2, worker = 'w2' WHERE task_id = $T AND seq = 2`, []string{"I4a", "I4d"}},
	{"a claim of two",
		noKeyOfAttempts +
			`INSERT INTO a2a.task_attempts SELECT task_id, epoch, attempt, 'w2', claimed_at, ended_at, outcome
				FROM a2a.task_attempts WHERE task_id = $T`, []string{"I4b"}},
	{"a writer without an attempt", `UPDATE a2a.task_events SET worker = 'ghost' WHERE task_id = $T AND seq = 3`,
		[]string{"I4c"}},
	{"a write without a claim", `UPDATE a2a.task_events SET epoch = 7 WHERE task_id = $T AND seq = 4`, []string{"I4c"}},
	{"a claim without an event",
		`INSERT INTO a2a.task_attempts SELECT task_id, 2, 2, 'w2', claimed_at, ended_at, 'expired'
			FROM a2a.task_attempts WHERE task_id = $T`, []string{"I4d"}},
	{"a claim that never ended", `UPDATE a2a.task_attempts SET ended_at = NULL, outcome = NULL WHERE task_id = $T`,
		[]string{"I4e"}},
	{"a lease of a task that has ended", `INSERT INTO a2a.task_leases VALUES ($T, 1, 'w1', now() + interval '1 h')`,
		[]string{"I4e", "I4f"}},
	{"a parked task that has ended", planted + `SELECT $T, 2, 'echo', 't1', now(), 'infinity', 'x', 1`,
		[]string{"I4g"}},
	{"a parked task that was claimed since", planted + `SELECT t.id, 0, 'echo', 't1', now(), 'infinity', 'x', 1
		FROM a2a.tasks t WHERE t.state = 3`, []string{"I4g"}},
	{"a gap in the steps", step(2, "w1", 1), []string{"I8a"}},
	{"a step by another worker", step(1, "ghost", 1), []string{"I8b"}},
	{"a zombie that records a step", `INSERT INTO a2a.task_attempts
		SELECT task_id, 2, 2, 'w1', claimed_at, ended_at, 'unreachable' FROM a2a.task_attempts WHERE task_id = $T; ` +
		step(1, "w1", 2) + "; " + step(2, "w1", 1), []string{"I4d", "I8c"}},
	{"a task that waits after its end", step(1, "w1", 1) + `; UPDATE a2a.task_steps SET kind = 2, ended_at = NULL;
		INSERT INTO a2a.task_waits (task_id, epoch, step, due_at) VALUES ($T, 2, 1, now())`, []string{"I8d"}},
	{"a wait for nothing", waitForNothing, []string{"I8h"}},
	{"a task that waits and is parked", waitForSignal + planted +
		`SELECT w.task_id, 2, 'echo', 't1', now(), 'infinity', 'x', 1 FROM a2a.task_waits w`, []string{"I4g", "I8h"}},
	{"a wait that nothing ends", `INSERT INTO a2a.task_steps (task_id, seq, key, kind, epoch, worker)
		SELECT t.id, 1, 'w', 2, 1, 'w1' FROM a2a.tasks t WHERE t.state = 3 LIMIT 1`, []string{"I8e"}},
	{"a call without a task", call("gen_random_uuid()"), []string{"I8f"}},
	{"a called task without a call", `UPDATE a2a.tasks SET parent_step = 1, depth = 1,
		parent_id = (SELECT t.id FROM a2a.tasks t WHERE t.state = 3 LIMIT 1) WHERE id = $T`, []string{"I8f"}},
	{"a call whose task has ended", call("$T") + `; UPDATE a2a.tasks SET parent_step = 1, depth = 1,
		parent_id = (SELECT t.id FROM a2a.tasks t WHERE t.state = 3 LIMIT 1) WHERE id = $T`, []string{"I8g"}},
	{"usage that the days do not have", `INSERT INTO a2a.task_usage VALUES ($T, 'm', 1, 1, 0, 0, 1)`, []string{"I9"}},
	{"usage that the days have once and the tasks twice", `INSERT INTO a2a.task_usage VALUES ($T, 'm', 1, 1, 0, 0, 2);
		INSERT INTO a2a.usage_pending SELECT current_date, t.tenant, t.owner, t.agent, 'm', 1, 1, 0, 0, 1
		FROM a2a.tasks t WHERE t.id = $T`, []string{"I9"}},
	{"an event not delivered", `DELETE FROM audit.delivery WHERE task_id = $T AND seq = 4`, []string{"I5a"}},
	{"an event not yet delivered", `UPDATE audit.delivery SET state = 'pending' WHERE task_id = $T AND seq = 4`,
		[]string{"I5a"}},
	{"dead without a reason", `UPDATE audit.delivery SET state = 'dead' WHERE task_id = $T AND seq = 4`,
		[]string{"I5a"}},
	{"skipped without a reason",
		`UPDATE audit.delivery SET state = 'skipped', reason = '' WHERE task_id = $T AND seq = 4`, []string{"I5a"}},
	{"cancelled and not deleted", `UPDATE audit.delivery SET state = 'cancelled' WHERE task_id = $T AND seq = 4`,
		[]string{"I5a"}},
	{"delivered out of order",
		`UPDATE audit.delivery SET delivered_at = delivered_at - interval '1 h' WHERE task_id = $T AND seq = 4`,
		[]string{"I5b"}},
	{"a key in two tasks",
		another + `SELECT id, 9, 1, 'm9', 1, '{}', NULL, 'k0', false FROM a2a.tasks WHERE id <> $T LIMIT 1`,
		[]string{"I6a"}},
	{"a key twice in a task",
		another + `SELECT id, 9, 1, 'm9', 1, '{}', NULL, 'k0', false FROM a2a.tasks WHERE id = $T`, []string{"I6a"}},
	{"a message id twice where it counts", `UPDATE a2a.messages SET dedupe_mid = true, idem_key = NULL
		WHERE message_id = 'm0'; ` + another + `
		SELECT id, 9, 1, 'm0', 1, '{}', NULL, NULL, true FROM a2a.tasks WHERE id <> $T LIMIT 1`, []string{"I6b"}},
	{"a task of two ticks", `INSERT INTO a2a.schedule_ticks (agent, name, tick, outcome, task_id)
		SELECT 'echo', 's', now() + n * interval '1 min', 'started', $T FROM generate_series(1, 2) n`, []string{"I6c"}},
	{"two queued ticks", `INSERT INTO a2a.schedule_ticks (agent, name, tick, outcome)
		SELECT 'echo', 's', now() + n * interval '1 min', 'queued' FROM generate_series(1, 2) n`, []string{"I6c"}},
	{"a log that lost its begin",
		`UPDATE a2a.tasks SET first_seq = 3 WHERE id = $T; DELETE FROM a2a.task_events WHERE task_id = $T AND seq < 3`,
		[]string{"I7a"}},
	{"a log retired before the end", orphan + `UPDATE a2a.tasks SET state = 3, first_seq = 3 WHERE id = $T; DELETE
		FROM a2a.task_events WHERE task_id = $T AND seq < 3;
		UPDATE a2a.task_events SET kind = 1, state = 3, artifact_id = NULL WHERE task_id = $T`, []string{"I7a"}},
	{"an orphan",
		orphan +
			`INSERT INTO a2a.task_leases VALUES ($T, 1, 'w1', now() - interval '1 min'); UPDATE a2a.task_attempts
				SET ended_at = NULL, outcome = NULL WHERE task_id = $T`, []string{"I8"}},
	{"work that was never claimed", orphan, []string{"I8"}},

	{"legal: a log that was retired",
		`UPDATE a2a.tasks SET first_seq = 4 WHERE id = $T; DELETE FROM a2a.task_events WHERE task_id = $T AND seq < 4`,
		nil},
	{"legal: a message id used again",
		another + `SELECT id, 9, 1, 'm0', 1, '{}', NULL, NULL, false FROM a2a.tasks WHERE id <> $T LIMIT 1`, nil},
	{"legal: a key of another owner", `UPDATE a2a.tasks SET owner = 'u2' WHERE id <> $T; ` + another +
		`SELECT id, 9, 1, 'm9', 1, '{}', NULL, 'k0', false FROM a2a.tasks WHERE id <> $T ORDER BY id DESC LIMIT 1`,
		nil},
	{"legal: dead with a reason",
		`UPDATE audit.delivery SET state = 'dead', reason = '410' WHERE task_id = $T AND seq = 4`, nil},
	{"legal: cancelled and deleted",
		`UPDATE audit.delivery SET state = 'cancelled' WHERE task_id = $T AND seq = 4; UPDATE audit.push_config
			SET deleted_after_seq = 4 WHERE task_id = $T`, nil},
	{"legal: a task that waits for a signal", waitForSignal, nil},
	{"legal: work that is held",
		orphan +
			`INSERT INTO a2a.task_leases VALUES ($T, 1, 'w1', now() + interval '1 min'); UPDATE a2a.task_attempts
				SET ended_at = NULL, outcome = NULL WHERE task_id = $T`, nil},
}

// orphan removes the end of a task, an hour ago.
const orphan = `DELETE FROM audit.delivery WHERE task_id = $T AND seq = 4; DELETE FROM a2a.task_events
	WHERE task_id = $T AND seq = 4;
	UPDATE a2a.task_events SET committed_at = committed_at - interval '1 h' WHERE task_id = $T;
	UPDATE a2a.tasks SET state = 2, last_seq = 3, last_at = last_at - interval '1 h',
	status_at = status_at - interval '1 h' WHERE id = $T; `

// Each violation is planted in a healthy database and must be found: a checker that misses its own mutation does not
// count.
func TestDatabaseFindsEachMutation(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	ids := fill(t, pg.URL)
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if found, err := check.Database(ctx, conn, grace); err != nil || len(found) > 0 {
		t.Fatalf("a healthy database: %v, %v", found, err)
	}
	caught := make(map[string]bool)
	for _, m := range mutations {
		for _, name := range mutate(t, conn, m, ids[0]) {
			caught[name] = true
		}
	}
	for name := range check.Invariants() {
		if !caught[name] {
			t.Errorf("no mutation violates %q", name)
		}
	}
}

// mutate applies a mutation and returns the names of the violations found.
func mutate(t *testing.T, conn *pgx.Conn, m mutation, task string) (names []string) {
	t.Helper()
	ctx := t.Context()
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // the mutation must go
	if _, err := tx.Exec(ctx, webhooks+strings.ReplaceAll(m.sql, "$T", "'"+task+"'")); err != nil {
		t.Fatalf("%s: %v", m.name, err)
	}
	found, err := check.Database(ctx, tx, grace)
	if err != nil {
		t.Fatalf("%s: %v", m.name, err)
	}
	var short []string
	for _, v := range found {
		id, _, _ := strings.Cut(v.Name, " ")
		names, short = append(names, v.Name), append(short, id)
	}
	slices.Sort(short)
	if got := slices.Compact(short); !slices.Equal(got, m.want) {
		t.Errorf("%s: found %v, want %v: %v", m.name, got, m.want, found)
	}
	return names
}
