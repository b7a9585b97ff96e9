package rpc_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/a2ad/a2ad/internal/rpc"
)

// Reports and heartbeats of remote workers are many. Only those that fail are logged at the usual level.
func TestReportsOfWorkersAreLoggedIfTheyFail(t *testing.T) {
	t.Parallel()
	const run = "/worker/v1/runs/{task}/{epoch}"
	status := http.StatusOK
	mux := http.NewServeMux()
	for _, path := range []string{run + "/events", run + "/heartbeat", run + "/finish", "/worker/v1/claim"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	for _, tt := range []struct {
		path   string
		status int
		level  slog.Level // of the log
		logged bool
	}{
		{"/worker/v1/runs/t/1/events", http.StatusOK, slog.LevelInfo, false},
		{"/worker/v1/runs/t/1/events", http.StatusOK, slog.LevelDebug, true},
		{"/worker/v1/runs/t/1/events", http.StatusConflict, slog.LevelInfo, true},
		{"/worker/v1/runs/t/1/events", http.StatusServiceUnavailable, slog.LevelInfo, true},
		{"/worker/v1/runs/t/1/heartbeat", http.StatusOK, slog.LevelInfo, false},
		{"/worker/v1/runs/t/1/finish", http.StatusOK, slog.LevelInfo, true},
		{"/worker/v1/claim", http.StatusOK, slog.LevelInfo, true},
	} {
		var log bytes.Buffer
		handler := newBare(t, func(c *rpc.Config) {
			c.Workers = mux
			c.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: tt.level}))
		}).Config.Handler
		status = tt.status
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tt.path, http.NoBody)
		handler.ServeHTTP(httptest.NewRecorder(), req)
		if logged := bytes.Contains(log.Bytes(), []byte(`"msg":"request"`)); logged != tt.logged {
			t.Errorf("%s, status %d at %s: logged %v, want %v\n%s", tt.path, tt.status, tt.level, logged, tt.logged,
				log.Bytes())
		}
	}
}
