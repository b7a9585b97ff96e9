package rpc_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/a2ad/a2ad/internal/rpc"
)

// adminAnswer returns the status of an answer of the admin listener.
func adminAnswer(t *testing.T, h http.Handler, method, target, host string, header map[string]string) int {
	t.Helper()
	req := httptest.NewRequest(method, target, http.NoBody)
	req.Host = host
	for k, v := range header {
		req.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code
}

// TestPagesCannotUseTheAdminListener: the listener refuses pages of other origins, and pages whose
// host name was pointed at this machine. Programs may use any name, and people an address or
// localhost.
func TestPagesCannotUseTheAdminListener(t *testing.T) {
	t.Parallel()
	h := (&rpc.Admin{}).Handler()
	page := map[string]string{"User-Agent": "Mozilla/5.0", "Accept-Language": "en"}
	for _, tt := range []struct {
		name, path, host string
		header           map[string]string
		status           int
	}{
		{"a program by name", "/livez", "a2ad-0.a2ad.svc:9090", nil, 200},
		{"a person by address", "/debug/pprof/", "192.0.2.7:9090", page, 200},
		{"a person on this machine", "/debug/pprof/", "localhost:9090", page, 200},
		{"a person over IPv6", "/livez", "[::1]:9090", map[string]string{"Sec-Fetch-Site": "none"}, 200},
		{"a name that was pointed here", "/debug/pprof/heap", "evil.example:9090", page, 403},
		{"the same with a browser's fetch metadata only", "/debug/pprof/heap", "evil.example:9090",
			map[string]string{"Sec-Fetch-Site": "same-origin", "User-Agent": "curl"}, 403},
		{"a page of another origin", "/debug/pprof/heap", "127.0.0.1:9090",
			map[string]string{"Origin": "https://evil.example"}, 403},
		{"an origin that is hidden", "/livez", "127.0.0.1:9090", map[string]string{"Origin": "null"}, 403},
		{"an image of another site", "/debug/pprof/trace", "127.0.0.1:9090",
			map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"an image of another port", "/debug/pprof/trace", "127.0.0.1:9090",
			map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{"its own page", "/livez", "127.0.0.1:9090",
			map[string]string{"Origin": "http://127.0.0.1:9090", "Sec-Fetch-Site": "same-origin"}, 200},
	} {
		if got := adminAnswer(t, h, http.MethodGet, tt.path, tt.host, tt.header); got != tt.status {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.status)
		}
	}
}

// TestProfilesAreBounded: profiles have a limit on their length and on how many are made at once.
func TestProfilesAreBounded(t *testing.T) {
	t.Parallel()
	h := (&rpc.Admin{}).Handler()
	for target, want := range map[string]int{
		"/debug/pprof/profile?seconds=61": 400, "/debug/pprof/trace?seconds=11": 400,
		"/debug/pprof/heap?seconds=61":   400,
		"/debug/pprof/trace?seconds=1e9": 400, "/debug/pprof/trace?seconds=Inf": 400,
		"/debug/pprof/trace?seconds=NaN": 400, "/debug/pprof/profile?seconds=-1": 400,
	} {
		if got := adminAnswer(t, h, http.MethodGet, target, "127.0.0.1", nil); got != want {
			t.Errorf("%s: got %d, want %d", target, got, want)
		}
	}
	if got := adminAnswer(t, h, http.MethodPost, "/debug/pprof/trace", "127.0.0.1", nil); got != 405 {
		t.Errorf("POST: %d", got)
	}
	statuses := make(chan int)
	for range 3 {
		go func() {
			statuses <- adminAnswer(t, h, http.MethodGet, "/debug/pprof/trace?seconds=0.5", "127.0.0.1", nil)
		}()
	}
	counts := map[int]int{}
	for range 3 {
		counts[<-statuses]++
	}
	if counts[200] == 0 || counts[429] == 0 || counts[200]+counts[429] != 3 {
		t.Errorf("three concurrent traces: got statuses %v", counts)
	}
}

// TestAdminListenerServesTheOperatorsAPI: pages of other origins cannot use it.
func TestAdminListenerServesTheOperatorsAPI(t *testing.T) {
	t.Parallel()
	operators := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h := (&rpc.Admin{Operators: operators}).Handler()
	foreign := map[string]string{"Origin": "https://evil.example"}
	for _, tt := range []struct {
		target string
		header map[string]string
		status int
	}{
		{"/admin/v1/tasks", nil, http.StatusTeapot},
		{"/admin/v1/tasks", foreign, http.StatusForbidden},
		{"/admin/v2/tasks", nil, http.StatusNotFound},
	} {
		if got := adminAnswer(t, h, http.MethodPost, tt.target, "127.0.0.1:9090", tt.header); got != tt.status {
			t.Errorf("%s: got %d, want %d", tt.target, got, tt.status)
		}
	}
}
