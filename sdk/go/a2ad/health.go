package a2ad

import (
	"encoding/json"
	"net/http"
)

type phase string

const (
	starting phase = ""
	working  phase = "working"
	stopping phase = "stopping"
	ended    phase = "stopped"
)

func (w *Worker) setPhase(p phase) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = p
}

func (a *registered) answered(yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers = yes
}

// health is what the handler of Health answers with.
type health struct {
	Status string                 `json:"status"` // starting, working, unreachable, stopping or stopped
	Worker string                 `json:"worker"`
	Agents map[string]agentHealth `json:"agents"`
}

type agentHealth struct {
	Slots     int  `json:"slots"`
	Connected bool `json:"connected"` // the server has answered the newest claim
}

// Health returns a handler for health checks. It answers with 200 while the worker runs and the server answers the
// claims of each agent, and otherwise with 503: before Run, while the server cannot be reached, and once the worker
// stops. The worker reconnects by itself, so do not restart it for a 503.
//
// The first claim of a worker may wait for a task for 30 seconds. Until then, the agent counts as connected unless a
// claim has failed.
func (w *Worker) Health() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		h := w.health()
		rw.Header().Set("Content-Type", "application/json")
		if h.Status != string(working) {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(rw).Encode(h) // the client may be gone
	})
}

func (w *Worker) health() health {
	w.mu.Lock()
	h := health{Status: string(w.phase), Worker: w.o.Name, Agents: make(map[string]agentHealth)}
	w.mu.Unlock()
	if h.Status == string(starting) {
		h.Status = "starting"
	}
	for _, a := range w.order {
		a.mu.Lock()
		connected := a.answers
		a.mu.Unlock()
		h.Agents[a.name] = agentHealth{Slots: cap(a.slots), Connected: connected}
		if !connected && h.Status == string(working) {
			h.Status = "unreachable"
		}
	}
	return h
}
