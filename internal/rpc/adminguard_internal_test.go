package rpc

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestInstantProfilesDoNotWaitForTimedOnes: an operator can read the goroutines of a server while
// another one makes a timed profile.
func TestInstantProfilesDoNotWaitForTimedOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, held := newProfiles(), make(chan struct{})
		slow := func(http.ResponseWriter, *http.Request) { <-held }
		ask := func(h http.HandlerFunc, target string) (status int, took time.Duration) {
			w, begin := httptest.NewRecorder(), time.Now()
			h(w, httptest.NewRequest(http.MethodGet, target, http.NoBody))
			return w.Code, time.Since(begin)
		}
		check := func(what string, wantStatus int, wantTook time.Duration, status int, took time.Duration) {
			t.Helper()
			if status != wantStatus || took != wantTook {
				t.Errorf("%s: %d after %s, want %d after %s", what, status, took, wantStatus, wantTook)
			}
		}
		quick := p.bounded(true, 60, func(http.ResponseWriter, *http.Request) {})

		go ask(p.bounded(false, 60, slow), "/debug/pprof/profile")
		synctest.Wait()
		status, took := ask(p.bounded(false, 10, slow), "/debug/pprof/trace")
		check("a second one that takes its time", 429, 0, status, took)
		status, took = ask(quick, "/debug/pprof/heap?seconds=5")
		check("a difference", 429, 0, status, took)
		status, took = ask(quick, "/debug/pprof/goroutine?debug=1")
		check("goroutines", 200, 0, status, took)

		for range cap(p.instant) {
			go ask(p.bounded(true, 60, slow), "/debug/pprof/goroutine?debug=2")
		}
		synctest.Wait()
		status, took = ask(quick, "/debug/pprof/goroutine?debug=1")
		check("one too many", 429, patience, status, took)
		time.AfterFunc(time.Second, func() { close(held) })
		status, took = ask(quick, "/debug/pprof/goroutine?debug=1")
		check("one that waits for another", 200, time.Second, status, took)
	})
}
