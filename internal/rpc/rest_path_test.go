package rpc

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// pathServer has two agents, and can only parse paths.
func pathServer() *Server {
	s := &Server{generations: []*generation{{Codec: v03.Codec{}}, {Codec: v1.Codec{}}}}
	known := map[string]*served{"a": {}, "b": {}}
	s.directory.Store(&directory{agents: known, root: known["a"]})
	return s
}

// TestRESTPathHoldsAnyID: any id can be part of a path, and the server reads the same id from it.
func TestRESTPathHoldsAnyID(t *testing.T) {
	t.Parallel()
	s := pathServer()
	id := rapid.StringN(1, 20, 60).Filter(utf8.ValidString)
	odd := rapid.SampledFrom([]string{"x", ":cancel", "a:subscribe", "/", "//", "..", "%2F", "tasks", "v1",
		"message:send", "pushNotificationConfigs", "é\u2028", "\x00", "?a=b#c"})
	rapid.Check(t, func(t *rapid.T) {
		task, config := rapid.OneOf(id, odd).Draw(t, "task"), rapid.OneOf(id, odd).Draw(t, "config")
		for _, prefix := range []string{"", "/v1", "/agents/b", "/agents/b/v1", "/b"} {
			for _, tc := range []struct {
				suffix, method, config string
				want                   wire.Action
			}{
				{":cancel", http.MethodPost, "", wire.ActionCancel},
				{":subscribe", http.MethodGet, "", wire.ActionSubscribe},
				{"/pushNotificationConfigs", http.MethodPost, "", wire.ActionSetPush},
				{"/pushNotificationConfigs/" + escape(config), http.MethodDelete, config, wire.ActionDeletePush},
				{"", http.MethodGet, "", wire.ActionGet},
			} {
				path := prefix + "/tasks/" + escape(task) + tc.suffix
				p := s.restPath(path)
				if p == nil || p.taskID != task || p.configID != tc.config || p.actions[tc.method] != tc.want {
					t.Fatalf("%s: %+v", path, p)
				}
				old := strings.HasSuffix(prefix, "/v1")
				if old != (p.gen == s.generations[0]) || (p.agent == s.agent("b")) != strings.Contains(prefix, "b") {
					t.Fatalf("%s: %s of %p", path, p.gen.Version(), p.agent)
				}
			}
		}
	})
}

// escape escapes a segment as a careful client does: url.PathEscape does not escape colons.
func escape(id string) string { return strings.ReplaceAll(url.PathEscape(id), ":", "%3A") }

// FuzzRESTPath: any path can be parsed, or belongs to no binding.
func FuzzRESTPath(f *testing.F) {
	for _, path := range []string{
		"/", "", "//", "/tasks", "/v1/tasks/x:cancel", "/agents/a/v1/message:send", "/b/tasks/%2f:subscribe",
		"/tasks//pushNotificationConfigs/", "/%zz/tasks", "/tasks/%FF/pushNotificationConfigs/%00",
	} {
		f.Add(path)
	}
	s := pathServer()
	f.Fuzz(func(t *testing.T, path string) {
		p := s.restPath(path)
		if p == nil {
			return
		}
		if p.gen == nil || len(p.actions) == 0 || p.route == "" || p.actions.allow() == "" ||
			!utf8.ValidString(p.taskID+p.configID) {
			t.Fatalf("%+v", p)
		}
		if strings.Contains(p.route, "{id}") && p.taskID == "" {
			t.Fatalf("the route %s has no id", p.route)
		}
		if again := s.restPath(path + "/"); again == nil || again.route != p.route {
			t.Fatalf("with a trailing slash: got %+v", again)
		}
	})
}
