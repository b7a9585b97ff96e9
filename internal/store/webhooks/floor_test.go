package webhooks_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// A long transaction keeps the index entries of deleted and delivered webhooks. Claims read them once, not each time.
func TestClaimsOfWebhooksStayFastDuringALongTransaction(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const dead, rounds = 3000, 20
	f.HoldSnapshot()
	f.Exec(`
		INSERT INTO a2a.push_configs (
		  id, task_id, config_id, tenant, owner, agent, url, origin, schemes,
		  wire_version, from_seq, cursor_seq, head_seq, next_attempt_at, lease_until)
		SELECT gen_random_uuid(), gen_random_uuid(), 'default', 'acme', 'ann', 'words', 'u', 'x', '{}',
		  3, 0, 0, 1, clock_timestamp() - interval '1 hour', clock_timestamp() - interval '1 minute'
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
		if held, err := s.Webhooks.Renew(t.Context(), []*webhooks.Delivery{&due[0]}, storetest.TTL); err != nil ||
			len(held) != 1 {
			t.Fatalf("renewed %d, %v", len(held), err)
		}
		if err := s.Webhooks.RecordDelivery(t.Context(), &due[0], &webhooks.Try{Status: 200}, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.IndexEntriesRead(s, "push_configs"); n < dead || n > 2*dead {
		t.Errorf("%d rounds read %d index entries, want the %d dead ones once and few others", rounds, n, dead)
	}
}

// A webhook may become due before the floor, after a late commit or after the clock was set back. The next poll from
// the start finds it and moves the floor back. A leased webhook keeps the floor, and so does one that is not due yet.
func TestFloorOfWebhooksMovesBackForLateOnes(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	addDueIn := func(due string) a2a.ID {
		t.Helper()
		id := f.NewTaskWithWebhook("default")
		f.Exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() + $2::interval WHERE task_id = $1",
			id, due)
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
	later := addDueIn("1 hour")
	claim("not due")
	claim("a late commit", addDueIn("-1500 milliseconds"))
	late := addDueIn("-2 hours")
	claim("before the floor")
	webhooks.PollDue(f.Webhooks)
	claim("after a poll from the start", late)
	// Its deliverer dies.
	f.Exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp() WHERE task_id = $1", late)
	claim("again, from the same floor", late)
	claim("after the floor", addDueIn("-1 hour"))
	f.Exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() WHERE task_id = $1", later)
	claim("due at last", later)
}
