package webhooks_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// addDue inserts n webhooks of a tenant at an origin, each with a task, that have been due for that many seconds.
func addDue(f *storetest.Fixture, n int, tenant, origin string, since int) {
	f.T.Helper()
	f.Exec(`
		WITH t AS (
			INSERT INTO a2a.tasks (
			  id, tenant, owner, agent, context_id, state, status_at, last_seq, last_at,
			  last_message_seq, last_user_seq, created_at, has_push, list_key)
			SELECT gen_random_uuid(), $2, 'ann', 'words', 'c', 1, now(), 1, now(),
			  0, 0, now(), true, a2a.list_key($2, 'ann', 'words')
			FROM generate_series(1, $1) RETURNING id)
		INSERT INTO a2a.push_configs (
		  id, task_id, config_id, tenant, owner, agent, url, origin, schemes,
		  wire_version, from_seq, cursor_seq, head_seq, next_attempt_at)
		SELECT gen_random_uuid(), t.id, 'default', $2, 'ann', 'words', $3 || '/x', $3, '{}',
		  3, 0, 0, 1, clock_timestamp() - $4 * interval '1 second' - random() * interval '1 second'
		FROM t`, n, tenant, origin, since)
}

const (
	openBreaker = `
		INSERT INTO a2a.push_destinations (tenant, origin, fails, openings, first_failure_at, open_until)
		VALUES ($1, $2, 5, 1, clock_timestamp(), clock_timestamp() + interval '1 hour')`
	parkedListsDue = "UPDATE a2a.push_parked SET look_at = clock_timestamp()"
	countReady     = `
		SELECT count(*)::int FROM a2a.push_configs WHERE tenant = $1 AND NOT parked AND cursor_seq < head_seq`
	countParked = "SELECT count(*)::int FROM a2a.push_configs WHERE parked"
)

// wantAllListed fails the test for a parked webhook that is in no list.
func wantAllListed(f *storetest.Fixture) {
	f.T.Helper()
	n := storetest.Value[int](f, `
		SELECT count(*)::int FROM a2a.push_configs p
		WHERE p.parked AND p.deleted_at IS NULL AND p.cursor_seq < p.head_seq
		  AND NOT EXISTS (SELECT FROM a2a.push_parked l WHERE l.tenant = p.tenant AND l.origin = p.origin)`)
	if n > 0 {
		f.T.Errorf("%d parked webhooks are in no list", n)
	}
}

// claimAll claims until nothing is due, and returns how many webhooks of each tenant it claimed.
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

// Claims skip the webhooks of a destination that is disabled or whose breaker is open, until it is enabled or closes.
func TestWebhooksOfAnUnavailableDestinationAreParked(t *testing.T) {
	t.Parallel()
	for what, down := range map[string]string{
		"open": "", "disabled": ", disabled_at = clock_timestamp(), open_until = NULL",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			addDue(f, 300, "acme", storetest.WebhookOrigin, 60)
			addDue(f, 3, "acme", "https://alive.example:443", 10)
			f.Exec(openBreaker, "acme", storetest.WebhookOrigin)
			if down != "" {
				f.Exec("UPDATE a2a.push_destinations SET fails = fails" + down)
			}
			storetest.Same(t, "claimed while it is down", map[string]int{"acme": 3}, claimAll(f, f.Store, 8))
			storetest.Same(t, "not parked", 3, storetest.Value[int](f, countReady, "acme"))
			wantAllListed(f)
			if ok, err := f.Webhooks.EnableDestination(t.Context(), "acme", storetest.WebhookOrigin); !ok ||
				err != nil {
				t.Fatalf("enable: %t, %v", ok, err)
			}
			storetest.Same(t, "claimed when it is up", 8, len(f.ClaimWebhooks(100)))
			storetest.Same(t, "still parked", 292, storetest.Value[int](f, countParked))
			for range 37 {
				f.Exec(`
					UPDATE a2a.push_configs
					SET cursor_seq = head_seq, target_seq = NULL, lease_until = NULL, next_attempt_at = 'infinity'
					WHERE lease_until IS NOT NULL`)
				claimAll(f, f.Store, 8)
			}
			storetest.Same(t, "left", 0, storetest.Value[int](f, `
				SELECT count(*)::int FROM a2a.push_configs WHERE lease_until IS NULL AND cursor_seq < head_seq`))
			claimAll(f, f.Store, 8)
			storetest.Same(t, "lists", 0, storetest.Value[int](f, "SELECT count(*)::int FROM a2a.push_parked"))
			wantAllListed(f)
		})
	}
}

// The probe of an open breaker is one parked webhook. Its success makes the others due.
func TestParkedWebhookIsTheProbe(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for i := range 3 {
		in := storetest.Submission(fmt.Sprintf("hello %d", i))
		p := storetest.NewWebhook("default")
		in.Push = &p
		f.Submit(in)
	}
	f.Exec(openBreaker, "acme", storetest.WebhookOrigin)
	storetest.Same(t, "while it is open", 0, len(f.ClaimWebhooks(10)))
	storetest.Same(t, "parked", 3, storetest.Value[int](f, countParked))
	f.Exec("UPDATE a2a.push_destinations SET open_until = clock_timestamp() - interval '1 second'")
	f.Exec(parkedListsDue)
	due := f.ClaimWebhooks(10)
	if len(due) != 1 {
		t.Fatalf("%d probes, want one", len(due))
	}
	storetest.Same(t, "during the probe", 0, len(f.ClaimWebhooks(10)))
	f.TakeWakes()
	f.Delivered(&due[0], false)
	if !slices.Contains(f.TakeWakes(), wake.Webhooks) {
		t.Error("the deliverers were not woken when the breaker closed")
	}
	storetest.Same(t, "after its success", 2, len(f.ClaimWebhooks(10)))
	wantAllListed(f)
}

// A destination that accepts webhooks more slowly than they come does not delay others.
func TestWebhooksBeyondTheCapAreParked(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	addDue(f, 500, "acme", storetest.WebhookOrigin, 60)
	addDue(f, 1, "acme", "https://alive.example:443", 10)
	due := f.ClaimWebhooks(100)
	storetest.Same(t, "claimed at once", 8, len(due))
	storetest.Same(t, "then", 1, claimAll(f, f.Store, 8)["acme"])
	if n := storetest.Value[int](f, countReady, "acme"); n > 9 {
		t.Errorf("claims still read %d webhooks, want only those with a lease", n)
	}
	wantAllListed(f)
}

// However many webhooks of one tenant are due, one of the next two claims has another tenant's.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	addDue(f, 3000, "big", storetest.WebhookOrigin, 3600)
	// no origin is at its limit
	f.Exec("UPDATE a2a.push_configs SET origin = 'https://h' || (random() * 400)::int || '.example:443'")
	addDue(f, 1, "small", "https://small.example:443", 0)
	f.Exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() WHERE tenant = 'small'")
	for claims := 1; ; claims++ {
		due, err := f.Webhooks.Claim(t.Context(), 20, 8, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due {
			if d.Tenant == "small" {
				if claims > 2 {
					t.Errorf("the small tenant waited for %d claims, want at most 2", claims)
				}
				return
			}
		}
		if len(due) == 0 || claims > 200 {
			t.Fatalf("the small tenant was not claimed in %d claims", claims)
		}
	}
}

// A claim does not wait for one of another origin, and does not exceed the limit of an origin.
func TestClaimsOfDifferentOriginsDoNotWait(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	addDue(f, 1, "acme", storetest.WebhookOrigin, 10)
	release := stopClaims(f)
	var first []webhooks.Delivery
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { first, err = f.Webhooks.Claim(t.Context(), 10, 8, time.Minute) })
	f.WaitBlocked(1)
	addDue(f, 2, "acme", storetest.WebhookOrigin, 5)
	addDue(f, 1, "acme", "https://other.example:443", 5)
	due, err2 := f.Replica("r2").Webhooks.Claim(t.Context(), 10, 8, time.Minute)
	if err2 != nil || len(due) != 1 || due[0].Origin != "https://other.example:443" {
		t.Errorf("the second claim has %d webhooks, %v, want the one of the other origin", len(due), err2)
	}
	release()
	wg.Wait()
	if err != nil || len(first) != 1 {
		t.Errorf("the first claim has %d webhooks, %v, want 1", len(first), err)
	}
}

// Servers of the previous version claim parked webhooks, too. Their claim unparks the webhook.
func TestClaimOfThePreviousVersionUnparks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	addDue(f, 2, "acme", storetest.WebhookOrigin, 10)
	f.Exec(openBreaker, "acme", storetest.WebhookOrigin)
	f.ClaimWebhooks(10)
	f.Exec(`
		UPDATE a2a.push_configs
		SET lease_until = clock_timestamp() + interval '1 minute', lease_epoch = lease_epoch + 1
		WHERE id = (SELECT id FROM a2a.push_configs LIMIT 1)`)
	storetest.Same(t, "parked", 1, storetest.Value[int](f, countParked))
	f.Exec("UPDATE a2a.push_configs SET origin = 'https://new.example:443' WHERE parked")
	storetest.Same(t, "parked after it moved", 0, storetest.Value[int](f, countParked))
	wantAllListed(f)
}

// After the clock was set back, parked webhooks do not wait for the old time.
func TestParkedWebhooksDoNotWaitForTheOldClock(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	addDue(f, 2, "acme", storetest.WebhookOrigin, 10)
	f.Exec(openBreaker, "acme", storetest.WebhookOrigin)
	f.ClaimWebhooks(10)
	f.Exec("DELETE FROM a2a.push_destinations")
	f.Exec("UPDATE a2a.push_parked SET look_at = clock_timestamp() + interval '2 hours'")
	f.Exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp() + interval '2 hours'")
	storetest.Same(t, "claimed", 2, len(f.ClaimWebhooks(10)))
}
