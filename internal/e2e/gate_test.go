package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// gate is the server that the script agent's effect op calls. A script waits at it until the test opens it. The calls
// are an independent record of executions.
type gate struct {
	t      *testing.T
	url    string
	opened chan struct{}
	once   sync.Once

	mu      sync.Mutex
	effects []effect      // guarded by mu
	changed chan struct{} // guarded by mu; closed and replaced at each effect
}

type effect struct {
	Task    string
	Epoch   int64
	Attempt int
	Step    int
	Key     string
}

// newGate returns a closed gate, which ends with the test.
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

// op returns the op that waits here. After a minute, the attempt fails.
func (g *gate) op() string { return `{"op":"effect","url":"` + g.url + `"}` }

// open lets all scripts pass, from now on.
func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// await waits for the n-th effect, from 0, and returns it.
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
			g.t.Fatalf("%d agents called the gate, want more than %d", len(list), n)
		}
	}
}

// seen returns all effects so far.
func (g *gate) seen() []effect {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]effect(nil), g.effects...)
}
