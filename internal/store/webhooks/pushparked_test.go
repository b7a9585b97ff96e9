package webhooks_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// hooks makes n webhooks of a tenant at an origin that are due since so many seconds, as rows alone.
func hooks(f *storetest.Fixture, n int, tenant, origin string, since int) {
	f.T.Helper()
	f.Exec(`WITH t AS (
			INSERT INTO a2a.tasks (id, tenant, owner, agent, context_id, state, status_at, last_seq, last_at, last_message_seq, last_user_seq, created_at, has_push, list_key)
			SELECT gen_random_uuid(), $2, 'ann', 'words', 'c', 1, now(), 1, now(), 0, 0, now(), true, a2a.list_key($2, 'ann', 'words') FROM generate_series(1, $1) RETURNING id)
		INSERT INTO a2a.push_configs (id, task_id, config_id, tenant, owner, agent, url, origin, schemes, wire_version, from_seq, cursor_seq, head_seq, next_attempt_at)
		SELECT gen_random_uuid(), t.id, 'default', $2, 'ann', 'words', $3 || '/x', $3, '{}', 3, 0, 0, 1,
			clock_timestamp() - $4 * interval '1 second' - random() * interval '1 second' FROM t`, n, tenant, origin, since)
}

const (
	openFor   = "INSERT INTO a2a.push_destinations (tenant, origin, fails, openings, first_failure_at, open_until) VALUES ($1, $2, 5, 1, clock_timestamp(), clock_timestamp() + interval '1 hour')"
	listsTold = "UPDATE a2a.push_parked SET look_at = clock_timestamp()"
	readyOf   = "SELECT count(*)::int FROM a2a.push_configs WHERE tenant = $1 AND NOT parked AND cursor_seq < head_seq"
)

// listed fails the test for a parked webhook that is in no list.
func listed(f *storetest.Fixture) {
	f.T.Helper()
	if n := storetest.Value[int](f, `SELECT count(*)::int FROM a2a.push_configs p WHERE p.parked AND p.deleted_at IS NULL AND p.cursor_seq < p.head_seq
		AND NOT EXISTS (SELECT FROM a2a.push_parked l WHERE l.tenant = p.tenant AND l.origin = p.origin)`); n > 0 {
		f.T.Errorf("%d parked webhooks are in no list", n)
	}
}

// claimAll claims until nothing is left to claim, and returns how many each tenant got.
func claimAll(f *storetest.Fixture, s *store.Store, perOrigin int) map[string]int {
	f.T.Helper()
	got := map[string]int{}
	for {
		due, err := s.Webhooks.Claim(f.T.Context(), 100, perOrigin, time.Minute)
		if err != nil {
			f.T.Fatal(err)
		}
		if len(due) == 0 {
			return got
		}
		for _, d := range due {
			got[d.Tenant]++
		}
	}
}

// Webhooks of a destination whose breaker is open, or that is disabled, leave what claims look
// at, and come back when it closes.
func TestWebhooksOfADeadDestinationAreParked(t *testing.T) {
	t.Parallel()
	for what, down := range map[string]string{"open": "", "disabled": ", disabled_at = clock_timestamp(), open_until = NULL"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			hooks(f, 300, "acme", storetest.WebhookOrigin, 60)
			hooks(f, 3, "acme", "https://alive.example:443", 10)
			f.Exec(openFor, "acme", storetest.WebhookOrigin)
			if down != "" {
				f.Exec("UPDATE a2a.push_destinations SET fails = fails" + down)
			}
			storetest.Same(t, "claimed while it is down", map[string]int{"acme": 3}, claimAll(f, f.Store, 8))
			storetest.Same(t, "left to look at", 3, storetest.Value[int](f, readyOf, "acme"))
			listed(f)
			if ok, err := f.Webhooks.EnableDestination(t.Context(), "acme", storetest.WebhookOrigin); !ok || err != nil {
				t.Fatalf("enable: %t, %v", ok, err)
			}
			storetest.Same(t, "claimed when it is up", 8, len(f.ClaimWebhooks(100)))
			storetest.Same(t, "parked still", 292, storetest.Value[int](f, "SELECT count(*)::int FROM a2a.push_configs WHERE parked"))
			for range 37 {
				f.Exec("UPDATE a2a.push_configs SET cursor_seq = head_seq, target_seq = NULL, lease_until = NULL, next_attempt_at = 'infinity' WHERE lease_until IS NOT NULL")
				claimAll(f, f.Store, 8)
			}
			storetest.Same(t, "left", 0, storetest.Value[int](f, "SELECT count(*)::int FROM a2a.push_configs WHERE lease_until IS NULL AND cursor_seq < head_seq"))
			claimAll(f, f.Store, 8)
			storetest.Same(t, "lists", 0, storetest.Value[int](f, "SELECT count(*)::int FROM a2a.push_parked"))
			listed(f)
		})
	}
}

// When a breaker is to be probed, one parked webhook is the probe; its success brings the others back.
func TestParkedWebhookIsTheProbe(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for i := range 3 {
		in := storetest.Submission(fmt.Sprintf("hello %d", i))
		p := storetest.NewWebhook("default")
		in.Push = &p
		f.Submit(in)
	}
	f.Exec(openFor, "acme", storetest.WebhookOrigin)
	storetest.Same(t, "while it is open", 0, len(f.ClaimWebhooks(10)))
	storetest.Same(t, "parked", 3, storetest.Value[int](f, "SELECT count(*)::int FROM a2a.push_configs WHERE parked"))
	f.Exec("UPDATE a2a.push_destinations SET open_until = clock_timestamp() - interval '1 second'")
	f.Exec(listsTold)
	due := f.ClaimWebhooks(10)
	if len(due) != 1 {
		t.Fatalf("%d probes, want one", len(due))
	}
	storetest.Same(t, "beside the probe", 0, len(f.ClaimWebhooks(10)))
	f.TakeWakes()
	f.Delivered(&due[0], false)
	if !contains(f.TakeWakes(), wake.Webhooks) {
		t.Error("nobody was woken when the breaker closed")
	}
	storetest.Same(t, "after its success", 2, len(f.ClaimWebhooks(10)))
	listed(f)
}

// A destination that takes webhooks more slowly than they come does not hold up others.
func TestWebhooksBeyondTheCapAreParked(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	hooks(f, 500, "acme", storetest.WebhookOrigin, 60)
	hooks(f, 1, "acme", "https://alive.example:443", 10)
	due := f.ClaimWebhooks(100)
	storetest.Same(t, "claimed at once", 8, len(due))
	storetest.Same(t, "then", 1, claimAll(f, f.Store, 8)["acme"])
	if n := storetest.Value[int](f, readyOf, "acme"); n > 9 {
		t.Errorf("claims look at %d webhooks still, want those that are held", n)
	}
	listed(f)
}

// However many webhooks of a tenant are due, the next claim but one has another's.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	hooks(f, 3000, "big", storetest.WebhookOrigin, 3600)
	f.Exec("UPDATE a2a.push_configs SET origin = 'https://h' || (random() * 400)::int || '.example:443'") // none is full
	hooks(f, 1, "small", "https://small.example:443", 0)
	f.Exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() WHERE tenant = 'small'")
	for claims := 1; ; claims++ {
		due, err := f.Webhooks.Claim(t.Context(), 20, 8, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due {
			if d.Tenant == "small" {
				if claims > 2 {
					t.Errorf("it had to wait for %d claims, want 2 at most", claims)
				}
				return
			}
		}
		if len(due) == 0 || claims > 200 {
			t.Fatalf("it was not claimed in %d claims", claims)
		}
	}
}

// A claim does not wait for one of another origin, nor take its origin's place.
func TestClaimsOfDifferentOriginsDoNotWait(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	hooks(f, 1, "acme", storetest.WebhookOrigin, 10)
	release := stopClaims(f)
	var first []webhooks.Delivery
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { first, err = f.Webhooks.Claim(t.Context(), 10, 8, time.Minute) })
	f.WaitBlocked(1)
	hooks(f, 2, "acme", storetest.WebhookOrigin, 5)
	hooks(f, 1, "acme", "https://other.example:443", 5)
	due, err2 := f.Replica("r2").Webhooks.Claim(t.Context(), 10, 8, time.Minute)
	if err2 != nil || len(due) != 1 || due[0].Origin != "https://other.example:443" {
		t.Errorf("beside it: %d claimed, %v, want the one of the other origin", len(due), err2)
	}
	release()
	wg.Wait()
	if err != nil || len(first) != 1 {
		t.Errorf("the first: %d, %v", len(first), err)
	}
}

// Servers of the version before claim parked webhooks, too: who claims one takes it off its list.
func TestClaimOfTheVersionBeforeUnparks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	hooks(f, 2, "acme", storetest.WebhookOrigin, 10)
	f.Exec(openFor, "acme", storetest.WebhookOrigin)
	f.ClaimWebhooks(10)
	f.Exec(`UPDATE a2a.push_configs SET lease_until = clock_timestamp() + interval '1 minute', lease_epoch = lease_epoch + 1
		WHERE id = (SELECT id FROM a2a.push_configs LIMIT 1)`)
	storetest.Same(t, "parked", 1, storetest.Value[int](f, "SELECT count(*)::int FROM a2a.push_configs WHERE parked"))
	f.Exec("UPDATE a2a.push_configs SET origin = 'https://new.example:443' WHERE parked")
	storetest.Same(t, "parked after it moved", 0, storetest.Value[int](f, "SELECT count(*)::int FROM a2a.push_configs WHERE parked"))
	listed(f)
}

// A clock that is set back does not make parked webhooks wait for the old time.
func TestParkedWebhooksDoNotWaitForATimeThatWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	hooks(f, 2, "acme", storetest.WebhookOrigin, 10)
	f.Exec(openFor, "acme", storetest.WebhookOrigin)
	f.ClaimWebhooks(10)
	f.Exec("DELETE FROM a2a.push_destinations")
	f.Exec("UPDATE a2a.push_parked SET look_at = clock_timestamp() + interval '2 hours'")
	f.Exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() + interval '2 hours'")
	storetest.Same(t, "claimed", 2, len(f.ClaimWebhooks(10)))
}
