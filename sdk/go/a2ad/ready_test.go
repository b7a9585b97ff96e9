package a2ad_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

func idle(context.Context, *a2ad.Task) (any, error) { return nil, nil }

// A server that stops answers each claim at once. The worker does not ask again and again.
func TestClaimsThatAreNotLetWaitPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.answer = func(r request) (int, string) {
			if r.path == "claim" && r.n <= 5 {
				return 200, `{"runs": []}`
			}
			return 0, ""
		}
		w, stop := s.work(a2ad.Options{}, idle)
		synctest.Wait()
		if !w.Status().Ready {
			t.Error("a worker whose claims are answered is not ready")
		}
		time.Sleep(45 * time.Second)
		stop()
		claims := s.sent("claim")
		for i := range 5 {
			limit := 400 * time.Millisecond << i
			if pause := claims[i+1].at - claims[i].at; pause < limit/2 || pause > limit {
				t.Errorf("the pause after answer %d is %s, want %s to %s", i+1, pause, limit/2, limit)
			}
		}
		if at := claims[6].at - claims[5].at; at != 30*time.Second {
			t.Errorf("after a claim that waited, the next one comes after %s, want 30 s", at)
		}
	})
}

// A worker is ready if the server lets its claim wait, not if it cannot connect.
func TestReadyNeedsAServer(t *testing.T) {
	t.Parallel()
	for unreachable, want := range map[bool]bool{true: false, false: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			s.unreachable = unreachable
			w, stop := s.work(a2ad.Options{}, idle)
			if synctest.Wait(); w.Status().Ready {
				t.Error("ready before the server can have refused the claim")
			}
			time.Sleep(5 * time.Second)
			if got := w.Status().Ready; got != want {
				t.Errorf("with an unreachable server (%t), ready is %t", unreachable, got)
			}
			stop()
		})
	}
}

// The requests have timeouts of their own.
func TestTimeoutOfTheClientDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		mine := &http.Client{Timeout: 10 * time.Second}
		w, stop := s.work(a2ad.Options{Client: mine}, idle)
		time.Sleep(15 * time.Second)
		if st := w.Status(); !st.Ready || len(s.sent("claim")) != 1 {
			t.Errorf("%+v after %d claims", st, len(s.sent("claim")))
		}
		stop()
		if mine.Timeout != 10*time.Second {
			t.Error("the worker has changed the client of its user")
		}
	})
}
