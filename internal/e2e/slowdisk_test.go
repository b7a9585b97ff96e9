package e2e_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// Each commit waits 100 ms for the disk: with commit_delay PostgreSQL waits before it flushes its log. 2,000 messages
// to running tasks keep every connection for requests and work busy for long. The runs continue: their leases are
// renewed, and no attempt is charged.
func TestRunsContinueWhileTheDiskIsSlow(t *testing.T) {
	t.Parallel()
	const runs, clients = 16, 64
	messages := 2000
	if testing.Short() || raceEnabled {
		messages = 600
	}
	srv := storetest.NewServer(t, map[string]string{"fsync": "on", "synchronous_commit": "on", "commit_delay": "100000",
		"commit_siblings": "0"})
	c := clusterOn(t, storetest.NewOn(t, srv))
	awaitSlowCommit(c)
	const ttl = 10 * time.Second // a third of the default; the messages take longer
	a := c.start("a", "A2AD_LEASE_TTL="+ttl.String(), "A2AD_STATEMENT_TIMEOUT=8s", "A2AD_POOL_TIMEOUT=5s",
		"A2AD_DB_POOL=16")
	cl := c.client(a, "script")
	tasks := make([]string, runs)
	for i := range tasks {
		tasks[i] = submit(t, cl, play(`{"op":"sleep","ms":600000}`))
	}
	for _, task := range tasks {
		c.awaitState(task, "WORKING")
	}

	begin := time.Now()
	var next, refusals atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(messages); n = next.Add(1) {
				p := client.SendParams{Message: reply(tasks[n%runs], "more"), NoWait: true,
					IdempotencyKey: fmt.Sprintf("message %d", n)}
				p.Message.ID = p.IdempotencyKey
				for {
					if _, err := cl.Send(bounded(t), p); err == nil {
						break
					} else if e := (*client.Error)(nil); !errors.As(err, &e) || !e.Temporary() {
						t.Errorf("message %d: %v", n, err)
						return
					}
					refusals.Add(1)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	failed := a.log.count(func(l logLine) bool { return l.str("msg") == "renew leases" })
	t.Logf("%d messages in %s, %d refusals, %d renewals failed", messages, took.Round(time.Millisecond),
		refusals.Load(), failed)
	if took < 2*ttl/3 {
		t.Errorf("the messages took %s: no lease had to be renewed meanwhile", took)
	}
	for _, task := range tasks {
		for _, outcome := range column[string](c,
			`SELECT coalesce(outcome, 'runs') FROM audit.attempt WHERE task_id::text = $1`, task) {
			if outcome != "runs" {
				t.Errorf("task %s: an attempt is %s", task, outcome)
			}
		}
		if n := one[int](c, `SELECT max(attempt) FROM audit.attempt WHERE task_id::text = $1`, task); n != 1 {
			t.Errorf("task %s: %d attempts are charged", task, n)
		}
		if _, err := cl.Cancel(bounded(t), task); err != nil {
			t.Error(err)
		}
	}
}

// awaitSlowCommit returns after a commit that waited 100 ms for the disk. One that another process flushes meanwhile
// waits for less.
func awaitSlowCommit(c *cluster) {
	c.t.Helper()
	if _, err := c.db.Exec(c.t.Context(), `CREATE TABLE a2ad_slow (n int)`); err != nil {
		c.t.Fatal(err)
	}
	var took time.Duration
	for range 20 {
		begin := time.Now()
		if _, err := c.db.Exec(c.t.Context(), `INSERT INTO a2ad_slow VALUES (1)`); err != nil {
			c.t.Fatal(err)
		}
		if took = time.Since(begin); took >= 100*time.Millisecond {
			return
		}
	}
	c.t.Fatalf("the fault did not happen: the last of 20 commits took %s", took)
}
