package rpc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Check is one condition that must hold for the server to be ready.
type Check struct {
	Name string
	Test func(ctx context.Context) error
}

// Admin answers operators, probes and Prometheus on a listener of its own.
type Admin struct {
	Checks  []Check
	Timeout time.Duration // of all checks together
	Metrics http.Handler  // nil: no metrics are served
	// Operators serves /admin/v1. It asks for credentials here too. nil: nothing does.
	Operators http.Handler
}

var errCheckTimeout = errors.New("checks took too long")

// Handler returns /livez (the process), /readyz (whether it can serve), /metrics, /admin/v1 and /debug/pprof.
func (a *Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", a.ready)
	if a.Metrics != nil {
		mux.Handle("GET /metrics", a.Metrics)
	}
	if a.Operators != nil {
		mux.Handle("/admin/v1/", a.Operators)
	}
	p := newProfiles()
	mux.HandleFunc("/debug/pprof/", p.bounded(true, maxProfileSeconds, pprof.Index))
	// Only the name of the program: a flag may hold the password of the database.
	mux.HandleFunc("/debug/pprof/cmdline", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, os.Args[0])
	})
	mux.HandleFunc("/debug/pprof/profile", p.bounded(false, maxProfileSeconds, pprof.Profile))
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", p.bounded(false, maxTraceSeconds, pprof.Trace))
	return shielded(mux)
}

func (a *Admin) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), a.Timeout, errCheckTimeout)
	defer cancel()
	status, text := http.StatusOK, ""
	for _, c := range a.Checks {
		if err := c.Test(ctx); err != nil {
			status = http.StatusServiceUnavailable
			// one line for each check
			text += c.Name + ": " + strings.Join(strings.Fields(a2a.Explain(err)), " ") + "\n"
			continue
		}
		text += c.Name + ": ok\n"
	}
	writeText(w, status, text)
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write([]byte(text)) //nolint:errcheck // the client disconnected
}

// ServeAdmin serves h on l until ctx is done. It does not wait for requests in flight.
func ServeAdmin(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 120 * time.Second}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
