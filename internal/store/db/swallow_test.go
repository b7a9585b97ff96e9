package db_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// A call is refused after ConnectTimeout at the latest, also right after the database went away, when nobody knows it yet and new
// connections are swallowed, and however many tries a new connection takes.
func TestCallsAreRefusedInTimeWhileConnectionsAreSwallowed(t *testing.T) {
	t.Parallel()
	const limit = 4 * time.Second
	f := storetest.Open(t)
	p, url := storetest.NewProxy(t, f.URL)
	url = strings.Replace(url, "sslmode=disable", "sslmode=prefer", 1) // a try with TLS, and then one without
	s := f.Replica("r1", func(c *store.Config) { c.URL, c.ConnectTimeout, c.AcquireTimeout = url, limit, 3*limit })
	watch(t, s)
	if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); err != nil {
		t.Fatal(err)
	}
	awaits(t, "ready", func() bool { return s.DB.Ready(t.Context()) == nil })
	p.FreezeAll()
	p.BreakAll(0)
	var wg sync.WaitGroup
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		for name, call := range map[string]func() error{
			"a send": func() error { _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); return err },
			"a read": func() error { _, err := s.Tasks.Head(t.Context(), storetest.Ann, db.NewTaskID()); return err },
		} {
			wg.Go(func() {
				begin := time.Now()
				err := call()
				if took := time.Since(begin); a2a.CodeOf(err) != a2a.CodeUnavailable || took > limit+limit/2 {
					t.Errorf("%s is refused after %v, want at most %v: %v", name, took.Round(time.Millisecond), limit, err)
				}
			})
		}
		<-tick.C
	}
	wg.Wait()
	p.Thaw()
	p.BreakAll(0)
	t.Logf("back after %v", awaits(t, "back", func() bool { return s.DB.Ready(t.Context()) == nil }))
	if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); err != nil {
		t.Errorf("Submit = %v once the database is back", err)
	}
}
