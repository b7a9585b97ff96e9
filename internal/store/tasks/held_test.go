package tasks_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// forget leaves a transaction open until the test ends: the index entries of what is deleted stay.
func (f *fixture) forget() {
	f.t.Helper()
	tx, err := f.sql.BeginTx(f.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { tx.Rollback(context.WithoutCancel(f.ctx)) }) //nolint:errcheck // it has only read
	if _, err := tx.Exec(f.ctx, "SELECT FROM a2a.task_ready"); err != nil {
		f.t.Fatal(err)
	}
}

// entriesRead closes r2, whose backends report what they read, and returns how many index entries of a table all have read.
func (f *fixture) entriesRead(r2 *store.Store, table string) int64 {
	f.t.Helper()
	r2.Close()
	for _, pool := range []string{"claim", "worker"} {
		f.waitGone("a2ad-r2-" + pool)
	}
	return value[int64](f, "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = $1", table)
}

// Under a held snapshot claims and submits walk over what was claimed before them once, not each time, also in lanes in which
// nothing waits any more.
func TestHeldSnapshotLeavesTheQueueFast(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const dead, rounds, each = 3000, 10, 8
	f.forget()
	f.exec(`INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant)
		SELECT $1, lane, clock_timestamp() - interval '1 hour', gen_random_uuid(), 'acme' FROM generate_series(0, 3) lane, generate_series(1, $2)`, agent, dead)
	f.exec("DELETE FROM a2a.task_ready")
	s := f.replica("r2", func(c *store.Config) { c.PoolSize = 1 })
	c := s.Tasks.NewClaimer()
	for round := range rounds {
		for range each { // more than the first lane takes: the others are looked at
			tasks.LaneDue(s.Tasks)
			if _, err := s.Tasks.Submit(f.ctx, submission("hello")); err != nil {
				t.Fatal(err)
			}
		}
		leases, err := c.Claim(f.ctx, agent, each+1, ttl, time.Hour)
		if err != nil || len(leases) != each {
			t.Fatalf("round %d: claimed %d, %v, want %d", round, len(leases), err, each)
		}
		tasks.Looked(c)
	}
	if n, once := f.entriesRead(s, "task_ready"), int64(4*dead); n < once || n > 3*once {
		t.Errorf("%d rounds read %d index entries, want the %d dead ones twice, and little more", rounds, n, once)
	}
}

func TestClaimsDoNotWalkOverWhatTheyHaveClaimed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const waiting = 100
	f.flood("ann", waiting)
	f.exec(`WITH old AS (SELECT id, clock_timestamp() - interval '1 hour' + row_number() OVER (ORDER BY priority, ready_at) * interval '1 second' AS at FROM a2a.tasks),
		q AS (UPDATE a2a.task_ready r SET run_at = old.at FROM old WHERE r.task_id = old.id)
		UPDATE a2a.tasks t SET ready_at = old.at FROM old WHERE t.id = old.id`)
	f.exec("VACUUM a2a.task_ready") // away with the entries of before
	f.forget()
	s := f.replica("r2", func(c *store.Config) { c.PoolSize = 1 })
	c := s.Tasks.NewClaimer()
	for range waiting {
		if leases, err := c.Claim(f.ctx, agent, 1, ttl, time.Hour); err != nil || len(leases) != 1 {
			t.Fatalf("claimed %d, %v", len(leases), err)
		}
		tasks.Looked(c)
	}
	if n := f.entriesRead(s, "task_ready"); n < waiting || n > 10*waiting {
		t.Errorf("%d claims of one task read %d index entries", waiting, n)
	}
	f.invariants()
}

// The same for webhooks: what has been delivered, and leases that have ended.
func TestHeldSnapshotLeavesWebhooksFast(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const dead, rounds = 3000, 20
	f.forget()
	f.exec(`INSERT INTO a2a.push_configs (id, task_id, config_id, tenant, owner, agent, url, origin, schemes, wire_version, from_seq, cursor_seq, head_seq, next_attempt_at, lease_until)
		SELECT gen_random_uuid(), gen_random_uuid(), 'default', 'acme', 'ann', 'words', 'u', 'x', '{}', 3, 0, 0, 1, clock_timestamp() - interval '1 hour', clock_timestamp() - interval '1 minute'
		FROM generate_series(1, $1)`, dead)
	f.exec("DELETE FROM a2a.push_configs")
	s := f.replica("r2", func(c *store.Config) { c.PoolSize = 1 })
	for range rounds {
		in, p := submission("hello"), newPush("default")
		in.Push = &p
		if _, err := s.Tasks.Submit(f.ctx, in); err != nil {
			t.Fatal(err)
		}
		due, err := s.Webhooks.Claim(f.ctx, 10, 10, ttl)
		if err != nil || len(due) != 1 {
			t.Fatalf("claimed %d webhooks, %v", len(due), err)
		}
		pushesLooked(s)
		if held, err := s.Webhooks.Renew(f.ctx, []*webhooks.Delivery{&due[0]}, ttl); err != nil || len(held) != 1 {
			t.Fatalf("renewed %d, %v", len(held), err)
		}
		if err := s.Webhooks.Delivered(f.ctx, &due[0], &webhooks.Try{Status: 200}, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.entriesRead(s, "push_configs"); n < dead || n > 2*dead {
		t.Errorf("%d rounds read %d index entries, want the %d dead ones once, and little more", rounds, n, dead)
	}
}

// What becomes due behind the floor, by a transaction that commits late or a clock that was put back, is found by the next
// look from the start, which puts the floor back; one that is held by another keeps the floor, and so does one that is
// not due yet.
func TestFloorOfWebhooks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hook := func(due string) a2a.ID {
		t.Helper()
		in, p := submission("hello"), newPush("default")
		in.Push = &p
		id := f.submit(in).Task
		f.exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() + $2::interval WHERE task_id = $1", id, due)
		return id
	}
	claim := func(what string, want ...a2a.ID) {
		t.Helper()
		due := f.claimPushes(10)
		got := make([]a2a.ID, len(due))
		for i, d := range due {
			got[i] = d.Task
		}
		same(t, what, append([]a2a.ID{}, want...), got)
		pushesLooked(f.Store)
	}
	later := hook("1 hour")
	claim("not due")
	claim("a commit that took long", hook("-1500 milliseconds"))
	late := hook("-2 hours")
	claim("behind the floor")
	pushesDue(f.Store)
	claim("after a look", late)
	f.exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp() WHERE task_id = $1", late) // who had it is dead
	claim("again, the floor being where it was", late)
	claim("behind it", hook("-1 hour"))
	f.exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() WHERE task_id = $1", later)
	claim("due at last", later)
}
