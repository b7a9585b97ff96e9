package e2e_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// An open transaction locks the row of one running task: that task waits until the end of the transaction. The others
// complete meanwhile. One of them may wait for A2AD_LOCK_TIMEOUT, in a statement that writes for both.
func TestLockedTaskDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_LOCK_TIMEOUT=2s", "A2AD_STATEMENT_TIMEOUT=1h")
	ctx := bounded(t)
	stuck := submit(t, c.client(a, "script"), play(`{"op":"chunk","id":"a","n":30,"every_ms":100}`))
	c.runner(stuck)
	a.log.expectErrors()
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `BEGIN; SELECT FROM a2a.tasks WHERE id = '`+stuck+`' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	until(t, "the task waits for the lock", func() bool {
		return one[int](c,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	var slowest time.Duration
	for range 10 {
		began := time.Now()
		events := follow(t, c.client(a, "script").Stream(ctx,
			client.SendParams{Message: play(`{"op":"chunk","id":"a","n":5}`)}, client.StreamOptions{}), nil)
		slowest = max(slowest, time.Since(began))
		endsWith(t, events, a2a.StateCompleted)
	}
	if _, err := conn.Exec(ctx, `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	logTook(t, "another task", slowest)
	if n := one[int](c, `SELECT count(*) FROM audit.attempt WHERE task_id::text <> $1 AND outcome <> 'completed'`,
		stuck); n != 0 {
		t.Errorf("%d attempts at other tasks failed", n)
	}
	c.awaitState(stuck, "COMPLETED")
}
