package maintenance_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/maintenance"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// TestSweeperRemovesOldRows: two replicas sweep at once, batch by batch, and remove only old rows.
func TestSweeperRemovesOldRows(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	sql := pg.Pool(t)
	exec := func(statement string) {
		t.Helper()
		if _, err := sql.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO a2a.push_configs (id, task_id, config_id, tenant, owner, agent, url, origin, schemes,
		  wire_version, from_seq, cursor_seq, head_seq, deleted_at)
		SELECT gen_random_uuid(), gen_random_uuid(), 'default', 't', 'o', 'a', 'u', 'x', '{}',
		  3, 0, 1, 1, clock_timestamp() - n % 2 * interval '90 days'
		FROM generate_series(1, 2600) n`)
	exec(`INSERT INTO a2a.push_attempts (push_id, task_id, from_seq, seq, outcome, attempt, trigger, started_at)
		SELECT p.id, p.task_id, 0, 1, o.outcome, 1, 'auto', p.deleted_at
		FROM a2a.push_configs p, (VALUES ('failed'), ('delivered')) o(outcome)`)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	done := make(chan error, 2)
	defer func() {
		cancel()
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}()
	for _, replica := range []string{"r1", "r2"} {
		s, err := store.Open(t.Context(), store.Config{Config: db.Config{URL: pg.URL, Replica: replica, PoolSize: 2}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		sweeper := maintenance.WebhookSweeper{
			Store: s.Webhooks, Keep: 30 * 24 * time.Hour, Forget: time.Hour, Every: 5 * time.Millisecond,
			Logger: slog.New(slog.DiscardHandler),
		}
		go func() { done <- sweeper.Run(ctx) }()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var configs, tries int
		err := sql.QueryRow(t.Context(),
			"SELECT (SELECT count(*) FROM a2a.push_configs), (SELECT count(*) FROM a2a.push_attempts)").Scan(&configs,
			&tries)
		if err != nil {
			t.Fatal(err)
		}
		if configs < 1300 || tries < 2600 {
			t.Fatalf("%d webhooks and %d tries are left, want 1300 and 2600", configs, tries)
		}
		if configs == 1300 && tries == 2600 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d webhooks and %d tries are left after a minute", configs, tries)
		}
	}
}
