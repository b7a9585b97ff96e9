package interop

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// gate is a point in a script where the agent waits for the test: an effect whose receiver does not answer before.
type gate struct {
	server                *httptest.Server
	opened, reached       chan struct{}
	openOnce, reachedOnce sync.Once
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{opened: make(chan struct{}), reached: make(chan struct{})}
	g.server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// If the body is not read to its end, net/http does not notice that the agent was killed.
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		g.reachedOnce.Do(func() { close(g.reached) })
		select {
		case <-g.opened:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		g.open()
		g.server.Close()
	})
	return g
}

func (g *gate) op() op { return op{"op": "effect", "url": g.server.URL, "key": "gate"} }

func (g *gate) open() { g.openOnce.Do(func() { close(g.opened) }) }

func (g *gate) waitReached(t *testing.T) {
	t.Helper()
	ctx := testContext(t)
	select {
	case <-g.reached:
	case <-ctx.Done():
		t.Fatalf("the agent has not come to the gate: %v", context.Cause(ctx))
	}
}
