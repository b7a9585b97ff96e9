package store

import "testing"

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
