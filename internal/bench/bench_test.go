package main

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// The comparison of the submit figures holds only while both sides write the same rows.
func TestPlainSubmitWritesTheSameRows(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	pool := pg.Pool(t)
	s, err := store.Open(t.Context(), store.Config{Config: db.Config{URL: pg.URL, Replica: "r1", PoolSize: 4}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	made, err := s.Tasks.Submit(t.Context(), submission(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := plainSubmit(t.Context(), pool, 1); err != nil {
		t.Fatal(err)
	}
	// Ids, times and digests differ; everything else must be equal.
	const shape = `
		SELECT to_jsonb(r) - ARRAY['id', 'task_id', 'context_id', 'message_id', 'event_uid', 'digest', 'xid', 'ctid',
			'status_at', 'last_at', 'ready_at', 'created_at', 'committed_at', 'run_at', 'made_at'] - CASE
			WHEN $3 THEN ARRAY['body'] ELSE '{}' END AS shape
		FROM %s r WHERE (r.%s = $1) = $2`
	for _, table := range []struct {
		name, id string
		ownBody  bool // contains ids
	}{{"a2a.tasks", "id", false}, {"a2a.messages", "task_id", true}, {"a2a.task_events", "task_id", false},
		{"a2a.task_ready", "task_id", false}} {
		rows := func(grouped bool) []map[string]any {
			got, err := pool.Query(t.Context(), fmt.Sprintf(shape, table.name, table.id), made.Task.String(), grouped,
				table.ownBody)
			if err != nil {
				t.Fatal(err)
			}
			list, err := pgx.CollectRows(got, pgx.RowTo[map[string]any])
			if err != nil {
				t.Fatalf("%s: %v", table.name, err)
			}
			return list
		}
		want, got := rows(true), rows(false)
		if len(want) != 1 {
			t.Fatalf("%s: a submit wrote %d rows", table.name, len(want))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: plain against grouped (-grouped +plain):\n%s", table.name, diff)
		}
	}
}

// The figures of sleeping tasks hold only while the copied rows are those of tasks that wait.
func TestCopiedSleepersAreTasksThatWait(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	b := &bench{}
	const sleepers = 20
	if err := b.addSleepers(t.Context(), f.Store, f.URL, sleepers); err != nil {
		t.Fatal(err)
	}
	const rows = `SELECT concat_ws(' ', count(*), count(DISTINCT w.due_at), count(e), count(m), count(a))
		FROM a2a.tasks t
		JOIN a2a.task_waits w ON w.task_id = t.id AND w.epoch = t.lease_epoch AND w.due_at > now() + interval '1 h'
		JOIN a2a.task_steps s ON s.task_id = t.id AND s.seq = w.step AND s.seq = t.steps
		LEFT JOIN a2a.task_events e ON e.task_id = t.id AND e.seq = t.last_seq
		LEFT JOIN a2a.messages m ON m.task_id = t.id
		LEFT JOIN a2a.task_attempts a ON a.task_id = t.id AND a.outcome = 'waiting'`
	if got := storetest.Value[string](f, rows); got != "20 20 20 20 20" {
		t.Errorf("tasks, ends of waits, newest events, messages and attempts: %s, want 20 of each", got)
	}
	f.Invariants()
}

func TestExperimentsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, e := range experiments() {
		if names[e.name] {
			t.Errorf("two experiments are called %s", e.name)
		}
		names[e.name] = true
	}
}

func TestFlushAndProcAreReadable(t *testing.T) {
	t.Parallel()
	if d, err := flushTime(t.TempDir()); err != nil || d <= 0 {
		t.Errorf("flushTime = %v, %v", d, err)
	}
	p, err := procStat(1)
	if err != nil || p.parent != 0 {
		t.Errorf("procStat(1) = %+v, %v", p, err)
	}
}

// The figures of capacity hold only while the copied rows are those of a task that a server has run.
func TestCopiedHistoryIsOfTasksThatEnded(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	b := &bench{log: slog.New(slog.DiscardHandler)}
	model := submission(1)
	model.Key = "h:model"
	if _, err := f.Tasks.Submit(t.Context(), model); err != nil {
		t.Fatal(err)
	}
	if n, err := drainStore(t.Context(), f.Store); n != 1 || err != nil {
		t.Fatalf("%d tasks ended: %v", n, err)
	}
	const total = 400
	grown := 0
	if err := b.fillHistory(t.Context(), f.URL, total, func(n int) error { grown = n; return nil }); err != nil {
		t.Fatal(err)
	}
	const rows = `SELECT concat_ws(' ', count(*), count(DISTINCT t.owner), count(DISTINCT t.agent), count(m), count(a),
		count(k), count(c), count(*) FILTER (WHERE t.state = 101), count(DISTINCT t.created_at::date) > 300)
		FROM a2a.tasks t
		LEFT JOIN a2a.messages m ON m.task_id = t.id
		LEFT JOIN a2a.task_attempts a ON a.task_id = t.id AND a.ended_at IS NOT NULL
		LEFT JOIN a2a.idempotency_keys k ON k.task_id = t.id
		LEFT JOIN a2a.context_tasks c ON c.task_id = t.id`
	if got := storetest.Value[string](f, rows); got != "400 100 5 400 400 400 400 8 t" || grown != total {
		t.Errorf("tasks, owners, agents, messages, attempts, keys, contexts, failed tasks: %s; %d reported", got, grown)
	}
	f.Invariants()
}
