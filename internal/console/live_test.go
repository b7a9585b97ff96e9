package console_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/tail"
	"github.com/a2ad/a2ad/internal/wake"
)

// follow opens a live page. Its events can be read until the test ends.
func (b *browser) follow(path string) *sse.Reader {
	b.t.Helper()
	res, err := noRedirects.Do(b.request(http.MethodGet, path, nil))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		b.t.Fatalf("GET %s answered %d", path, res.StatusCode)
	}
	return sse.NewReader(res.Body, sse.ReaderOptions{MaxLine: 1000, MaxEvent: 1000, Comments: true})
}

// A page that is left open does not keep its session: neither its connection nor what it reads by itself does.
func TestOpenPageEndsWithItsIdleSession(t *testing.T) {
	t.Parallel()
	always := make(chan struct{})
	close(always)
	for name, change := range map[string]func(*console.Config){
		"nothing changes": func(*console.Config) {},
		"changes without a pause": func(c *console.Config) {
			c.Changed = func() (<-chan struct{}, func()) { return always, func() {} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			b := r.serve(change, func(c *console.Config) { c.Ping = time.Millisecond })
			b.mustSignIn(r.key(everything...))
			r.Exec(`UPDATE a2a.browser_sessions SET used_at = used_at - interval '2 minutes'`)
			events := b.follow("/console/live")
			for pings := 0; pings < 2; {
				e, err := events.Next()
				if err != nil {
					t.Fatal(err)
				}
				if e.Comment && string(e.Data) == "ping" {
					pings++
				}
			}
			b.unattended = true
			b.page("/console/tasks")
			const used = `SELECT count(*)::text FROM a2a.browser_sessions WHERE used_at > now() - interval '1 minute'`
			if n := r.Column(used)[0]; n != "0" {
				t.Error("an open page counts as a use of the session")
			}
			b.unattended = false
			b.page("/console/tasks")
			if n := r.Column(used)[0]; n != "1" {
				t.Error("a page that a person opens counts as no use of the session")
			}
			r.Exec(`UPDATE a2a.browser_sessions SET used_at = used_at - interval '31 minutes'`)
			var err error
			for err == nil {
				_, err = events.Next()
			}
			if err != io.EOF { //nolint:errorlint // as is
				t.Errorf("the live page ends with %v, want its end", err)
			}
		})
	}
}

// A viewer of one tenant or owner must not learn when tasks of others change.
func TestLivePagesTellOnlyOfTasksThatTheViewerSees(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve()
	ended, end := context.WithCancel(t.Context())
	end()
	all := r.tail.Follow("")
	defer all.Close()
	for tenant, tc := range map[string]struct { // tenants differ, because a change may come twice
		scopes       []auth.Scope
		sees, hidden []db.Caller
	}{
		"staff": {
			[]auth.Scope{auth.ScopeTenantRead},
			[]db.Caller{{Tenant: "staff", Owner: "ann"}, {Tenant: "staff", Owner: "bob"}},
			[]db.Caller{{Tenant: "globex", Owner: "ann"}},
		},
		"owners": {
			[]auth.Scope{auth.ScopeTasksWrite}, []db.Caller{{Tenant: "owners", Owner: "ann"}},
			[]db.Caller{{Tenant: "owners", Owner: "bob"}, {Tenant: "globex", Owner: "ann"}},
		},
		"operators": {everything, []db.Caller{{Tenant: "globex", Owner: "bob"}}, nil},
	} {
		next, stop, err := r.console.FollowAll(auth.Principal{Tenant: tenant, Owner: "ann", Scopes: tc.scopes})
		if err != nil {
			t.Fatal(err)
		}
		change := func(of db.Caller) {
			in := storetest.Submission("hello")
			in.Caller = of
			id := r.Submit(in).Task
			for known := false; !known; { // whoever is told of the change has it then
				r.hub.Wake(wake.Task(id)) // again, because the tail may just have been started
				wait, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				list, err := all.Next(wait)
				cancel()
				if err != nil && wait.Err() == nil {
					t.Fatal(err)
				}
				known = slices.ContainsFunc(list, func(c tail.Change) bool { return c.Task.ID == id })
			}
		}
		for _, of := range tc.hidden {
			change(of)
			if err := next(ended); err == nil {
				t.Errorf("ann of %s is told of a task of %s/%s", tenant, of.Tenant, of.Owner)
			}
		}
		for _, of := range tc.sees {
			change(of)
			if err := next(t.Context()); err != nil {
				t.Errorf("ann of %s is not told of a task of %s/%s: %v", tenant, of.Tenant, of.Owner, err)
			}
		}
		stop()
	}
}
