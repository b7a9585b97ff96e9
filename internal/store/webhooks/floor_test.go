package webhooks_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// The same for webhooks: what has been delivered, and leases that have ended.
func TestHeldSnapshotLeavesWebhooksFast(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const dead, rounds = 3000, 20
	f.HoldSnapshot()
	f.Exec(`INSERT INTO a2a.push_configs (id, task_id, config_id, tenant, owner, agent, url, origin, schemes, wire_version, from_seq, cursor_seq, head_seq, next_attempt_at, lease_until)
		SELECT gen_random_uuid(), gen_random_uuid(), 'default', 'acme', 'ann', 'words', 'u', 'x', '{}', 3, 0, 0, 1, clock_timestamp() - interval '1 hour', clock_timestamp() - interval '1 minute'
		FROM generate_series(1, $1)`, dead)
	f.Exec("DELETE FROM a2a.push_configs")
	s := f.Replica("r2", func(c *store.Config) { c.PoolSize = 1 })
	for range rounds {
		in, p := storetest.Submission("hello"), storetest.NewWebhook("default")
		in.Push = &p
		if _, err := s.Tasks.Submit(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		due, err := s.Webhooks.Claim(t.Context(), 10, 10, storetest.TTL)
		if err != nil || len(due) != 1 {
			t.Fatalf("claimed %d webhooks, %v", len(due), err)
		}
		webhooks.PollDone(s.Webhooks)
		if held, err := s.Webhooks.Renew(t.Context(), []*webhooks.Delivery{&due[0]}, storetest.TTL); err != nil || len(held) != 1 {
			t.Fatalf("renewed %d, %v", len(held), err)
		}
		if err := s.Webhooks.RecordDelivery(t.Context(), &due[0], &webhooks.Try{Status: 200}, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.IndexEntriesRead(s, "push_configs"); n < dead || n > 2*dead {
		t.Errorf("%d rounds read %d index entries, want the %d dead ones once, and little more", rounds, n, dead)
	}
}

// What becomes due behind the floor, by a transaction that commits late or a clock that was put back, is found by the next
// look from the start, which puts the floor back; one that is held by another keeps the floor, and so does one that is
// not due yet.
func TestFloorOfWebhooks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	hook := func(due string) a2a.ID {
		t.Helper()
		in, p := storetest.Submission("hello"), storetest.NewWebhook("default")
		in.Push = &p
		id := f.Submit(in).Task
		f.Exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() + $2::interval WHERE task_id = $1", id, due)
		return id
	}
	claim := func(what string, want ...a2a.ID) {
		t.Helper()
		due := f.ClaimWebhooks(10)
		got := make([]a2a.ID, len(due))
		for i, d := range due {
			got[i] = d.Task
		}
		storetest.Same(t, what, append([]a2a.ID{}, want...), got)
		webhooks.PollDone(f.Webhooks)
	}
	later := hook("1 hour")
	claim("not due")
	claim("a commit that took long", hook("-1500 milliseconds"))
	late := hook("-2 hours")
	claim("behind the floor")
	webhooks.PollDue(f.Webhooks)
	claim("after a look", late)
	f.Exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp() WHERE task_id = $1", late) // who had it is dead
	claim("again, the floor being where it was", late)
	claim("behind it", hook("-1 hour"))
	f.Exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() WHERE task_id = $1", later)
	claim("due at last", later)
}
