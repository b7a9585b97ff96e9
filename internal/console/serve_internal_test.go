package console

import (
	"testing"
	"testing/synctest"
	"time"
)

// A request waits for the share of its owner and for a page, but not for longer than it would for one of them.
func TestRequestsWaitForAllSlotsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own, all := make(chan struct{}, 1), make(chan struct{}, 1)
		own <- struct{}{}
		all <- struct{}{}
		begun, left := time.Now(), slotWait
		go func() {
			time.Sleep(slotWait - 3*time.Second)
			<-own
		}()
		if _, err := enter(t.Context(), own, &left); err != nil {
			t.Fatal(err)
		}
		_, err := enter(t.Context(), all, &left)
		if waited := time.Since(begun); err != errBusy || waited != slotWait { //nolint:errorlint // as is
			t.Errorf("a request has waited for %s: %v", waited, err)
		}
	})
}
