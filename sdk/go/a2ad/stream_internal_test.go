package a2ad

import (
	"testing"
	"time"
)

func TestAllRunsSendAtTheSameTicks(t *testing.T) {
	began := time.Now()
	for after := time.Duration(0); after < time.Second; after += 100 * time.Microsecond {
		at := began.Add(after)
		tick := nextTick(began, at)
		if wait := tick.Sub(at); wait <= flushEvery/2-time.Millisecond || wait > 3*flushEvery/2 {
			t.Errorf("%s after the start: the next tick is in %s", after, wait)
		}
		if tick.Sub(began)%flushEvery != 0 {
			t.Errorf("%s after the start: a tick of its own at %s", after, tick.Sub(began))
		}
	}
	if got := nextTick(began, began.Add(flushEvery)).Sub(began); got != 2*flushEvery {
		t.Errorf("a run that sends at a tick sends at %s again, want the next tick", got)
	}
	if got := nextTick(began, time.Time{}); got.After(began) { // it has sent nothing
		t.Errorf("the first text waits until %s", got)
	}
}
