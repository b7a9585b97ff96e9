package a2ad

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"
)

// healthTimeout is how long a probe may take to send its request.
const healthTimeout = 5 * time.Second

type phase int

const (
	fresh phase = iota
	working
	stopping
	halted
)

// enter notes that the worker begins to work. It returns false if it works already.
func (w *Worker) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == working || w.phase == stopping {
		return false
	}
	w.phase = working
	return true
}

func (w *Worker) setPhase(p phase) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = p
}

// Status is the state of a worker.
type Status struct {
	Worker    string                 `json:"worker"`
	Ready     bool                   `json:"ready"`     // the server accepts the claims of each agent
	Stopping  bool                   `json:"stopping"`  // or not running
	Runs      int                    `json:"runs"`      // in progress
	LastClaim *time.Time             `json:"lastClaim"` // when the server last answered a claim, or nil
	Agents    map[string]AgentStatus `json:"agents"`
}

// AgentStatus is the state of an agent of a worker.
type AgentStatus struct {
	Concurrency int        `json:"concurrency"`
	Running     int        `json:"running"`
	Reachable   bool       `json:"reachable"` // the server answered the last claim, or lets it wait
	Error       string     `json:"error,omitempty"`
	LastClaim   *time.Time `json:"lastClaim"`
}

// Status returns the state of the worker.
func (w *Worker) Status() Status {
	w.mu.Lock()
	active := w.phase == working
	w.mu.Unlock()
	st := Status{Worker: w.o.Name, Ready: active, Stopping: !active, Agents: make(map[string]AgentStatus)}
	for _, a := range w.agents {
		s := a.status()
		st.Agents[a.name] = s
		st.Runs += s.Running
		st.Ready = st.Ready && s.Reachable
		if s.LastClaim != nil && (st.LastClaim == nil || s.LastClaim.After(*st.LastClaim)) {
			st.LastClaim = s.LastClaim
		}
	}
	return st
}

func (a *registered) status() AgentStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := AgentStatus{Concurrency: cap(a.slots), Running: a.running, Reachable: a.reachable, Error: a.problem}
	if !a.claimedAt.IsZero() {
		at := a.claimedAt.UTC()
		s.LastClaim = &at
	}
	return s
}

// Health returns a handler for /livez (the process), /readyz (whether the worker can claim tasks) and /status (JSON).
// If claims fail, the last two say why. The worker reconnects by itself, so do not restart it if it is not ready.
func (w *Worker) Health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(rw, "ok") })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		st := w.Status()
		if st.Ready {
			_, _ = fmt.Fprintln(rw, "ok")
			return
		}
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		rw.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(rw, "not ready")
		for _, a := range w.agents {
			if s := st.Agents[a.name]; s.Error != "" {
				_, _ = fmt.Fprintf(rw, "%s: %s\n", a.name, s.Error)
			}
		}
	})
	mux.HandleFunc("GET /status", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(w.Status()) // the client may be gone
	})
	return mux
}

// serveHealth serves Health on the address of the options, until the returned function is called.
func (w *Worker) serveHealth(ctx context.Context) (stop func(), err error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", w.o.Health)
	if err != nil {
		return nil, fmt.Errorf("health endpoint: %w", err)
	}
	w.o.Logger.Info("health endpoint", "address", listener.Addr().String())
	server := &http.Server{Handler: w.Health(), ReadTimeout: healthTimeout, WriteTimeout: healthTimeout}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	return func() {
		_ = server.Close() // probes are not worth waiting for
		<-done
	}, nil
}
