package backoff

import (
	"testing"
	"time"
)

// Work that becomes slow is spaced out; a single slow run changes nothing.
func TestShareUsesAtMostFivePercent(t *testing.T) {
	t.Parallel()
	var s Share
	for i, tc := range []struct{ took, wait time.Duration }{
		{time.Millisecond, time.Second},
		{30 * time.Second, time.Second}, // the disk hung
		{2 * time.Millisecond, time.Second},
		{time.Second, time.Second},
		{2 * time.Second, 20 * time.Second},
		{30 * time.Second, 40 * time.Second},
		{30 * time.Second, time.Minute},
		{time.Millisecond, time.Second},
	} {
		if got := s.Wait(tc.took, time.Second, time.Minute); got != tc.wait {
			t.Errorf("after run %d, of %s: %s to the next, want %s", i, tc.took, got, tc.wait)
		}
	}
}
