package console_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/sse"
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
