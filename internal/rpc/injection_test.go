package rpc_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/rpc"
)

// TestSQLInFieldsIsText sends SQL in every field that a client can set, over every binding.
func TestSQLInFieldsIsText(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	for binding, as := range m.tellers() {
		key := m.keys["owner"]
		x := m.make(t, as, "owner")
		before := m.view(t, as, x)
		for _, sql := range []string{
			`'; DROP TABLE a2a.tasks; --`, `' OR '1'='1`, `1); DELETE FROM a2a.tasks; --`,
			`x' UNION SELECT secret_sha256::text FROM a2a.api_keys --`,
			`$1`, `%s%n`, `$$; SELECT pg_sleep(9); $$`, `\'; SELECT 1; --`, `a2a.tasks`, `a2ad'; NOTIFY a2ad; --`,
		} {
			quoted := strings.Trim(string(rawjson.AppendString(nil, sql)), `"`)
			for _, op := range []operation{
				{name: "GetTask", task: sql}, {name: "CancelTask", task: sql}, {name: "SubscribeToTask", task: sql},
				{name: "SubscribeToTask", task: x.task, lastID: sql},
				{name: "ListTasks", context: quoted, size: "10"},
				{name: "ListTasks", context: x.context, size: "1", token: quoted},
				{name: "SendMessage", context: quoted, key: sql + binding,
					script: `{"op":"artifact","id":"` + quoted + `","text":"` + quoted +
						`"},{"op":"complete","text":"` + quoted + `"}`},
				{name: "SendMessage", refs: quoted, script: `{"op":"complete"}`},
				{name: "SendMessage", task: quoted, script: `{"op":"complete"}`},
				{name: "GetTaskPushNotificationConfig", task: x.task, config: quoted},
				{name: "DeleteTaskPushNotificationConfig", task: x.task, config: quoted},
				{name: "ListTaskPushNotificationConfigs", task: sql},
			} {
				op.apiKey = key
				got := as.tell(t, &op, true)
				if strings.Contains(got.raw, "INTERNAL") ||
					strings.Contains(strings.ToLower(got.raw), "syntax error") ||
					strings.Contains(got.raw, "SQLSTATE") {
					t.Errorf("%s: %s with %q: %s", binding, op.name, sql, got.raw)
				}
				if op.name == "SendMessage" && op.context != "" &&
					(got.failed || !strings.Contains(got.raw, quoted) &&
						!strings.Contains(got.raw, strings.ReplaceAll(quoted, "'", `\u0027`))) {
					t.Errorf("%s: the text changed: %s", binding, got.raw)
				}
				if op.name == "ListTasks" && op.token == "" && !got.failed && strings.Contains(got.raw, x.task) {
					t.Errorf("%s: the filter %q matches other tasks: %s", binding, sql, got.raw)
				}
			}
		}
		if after := m.view(t, as, x); after != before {
			t.Errorf("%s: the owner's view changed from\n%s\nto\n%s", binding, before, after)
		}
	}
}

// TestDebugSurfaceIsElsewhere: the API does not serve the paths of the admin listener.
func TestDebugSurfaceIsElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/vars", "/metrics", "/livez", "/readyz",
		"/admin", "/..%2fdebug/pprof/", "//debug/pprof/"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%s: %s %s, %v", path, resp.Status, body, err)
		}
	}
}

// TestCommandLineIsNotShown: not even to operators, because it may contain a password.
func TestCommandLineIsNotShown(t *testing.T) {
	t.Parallel()
	h := (&rpc.Admin{}).Handler()
	for _, path := range []string{"/debug/pprof/cmdline", "/debug/pprof/", "/debug/pprof/goroutine?debug=2"} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if len(os.Args) < 2 || rec.Code != http.StatusOK || strings.Contains(rec.Body.String(), os.Args[1]) {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
}
