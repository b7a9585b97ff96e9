package notify_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/notify"
)

// TestWaitersWakeAfterAnotherProcessDied: a process that is known to be dead wakes them once, and one that died before
// they began does not.
func TestWaitersWakeAfterAnotherProcessDied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub, woken := &notify.Hub{}, 0
		type look struct {
			dead  []string
			fails error
			woken int
		}
		var found atomic.Pointer[look]
		found.Store(&look{dead: []string{"older"}})
		l := &notify.Losses{
			Hub: hub, Every: time.Minute, Log: slog.New(slog.DiscardHandler),
			Dead: func(context.Context) ([]string, error) { return found.Load().dead, found.Load().fails },
		}
		defer hub.WatchClass("task", func(string) { woken++ })()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }() //nolint:errcheck // it only returns nil
		synctest.Wait()
		for _, look := range []look{
			{[]string{"older"}, nil, 0},
			{[]string{"older", "r1 1"}, nil, 1},
			{[]string{"older", "r1 1"}, nil, 1},
			{nil, errors.New("the database is away"), 1},
			{[]string{"r1 1"}, nil, 1},
			{nil, nil, 1},
			{[]string{"r1 2"}, nil, 2},
		} {
			found.Store(&look)
			time.Sleep(l.Every)
			synctest.Wait()
			if woken != look.woken {
				t.Errorf("with %q dead the waiters were woken %d times, want %d", look.dead, woken, look.woken)
			}
		}
		cancel()
		<-done
	})
}
