package push

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// gate blocks a deliverer, like a suspended process.
type gate struct {
	entered, opened chan struct{}
	first, open     func()
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{entered: make(chan struct{}), opened: make(chan struct{})}
	g.first = sync.OnceFunc(func() { close(g.entered) })
	g.open = sync.OnceFunc(func() { close(g.opened) })
	t.Cleanup(g.open)
	return g
}

func (g *gate) pass() {
	g.first()
	<-g.opened
}

// TestSuspendedDelivererSendsNothingAfterADelete: a deliverer is suspended after its last check of
// the lease. In the meantime the lease expires and the webhook is deleted. Then the deliverer
// continues.
func TestSuspendedDelivererSendsNothingAfterADelete(t *testing.T) {
	t.Parallel()
	for name, freeze := range map[string]func(t *testing.T, g *gate) (*sink, string, ClientConfig){
		"in the resolver": func(t *testing.T, g *gate) (*sink, string, ClientConfig) {
			names := resolver(t, map[string][][]string{"hook.example": {{"127.0.0.1"}}})
			dial := names.Dial
			names.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				g.pass()
				return dial(ctx, network, address)
			}
			s := newSink(t, ok)
			return s, "http://hook.example:" + s.port(t), ClientConfig{Policy: dev, Resolver: names}
		},
		"in the handshake": func(t *testing.T, g *gate) (*sink, string, ClientConfig) {
			ca := newAuthority(t)
			cert := ca.issue(t, "127.0.0.1", time.Now().Add(time.Hour))
			s := newTLSSink(t, &tls.Config{Certificates: []tls.Certificate{cert},
				GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
					g.pass()
					return nil, nil
				}})
			return s, s.URL, ClientConfig{Policy: dev, RootCAs: ca.pool}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			g := newGate(t)
			s, url, cfg := freeze(t, g)
			var ahead atomic.Int64
			task := b.task(a2a.PushConfig{URL: url + "/hook"})
			stop := b.deliver(func(c *DelivererConfig) {
				cfg.Timeout, cfg.DialTimeout, cfg.TLSTimeout = patience, patience, patience
				c.Client = newClient(t, cfg)
				c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			})
			select {
			case <-g.entered:
			case <-time.After(patience):
				t.Fatal("no request was begun")
			}
			deleted := make(chan error, 1)
			go func() { deleted <- b.Webhooks.Delete(t.Context(), ann, task, "default") }()
			p := b.await(task, "deleted", func(p webhooks.Row) bool { return !p.DeletedAt.IsZero() })
			if _, err := b.sql.Exec(t.Context(),
				"UPDATE a2a.push_configs SET lease_until = clock_timestamp()"); err != nil {
				t.Fatal(err)
			}
			if err := <-deleted; err != nil {
				t.Fatal(err)
			}
			ahead.Store(int64(time.Hour))
			g.open()
			stop()
			if got := s.requests(); len(got) != 0 {
				t.Errorf("%d requests came after the delete", len(got))
			}
			if tries := b.tries(p); len(tries) != 0 {
				t.Errorf("ledger %+v, want no try", tries)
			}
		})
	}
}

// TestFenceAppliesToOneRequest: a reused connection has the fence of its current request, and no
// other.
func TestFenceAppliesToOneRequest(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for name, s := range map[string]*sink{
		"http": newSink(t, ok), "https": newTLSSink(t,
			&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "127.0.0.1", time.Now().Add(time.Hour))}}),
	} {
		c := newClient(t, ClientConfig{Policy: dev, RootCAs: ca.pool})
		want := 0
		for i, valid := range []func() bool{nil, func() bool { return false }, func() bool { return true },
			func() bool { return false }, nil} {
			r := request(s.URL)
			r.LeaseValid = valid
			class := ClassDelivered
			if valid != nil && !valid() {
				class = ClassCanceled
			} else {
				want++
			}
			if res := c.Attempt(t.Context(), r); res.Class != class {
				t.Errorf("%s, request %d: %+v, want %s", name, i, res, class)
			}
		}
		if got := len(s.requests()); got != want {
			t.Errorf("%s: %d requests came, want %d", name, got, want)
		}
	}
}

// TestFenceInterruptsARequest: a lease that expires in the middle of a request ends the request, so
// the receiver gets an incomplete one.
func TestFenceInterruptsARequest(t *testing.T) {
	t.Parallel()
	came := make(chan int64, 1)
	s := newSink(t, ok)
	s.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var n int64
		buf := make([]byte, 1<<16)
		for {
			k, err := r.Body.Read(buf)
			n += int64(k)
			if err != nil {
				came <- n
				return
			}
		}
	})
	r := request(s.URL)
	r.Body = []byte(strings.Repeat("x", 1<<20))
	var writes atomic.Int32
	r.LeaseValid = func() bool { return writes.Add(1) < 3 }
	if res := newClient(t, ClientConfig{Policy: dev}).Attempt(t.Context(), r); res.Class != ClassCanceled {
		t.Errorf("got %+v, want %s", res, ClassCanceled)
	}
	if n := <-came; n >= 1<<20 {
		t.Errorf("all %d bytes came", n)
	}
}
