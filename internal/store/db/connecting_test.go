package db_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// A call fails after ConnectTimeout at the latest. That also holds when attempts to connect hang, before the replica
// knows that the database is unreachable, and however many attempts a new connection takes.
func TestCallsFailInTimeWhileConnectionAttemptsHang(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Crash)
	const limit = 4 * time.Second
	const callers = 15 // that begin together. If each waited for the attempts of the others, the last would be late
	f := storetest.Open(t)
	p, url := storetest.NewProxy(t, f.URL)
	// A new connection may attempt each host, with TLS and then without it.
	url = strings.Replace(url, "sslmode=disable", "sslmode=prefer", 1)
	before, rest, _ := strings.Cut(url, "@")
	host, rest, _ := strings.Cut(rest, "/")
	url = before + "@" + strings.Join(slices.Repeat([]string{host}, 30), ",") + "/" + rest
	s := f.Replica("r1", func(c *store.Config) { c.URL, c.ConnectTimeout, c.AcquireTimeout = url, limit, 60*limit })
	watch(t, s)
	if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "ready", func() bool { return s.DB.Ready(t.Context()) == nil })
	p.FreezeAll()
	p.BreakAll(0)
	var wg sync.WaitGroup
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for i := range 20 * callers {
		for name, call := range map[string]func() error{
			"a send": func() error { _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); return err },
			"a read": func() error { _, err := s.Tasks.Head(t.Context(), storetest.Ann, db.NewTaskID()); return err },
		} {
			wg.Go(func() {
				begin := time.Now()
				err := call()
				if took := time.Since(begin); a2a.CodeOf(err) != a2a.CodeUnavailable || took > 15*limit {
					t.Errorf("%s failed after %v, want about %v: %v",
						name, took.Round(time.Millisecond), limit, err)
				}
			})
		}
		if i%callers == 0 { // calls begin before and after the replica knows that the database is unreachable
			<-tick.C
		}
	}
	wg.Wait()
	p.Thaw()
	p.BreakAll(0)
	waitUntil(t, "ready again", func() bool { return s.DB.Ready(t.Context()) == nil })
	if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); err != nil {
		t.Errorf("Submit = %v after the database can be reached again", err)
	}
}
