package tasks_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// A long transaction keeps the index entries of claimed tasks. Claims and submits read them once, not each time, even
// in lanes that are empty now.
func TestQueueStaysFastDuringALongTransaction(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const dead, rounds, each = 3000, 10, 8
	f.HoldSnapshot()
	f.Exec(`
		INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
		SELECT $1, lane, clock_timestamp() - interval '1 hour', gen_random_uuid(), 'acme'
		FROM generate_series(0, 3) lane, generate_series(1, $2)`, storetest.Agent, dead)
	f.Exec("DELETE FROM a2a.task_ready")
	s := f.Replica("r2", func(c *store.Config) { c.PoolSize = 1 })
	c := s.Tasks.NewClaimer()
	for round := range rounds {
		for range each { // more than fit into the first lane, so that the store reads the others
			tasks.LaneDue(s.Tasks)
			if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); err != nil {
				t.Fatal(err)
			}
		}
		leases, err := c.Claim(t.Context(), storetest.Agent, each+1, storetest.TTL, time.Hour)
		if err != nil || len(leases) != each {
			t.Fatalf("round %d: claimed %d, %v, want %d", round, len(leases), err, each)
		}
		tasks.PollDone(c)
	}
	if n, once := f.IndexEntriesRead(s, "task_ready"), int64(4*dead); n < once || n > 3*once {
		t.Errorf("%d rounds read %d index entries, want the %d dead ones twice and few others", rounds, n, once)
	}
}

func TestClaimsDoNotReadWhatTheyHaveClaimed(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const waiting = 100
	flood(f, "ann", waiting)
	f.Exec(`
		WITH old AS (
		  SELECT id, clock_timestamp() - interval '1 hour'
		    + row_number() OVER (ORDER BY priority, ready_at) * interval '1 second' AS at
		  FROM a2a.tasks),
		q AS (UPDATE a2a.task_ready r SET run_at = old.at FROM old WHERE r.task_id = old.id)
		UPDATE a2a.tasks t SET ready_at = old.at FROM old WHERE t.id = old.id`)
	f.Exec("VACUUM a2a.task_ready") // removes the entries of the old times
	f.HoldSnapshot()
	s := f.Replica("r2", func(c *store.Config) { c.PoolSize = 1 })
	c := s.Tasks.NewClaimer()
	for range waiting {
		leases, err := c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, time.Hour)
		if err != nil || len(leases) != 1 {
			t.Fatalf("claimed %d, %v, want 1", len(leases), err)
		}
		tasks.PollDone(c)
	}
	if n := f.IndexEntriesRead(s, "task_ready"); n < waiting || n > 10*waiting {
		t.Errorf("%d claims of one task read %d index entries, want at most 10 each", waiting, n)
	}
	f.Invariants()
}
