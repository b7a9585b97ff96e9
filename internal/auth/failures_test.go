package auth

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The server stops while the failures of the last minute are being written.
func TestFailuresAreRecordedWhileTheServerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		recorded := 0
		f := &Failures{Record: func(ctx context.Context, _ Failure) {
			stop()
			if ctx.Err() == nil {
				recorded++
			}
		}}
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		f.Note("192.0.2.1:1", refuse("wrong secret", "k1"))
		f.Note("192.0.2.2:1", refuse("wrong secret", "k1"))
		time.Sleep(failureEvery)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if recorded != 2 {
			t.Errorf("recorded %d failures, want 2", recorded)
		}
	})
}
