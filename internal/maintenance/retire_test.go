package maintenance

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestFateDependsOnTheFinalState(t *testing.T) {
	t.Parallel()
	rule := a2a.Retention{Completed: time.Hour, Failed: -1, Canceled: 3 * time.Hour, Log: 2 * time.Hour}
	tests := []struct {
		state a2a.State
		after time.Duration
		want  tasks.Fate
	}{
		{a2a.StateCompleted, 59 * time.Minute, tasks.Keep},
		{a2a.StateCompleted, time.Hour, tasks.Delete},
		{a2a.StateFailed, time.Hour, tasks.Keep},
		{a2a.StateFailed, 1000 * time.Hour, tasks.Prune}, // the task is kept without limit, but not its log
		{a2a.StateCanceled, 2 * time.Hour, tasks.Prune},
		{a2a.StateCanceled, 3 * time.Hour, tasks.Delete},
		{a2a.StateRejected, time.Hour, tasks.Keep}, // no rule
		{a2a.StateWorking, 1000 * time.Hour, tasks.Prune},
	}
	for _, tt := range tests {
		if got := fate(rule, tasks.Ended{State: tt.state, For: tt.after}); got != tt.want {
			t.Errorf("%s for %s: %d, want %d", tt.state, tt.after, got, tt.want)
		}
	}
}

func TestAgesOfRules(t *testing.T) {
	t.Parallel()
	never := a2a.Retention{}
	if got := ages(nil, never); len(got) != 0 {
		t.Errorf("without rules %s", got)
	}
	rules := map[string]a2a.Retention{"a": {Completed: -1, Log: time.Hour},
		"b": {Failed: 2 * time.Hour, Log: time.Hour}}
	if got := ages(rules, a2a.Retention{Completed: 90 * time.Minute}); !slices.Equal(got,
		[]time.Duration{time.Hour, 90 * time.Minute, 2 * time.Hour}) {
		t.Errorf("%s, want 1h, 1h30m and 2h", got)
	}
}

// TestRetirerFollowsTheRules: the tasks of each agent follow its own rule. One round does it, in
// as many batches as needed.
func TestRetirerFollowsTheRules(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	s, err := store.Open(t.Context(), store.Config{Config: db.Config{URL: pg.URL, Replica: "r1", PoolSize: 4}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sql := pg.Pool(t)
	const each = RetireBatch + 50
	for _, agent := range []string{"short", "long", "other", "imported"} {
		if _, err := sql.Exec(t.Context(), `
			WITH t AS (
			  INSERT INTO a2a.tasks (id, tenant, owner, agent, context_id, state, status_at, last_seq, last_at,
			    last_message_seq, last_user_seq, read_user_seq, created_at)
			  -- The ids of imported tasks do not tell when they were created.
			  SELECT (CASE $1 WHEN 'imported' THEN 'f1' ELSE '01' END || '000000-0000-7000-8000-' ||
			      lpad(to_hex(g + 1000 * ascii($1)), 12, '0'))::uuid,
			    'acme', 'ann', $1, 'c', 100, now() - interval '2 hours', 2, now(), 1, 1, 1, now()
			  FROM generate_series(1, $2) g
			  RETURNING id
			)
			INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
			SELECT t.id, s.seq, gen_random_uuid(), 1, CASE s.seq WHEN 1 THEN 1 ELSE 100 END, 3, now(), '{}'
			FROM t, generate_series(1, 2) s(seq)`, agent, each); err != nil {
			t.Fatal(err)
		}
	}
	r := &Retirer{Store: s.Tasks, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Rules: func() (map[string]a2a.Retention, a2a.Retention) {
			return map[string]a2a.Retention{"short": {Completed: time.Hour}, "imported": {Completed: time.Hour},
				"long": {Completed: 3 * time.Hour, Log: time.Hour}}, a2a.Retention{}
		}}
	r.round(t.Context())
	var short, long, other, moved, events int
	err = sql.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE agent = 'short'), count(*) FILTER (WHERE agent = 'long'),
		  count(*) FILTER (WHERE agent = 'other'),
		  count(*) FILTER (WHERE agent = 'imported'), (SELECT count(*) FROM a2a.task_events)
		FROM a2a.tasks`).Scan(&short, &long, &other, &moved, &events)
	if err != nil {
		t.Fatal(err)
	}
	if short != 0 || moved != 0 || long != each || other != each || events != 3*each {
		t.Errorf("got %d, %d, %d and %d tasks with %d events", short, moved, long, other, events)
	}
}
