package rpc

import "net/http"

// Starting answers for a server that cannot serve yet: it tells every client to come back.
func Starting() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		const body = `{"error":"the server is starting: its database cannot be used yet"}` + "\n"
		w.Write([]byte(body)) //nolint:errcheck // the client disconnected
	})
}
