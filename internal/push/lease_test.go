package push

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

func TestLeaseIsCheckedByBothClocks(t *testing.T) {
	t.Parallel()
	start := time.Now()
	now := start
	l := newLease(&webhooks.Delivery{}, func() time.Time { return now }, start, 10*time.Second, func() {})
	defer l.stop()
	for name, tt := range map[string]struct {
		now  time.Time
		want bool
	}{
		"at once":                       {start, true},
		"in time":                       {start.Add(8 * time.Second), true},
		"within the margin":             {start.Add(9500 * time.Millisecond), false},
		"late":                          {start.Add(time.Minute), false},
		"after the machine slept":       {start.Add(time.Minute).Round(0), false}, // only the wall clock has moved
		"when the wall clock went back": {start.Add(-time.Hour), true},
	} {
		if now = tt.now; l.valid() != tt.want {
			t.Errorf("%s: %t, want %t", name, !tt.want, tt.want)
		}
	}
}

// TestLeaseExpiresUnlessItIsRenewed: it expires by its timer, even if no write checks it.
func TestLeaseExpiresUnlessItIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		lost := make(chan time.Duration, 1)
		lose := func() { lost <- time.Since(start) }
		l := newLease(&webhooks.Delivery{}, time.Now, start, 30*time.Second, lose)
		time.Sleep(20 * time.Second)
		if !l.renewalDue() || !l.valid() {
			t.Errorf("after 20 s: due %t, valid %t, want both", l.renewalDue(), l.valid())
		}
		l.renewed(start.Add(20 * time.Second))
		if l.renewalDue() {
			t.Error("it is old when it was just renewed")
		}
		if got, want := <-lost, 49*time.Second; got != want || l.valid() {
			t.Errorf("expired after %v, valid %t, want %v", got, l.valid(), want)
		}
		l.renewed(start.Add(time.Hour)) // too late: the request was canceled
		never := newLease(&webhooks.Delivery{}, time.Now, start.Add(80*time.Second), 30*time.Second, lose)
		if got, want := <-lost, 109*time.Second; got != want || never.valid() {
			t.Errorf("one that was never renewed is given up after %v, want %v", got, want)
		}
	})
}

// TestLongRequestKeepsItsWebhook: a request may take longer than a lease, and no other process
// repeats it.
func TestLongRequestKeepsItsWebhook(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	entered, released := make(chan struct{}, 10), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	s := newSink(t, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-released
	})
	const lease = 20 * time.Second // a pause of half of it loses no lease
	task := b.task(a2a.PushConfig{URL: s.URL})
	patient := newClient(t, ClientConfig{Policy: dev, Timeout: 2 * patience, HeaderTimeout: 2 * patience})
	b.deliver(func(c *DelivererConfig) { c.Lease, c.Client = lease, patient })
	b.deliver(func(c *DelivererConfig) { c.Store, c.Lease, c.Client = b.replica("r2"), lease, patient })
	t.Cleanup(release) // before the deliverers end
	<-entered
	var first, until time.Time
	p := b.await(task, "renewed for longer than a lease", func(webhooks.Row) bool {
		if err := b.sql.QueryRow(t.Context(),
			"SELECT coalesce(lease_until, 'epoch') FROM a2a.push_configs").Scan(&until); err != nil {
			t.Fatal(err)
		}
		if first.IsZero() {
			first = until
		}
		return until.Sub(first) > lease
	})
	if n := len(s.requests()); n != 1 {
		t.Errorf("%d requests, want the one under way", n)
	}
	release()
	b.awaitDelivered(task, 1)
	if tries := b.tries(p); len(tries) != 1 {
		t.Errorf("ledger %+v, want one try", tries)
	}
}

// TestWebhookOfADeadProcessIsFreeWhenItsLeaseEnds: it need not wait for the request timeout.
func TestWebhookOfADeadProcessIsFreeWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	task := b.task(a2a.PushConfig{URL: s.URL})
	const lease = time.Second
	due, err := b.Webhooks.Claim(t.Context(), 1, 1, lease) // the process dies here
	if err != nil || len(due) != 1 {
		t.Fatalf("claimed %v, %v", due, err)
	}
	b.deliver(func(c *DelivererConfig) { c.Lease = time.Hour })
	b.awaitDelivered(task, 1)
}

// TestRequestIsCanceledWhenItsLeaseCannotBeRenewed: another process may send it by then.
func TestRequestIsCanceledWhenItsLeaseCannotBeRenewed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var n atomic.Int32
	gone := make(chan struct{})
	s := newSink(t, func(_ http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			<-r.Context().Done()
			close(gone)
		}
	})
	task := b.task(a2a.PushConfig{URL: s.URL})
	if _, err := b.sql.Exec(t.Context(), `
		CREATE FUNCTION lost() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER lost BEFORE UPDATE ON a2a.push_configs FOR EACH ROW
			WHEN (NEW.lease_epoch = OLD.lease_epoch AND NEW.lease_until > OLD.lease_until)
			EXECUTE FUNCTION lost()`); err != nil {
		t.Fatal(err)
	}
	b.deliver(func(c *DelivererConfig) {
		c.Lease, c.Client = time.Second, newClient(t,
			ClientConfig{Policy: dev, Timeout: 2 * patience, HeaderTimeout: 2 * patience})
	})
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the request continues")
	}
	if p := b.awaitDelivered(task, 1); len(b.tries(p)) != 1 {
		t.Errorf("ledger %+v, want only the second request", b.tries(p))
	}
}
