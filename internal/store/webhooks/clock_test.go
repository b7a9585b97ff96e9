package webhooks_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// jump is how far the clock is set back.
const jump = 2 * time.Hour

// The clock does not lengthen a wait: a new event is due at once, a retry waits for its backoff, and a destination for
// its breaker. A delivery in flight keeps its lease.
func TestWebhooksAreDeliveredAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.SetWebhook(l.TaskID, "news")
	f.Append(l, storetest.Status(a2a.StateInputRequired, "what?"))
	f.SetClockBack(jump)
	f.TakeWakes()
	f.Rescue(0)
	if got := f.TakeWakes(); !slices.Contains(got, wake.Webhooks) {
		t.Errorf("woke %v, want the deliverers", got)
	}
	due := f.ClaimWebhooks(10)
	if len(due) != 1 {
		t.Fatalf("%d webhooks are due, want 1", len(due))
	}
	f.SetClockBack(jump) // during the delivery
	f.Rescue(0)
	if got := f.ClaimWebhooks(10); len(got) != 0 {
		t.Errorf("%d webhooks are claimed while their lease lasts", len(got))
	}
	if !storetest.Value[bool](f, `
		SELECT lease_until > clock_timestamp() AND lease_until <= clock_timestamp() + interval '1 min'
		FROM a2a.push_configs`) {
		t.Error("the lease is not one of a minute")
	}
	breaker := &webhooks.Breaker{Fails: 1, FirstOpen: time.Minute, MaxOpen: time.Minute, DisableAfter: time.Hour}
	f.Failed(&due[0], webhooks.Failure{Delay: 10 * time.Minute, Breaker: breaker})
	f.SetClockBack(jump)
	f.Rescue(0)
	for what, query := range map[string]string{
		"the retry is no later": `
			SELECT next_attempt_at <= clock_timestamp() + interval '10 min' FROM a2a.push_configs`,
		"the retry is no sooner": `
			SELECT next_attempt_at > clock_timestamp() + interval '9 min' FROM a2a.push_configs`,
		"the breaker is no later": `
			SELECT open_until <= clock_timestamp() + interval '1 min' AND first_failure_at <= clock_timestamp()
			FROM a2a.push_destinations`,
	} {
		if !storetest.Value[bool](f, query) {
			t.Errorf("not so: %s", what)
		}
	}
}

// A claimed webhook was due. When its deliverer releases it or dies after the clock was set back, it is due again at
// once, and does not wait for the old time.
func TestReleasedWebhookIsDueAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	expire := func(f *storetest.Fixture) { f.Exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp()") }
	for name, release := range map[string]func(f *storetest.Fixture, d *webhooks.Delivery) error{
		"released": func(f *storetest.Fixture, d *webhooks.Delivery) error {
			return f.Webhooks.Release(t.Context(), d)
		},
		"renewed by a deliverer that died": func(f *storetest.Fixture, d *webhooks.Delivery) error {
			kept, err := f.Webhooks.Renew(t.Context(), []*webhooks.Delivery{d}, time.Minute)
			if err == nil && len(kept) != 1 {
				err = fmt.Errorf("%d webhooks were renewed, want 1", len(kept))
			}
			expire(f)
			return err
		},
		"claimed by a deliverer that died": func(f *storetest.Fixture, _ *webhooks.Delivery) error {
			expire(f)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			l := f.RunningTask()
			f.SetWebhook(l.TaskID, "news")
			f.Append(l, storetest.Status(a2a.StateInputRequired, "what?"))
			due := f.ClaimWebhooks(10)
			if len(due) != 1 {
				t.Fatalf("%d webhooks are due, want 1", len(due))
			}
			f.SetClockBack(jump)
			if err := release(f, &due[0]); err != nil {
				t.Fatal(err)
			}
			f.Rescue(0)
			if got := f.ClaimWebhooks(10); len(got) != 1 {
				t.Errorf("%d webhooks are due, want 1: the next attempt is at %s",
					len(got), storetest.Value[string](f, "SELECT next_attempt_at::text FROM a2a.push_configs"))
			}
		})
	}
}

// The clock is set back during a delivery, and then an event of the task moves the next attempt. The lease must still
// end in time.
func TestLeaseOfAWebhookEndsInTimeAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.SetWebhook(l.TaskID, "news")
	f.Append(l, storetest.Status(a2a.StateWorking, "one"))
	if due := f.ClaimWebhooks(10); len(due) != 1 {
		t.Fatalf("%d webhooks are due, want 1", len(due))
	}
	f.SetClockBack(jump)
	f.Append(l, storetest.Status(a2a.StateInputRequired, "what?"))
	f.Rescue(0)
	const untilEnd = "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM a2a.push_configs"
	if left := storetest.Value[float64](f, untilEnd); left > 120 {
		t.Errorf("the lease ends in %.0f s, want at most 120", left)
	}
}
