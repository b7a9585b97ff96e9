package webhooks_test

import (
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

func TestDisablingADestinationIsRecordedOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	breaker := &webhooks.Breaker{Fails: 1, FirstOpen: time.Second, MaxOpen: time.Minute, DisableAfter: time.Hour}
	for range 3 {
		f.NewTaskWithWebhook("default")
	}
	due := f.ClaimWebhooks(3) // three requests in flight
	storetest.Same(t, "claimed", 3, len(due))
	f.Failed(&due[0], webhooks.Failure{Breaker: breaker})
	storetest.Same(t, "before it is disabled", 0, len(f.Actions()))
	f.Exec("UPDATE a2a.push_destinations SET first_failure_at = first_failure_at - interval '2 hours'")
	for i := range due[1:] {
		if !f.Failed(&due[1+i], webhooks.Failure{Breaker: breaker}) {
			t.Errorf("failure %d: not disabled", i+2)
		}
	}
	storetest.Same(t, "actions",
		[]string{`replica r1 push.disable acme/ {"destination":"` + storetest.WebhookOrigin + `"}`}, f.Actions())
}

func TestClaimsOfAllReplicasShareTheLimitOfADestination(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for range 6 {
		f.NewTaskWithWebhook("default")
	}
	in := storetest.Submission("other")
	p := storetest.NewWebhook("default")
	p.Origin = "https://other.example:443"
	in.Push = &p
	f.Submit(in)
	r2 := f.Replica("r2")
	var mu sync.Mutex
	got := map[string]int{}
	var first *webhooks.Delivery
	var wg sync.WaitGroup
	for _, s := range []*store.Store{f.Store, r2, f.Store, r2} {
		wg.Go(func() {
			due, err := s.Webhooks.Claim(t.Context(), 10, 4, time.Minute)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range due {
				got[due[i].Origin]++
				if due[i].Origin == storetest.WebhookOrigin {
					first = &due[i]
				}
			}
		})
	}
	wg.Wait()
	storetest.Same(t, "claimed", map[string]int{storetest.WebhookOrigin: 4, "https://other.example:443": 1}, got)
	f.Delivered(first, false)
	for _, want := range []int{1, 0} { // one more may be delivered
		if due, err := r2.Webhooks.Claim(t.Context(), 10, 4, time.Minute); err != nil || len(due) != want {
			t.Errorf("%d more, %v, want %d", len(due), err, want)
		}
	}
	// A lease that expires makes room for another delivery, and its webhook is due again.
	f.Exec(`UPDATE a2a.push_configs SET lease_until = clock_timestamp() - interval '1 second'
		WHERE id <> $1 AND lease_until IS NOT NULL`, first.Row)
	if due, err := r2.Webhooks.Claim(t.Context(), 10, 4, time.Minute); err != nil || len(due) != 5 {
		t.Errorf("when the leases ran out: %d, %v, want 4 and the other one", len(due), err)
	}
}

func TestBreakerOpensProbesAndCloses(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	breaker := &webhooks.Breaker{
		Fails: 3, FirstOpen: 30 * time.Second, MaxOpen: time.Minute, DisableAfter: 120 * time.Hour,
	}
	for range 4 {
		f.NewTaskWithWebhook("default")
	}
	due := f.ClaimWebhooks(10)
	storetest.Same(t, "claimed", 4, len(due))
	openFor := func() float64 {
		return storetest.Value[float64](f,
			"SELECT coalesce(extract(epoch FROM open_until - clock_timestamp()), 0)::float8 FROM a2a.push_destinations")
	}
	f.Failed(&due[0], webhooks.Failure{Breaker: breaker})
	f.Failed(&due[1], webhooks.Failure{Breaker: breaker})
	storetest.Same(t, "after two", 0.0, openFor())
	f.Failed(&due[2], webhooks.Failure{Breaker: breaker})
	if got := openFor(); got < 20 || got > 30 {
		t.Errorf("after three failures the breaker is open for %g s, want 30", got)
	}
	// A request that began before the breaker opened does not count.
	f.Failed(&due[3], webhooks.Failure{Breaker: breaker})
	if got := openFor(); got < 20 || got > 30 {
		t.Errorf("after the failure of an older request the breaker is open for %g s, want 30", got)
	}
	storetest.Same(t, "while it is open", 0, len(f.ClaimWebhooks(10)))
	probe := func() *webhooks.Delivery {
		t.Helper()
		f.Exec("UPDATE a2a.push_destinations SET open_until = clock_timestamp() - interval '1 second'")
		f.Exec("UPDATE a2a.push_parked SET look_at = clock_timestamp() - interval '1 second'")
		due := f.ClaimWebhooks(10)
		if len(due) != 1 {
			t.Fatalf("%d probes, want one", len(due))
		}
		storetest.Same(t, "beside the probe", 0, len(f.ClaimWebhooks(10)))
		return &due[0]
	}
	f.Failed(probe(), webhooks.Failure{Breaker: breaker})
	if got := openFor(); got < 50 || got > 60 {
		t.Errorf("after a probe the breaker is open for %g s, want 60", got)
	}
	f.Failed(probe(), webhooks.Failure{Breaker: breaker})
	if got := openFor(); got < 50 || got > 60 {
		t.Errorf("after another probe the breaker is open for %g s, want at most 60", got)
	}
	o, err := f.Operate.Overview(t.Context())
	if err != nil || len(o.Down) != 1 || o.Down[0].LastError != "answered 500" {
		t.Errorf("the overview has %+v, want the last error: %v", o.Down, err)
	}
	f.Delivered(probe(), false)
	storetest.Same(t, "after a success", 0.0, openFor())
	storetest.Same(t, "then all are due", 3, len(f.ClaimWebhooks(10)))
}

// A server that refuses one webhook is reachable.
func TestRefusalOfOneWebhookClosesTheBreaker(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	breaker := &webhooks.Breaker{
		Fails: 2, FirstOpen: 30 * time.Second, MaxOpen: time.Minute, DisableAfter: 120 * time.Hour,
	}
	for range 3 {
		f.NewTaskWithWebhook("default")
	}
	due := f.ClaimWebhooks(2)
	f.Failed(&due[0], webhooks.Failure{Breaker: breaker})
	f.Failed(&due[1], webhooks.Failure{Breaker: breaker})
	f.Exec("UPDATE a2a.push_destinations SET open_until = clock_timestamp() - interval '1 second'")
	probe := f.ClaimWebhooks(10)
	if len(probe) != 1 {
		t.Fatalf("%d probes, want one", len(probe))
	}
	notFound := &webhooks.Try{Status: 404, Class: "client_error", Reason: "answered 404"}
	if _, err := f.Webhooks.RecordFailure(t.Context(), &probe[0], notFound, webhooks.Failure{}); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "claimed", 3, len(f.ClaimWebhooks(10)))
}

func TestDestinationIsDisabledAfterLongFailure(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	breaker := &webhooks.Breaker{Fails: 1, FirstOpen: time.Second, MaxOpen: time.Minute, DisableAfter: time.Hour}
	f.NewTaskWithWebhook("default")
	if f.Failed(f.DueWebhook(), webhooks.Failure{Breaker: breaker}) {
		t.Error("disabled at the first failure")
	}
	if !storetest.Value[bool](f,
		"SELECT openings = 1 AND open_until <= clock_timestamp() + interval '1 second' FROM a2a.push_destinations") {
		t.Error("the first failure did not open the breaker")
	}
	f.Exec(`UPDATE a2a.push_destinations
		SET first_failure_at = first_failure_at - interval '2 hours', open_until = NULL`)
	if !f.Failed(f.DueWebhook(), webhooks.Failure{Breaker: breaker}) {
		t.Error("not disabled after two hours of failures")
	}
	f.Exec("UPDATE a2a.push_destinations SET open_until = NULL")
	f.Exec("UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp()")
	storetest.Same(t, "while it is disabled", 0, len(f.ClaimWebhooks(10)))
	list, err := f.Webhooks.List(t.Context(), webhooks.Filter{Limit: 10})
	if err != nil || len(list) != 1 || list[0].DisabledAt.IsZero() || list[0].Attempt != 2 {
		t.Errorf("the operator sees %+v, %v, want one that is disabled, at attempt 2", list, err)
	}
	if done, err := f.Webhooks.EnableDestination(t.Context(), "acme", storetest.WebhookOrigin); !done || err != nil {
		t.Errorf("enable: %t, %v", done, err)
	}
	storetest.Same(t, "when it is enabled", 1, len(f.ClaimWebhooks(10)))
	done, err := f.Webhooks.EnableDestination(t.Context(), "acme", "https://unknown.example:443")
	if done || err != nil {
		t.Errorf("enable an unknown destination: %t, %v", done, err)
	}
}
