package webhooks_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// stopClaims makes a claim stop between its first and its second webhook, until release is called. By then it has
// locked and changed the first one.
func stopClaims(f *storetest.Fixture) (release func()) {
	f.T.Helper()
	f.Exec(`CREATE FUNCTION a2a.test_stop() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock(71, 1); RETURN NEW; END $$`)
	f.Exec(`CREATE TRIGGER test_stop BEFORE UPDATE ON a2a.push_configs FOR EACH ROW
		WHEN (NEW.lease_epoch > OLD.lease_epoch AND NEW.origin = '` + storetest.WebhookOrigin + `')
		EXECUTE FUNCTION a2a.test_stop()`)
	return f.Lock("SELECT pg_advisory_xact_lock(71, 1)")
}

// A claim reads which webhooks are due before it locks their rows. A change between the two decides: a webhook whose
// deletion was answered must not get a request.
func TestClaimSkipsWebhooksThatChangedBeforeTheirLock(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]string{
		"deleted":                    "", // by Delete, which answers at once: no request is in flight
		"disabled":                   "state = 'disabled'",
		"delivered":                  "cursor_seq = head_seq, target_seq = NULL",
		"delayed":                    "next_attempt_at = clock_timestamp() + interval '1 hour'",
		"claimed by another replica": "lease_until = clock_timestamp() + interval '1 hour'",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			for i := range 2 {
				in := storetest.Submission(fmt.Sprintf("hello %d", i))
				p := storetest.NewWebhook("default")
				in.Push = &p
				f.Submit(in)
			}
			release := stopClaims(f)
			var due []webhooks.Delivery
			var err error
			var wg sync.WaitGroup
			wg.Go(func() { due, err = f.Webhooks.Claim(t.Context(), 10, 8, time.Minute) })
			f.WaitBlocked(1)
			last := storetest.Value[string](f,
				"SELECT id::text FROM a2a.push_configs ORDER BY next_attempt_at DESC LIMIT 1")
			if change != "" {
				f.Exec("UPDATE a2a.push_configs SET "+change+" WHERE id = $1", last)
			} else {
				task := storetest.Value[a2a.ID](f, "SELECT task_id FROM a2a.push_configs WHERE id = $1", last)
				if err := f.Webhooks.Delete(t.Context(), storetest.Ann, task, "default"); err != nil {
					t.Error(err)
				}
			}
			release()
			wg.Wait()
			if err != nil {
				t.Fatalf("claim: %v", err)
			}
			for _, d := range due {
				if d.Row.String() == last {
					t.Errorf("the claim returned the webhook that was %s", what)
				}
			}
			if len(due) != 1 {
				t.Errorf("%d webhooks claimed, want the one that did not change", len(due))
			}
		})
	}
}
