package store

import (
	"testing"
	"time"
)

// A snapshot that is held for hours makes each scan from the start longer. They leave the time to
// claims; a single slow one changes nothing.
func TestScansFromTheStartTakeATwentiethOfTheTime(t *testing.T) {
	t.Parallel()
	var p position
	now := time.Now()
	for i, tc := range []struct{ took, next time.Duration }{
		{time.Millisecond, time.Second},
		{30 * time.Second, time.Second}, // the disk hung
		{2 * time.Millisecond, time.Second},
		{time.Second, time.Second},
		{2 * time.Second, 20 * time.Second},
		{30 * time.Second, 40 * time.Second},
		{30 * time.Second, 10 * time.Minute},
		{time.Millisecond, time.Second},
	} {
		p.rescanned(now, tc.took)
		if got := p.rescans.Sub(now); got != tc.next {
			t.Errorf("behind scan %d, of %s: %s to the next, want %s", i, tc.took, got, tc.next)
		}
	}
}
