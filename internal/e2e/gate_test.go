package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// gate is the far side of the script agent's effect op: a script waits at it until the test opens it, and what comes
// by is the outside record of executions.
type gate struct {
	t      *testing.T
	url    string
	opened chan struct{}
	once   sync.Once

	mu      sync.Mutex
	effects []effect      // guarded by mu
	changed chan struct{} // guarded by mu; closed and replaced when one comes
}

type effect struct {
	Task    string
	Epoch   int64
	Attempt int
	Step    int
	Key     string
}

// newGate returns a closed gate. It ends with the test.
func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{t: t, opened: make(chan struct{}), changed: make(chan struct{})}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e effect
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		g.add(e)
		select {
		case <-g.opened:
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done():
		}
	}))
	g.url = srv.URL
	t.Cleanup(func() {
		g.open()
		srv.Close()
	})
	return g
}

func (g *gate) add(e effect) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.effects = append(g.effects, e)
	close(g.changed)
	g.changed = make(chan struct{})
}

// op is the op that waits here. An agent waits for some seconds only and then tries again.
func (g *gate) op() string { return `{"op":"effect","url":"` + g.url + `"}` }

// open lets everybody through, from now on.
func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// await returns the n-th effect, from 0, once it is there.
func (g *gate) await(n int) effect {
	g.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		g.mu.Lock()
		list, changed := g.effects, g.changed
		g.mu.Unlock()
		if n < len(list) {
			return list[n]
		}
		select {
		case <-changed:
		case <-timer.C:
			g.t.Fatalf("%d agents came to the gate, want more than %d", len(list), n)
		}
	}
}

// seen returns all effects so far.
func (g *gate) seen() []effect {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]effect(nil), g.effects...)
}
