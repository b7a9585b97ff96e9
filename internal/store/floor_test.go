package store

import (
	"testing"
	"time"
)

// A snapshot that is held for hours makes each look at a queue longer. They leave the time to
// claims; a single slow one changes nothing.
func TestLooksTakeATwentiethOfTheTime(t *testing.T) {
	t.Parallel()
	var p pace
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
		p.set(now, tc.took, time.Second)
		if got := p.next.Sub(now); got != tc.next {
			t.Errorf("behind look %d, of %s: %s to the next, want %s", i, tc.took, got, tc.next)
		}
	}
}

// While one submission looks at the lanes others go by what is known, however long it takes.
func TestOneSubmissionLooksAtTheLanes(t *testing.T) {
	t.Parallel()
	l := laner{owners: make(map[laneKey]*laneOwner), heads: make(map[string]*laneHeads)}
	key := laneKey{"a", "t", "ann"}
	choose := func() (lanes []int16, declined int) {
		for range 3 * laneRoom[0] {
			lane, ok := l.choose(key, false)
			if !ok {
				declined++
				continue
			}
			lanes = append(lanes, lane)
		}
		return lanes, declined
	}
	if got, declined := choose(); declined != 1 {
		t.Errorf("into a full lane %d looked, want 1; the others went to %v", declined, got)
	}
	if _, declined := choose(); declined != 0 {
		t.Errorf("while one looks %d others do", declined)
	}
}
