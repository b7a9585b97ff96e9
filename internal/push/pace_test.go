package push

import (
	"strconv"
	"testing"
	"time"
)

func TestPaceFollowsTheAnswersOfADestination(t *testing.T) {
	t.Parallel()
	p := newPace(10)
	expect := func(what string, want int) {
		t.Helper()
		if got := p.room("a"); got != want {
			t.Errorf("%s: room for %d, want %d", what, got, want)
		}
	}
	fast := Result{Class: ClassDelivered, Status: 200, Took: time.Millisecond}
	expect("at first", 8)
	p.answered("a", &fast)
	expect("after a fast answer", 9)
	p.answered("a", &Result{Class: ClassCanceled})
	expect("after a request without an answer", 9)
	for range 3 {
		p.answered("a", &fast)
	}
	expect("after many", 10)
	p.answered("a", &Result{Class: ClassDelivered, Status: 200, Took: paceFast + 1})
	expect("after a slow answer", 8)
	p.answered("a", &Result{Class: ClassClientError, Status: 404, Took: time.Millisecond})
	expect("after a refusal of one webhook", 9)
	for _, failed := range []Class{ClassTimeout, ClassConnect, ClassThrottled, ClassServerError} {
		p.answered("a", &fast)
		p.answered("a", &Result{Class: failed, Took: time.Millisecond})
		expect("after "+string(failed), 8)
	}
	for most, want := range map[int]int{3: 3, 8: 8, 32: 8, 64: 16, 256: 64} {
		p := newPace(most)
		if got := p.room("a"); got != want {
			t.Errorf("of %d, a destination gets %d at first, want %d", most, got, want)
		}
		for range most {
			p.answered("a", &fast)
		}
		if got := p.room("a"); got != most {
			t.Errorf("of %d, a fast destination gets %d", most, got)
		}
	}
}

func TestPaceRemembersABoundedNumberOfDestinations(t *testing.T) {
	t.Parallel()
	p := newPace(32)
	for i := range 3 * paceKnown {
		p.answered(strconv.Itoa(i), &Result{Class: ClassDelivered, Status: 200})
	}
	if len(p.more) > paceKnown {
		t.Errorf("%d destinations are remembered, want at most %d", len(p.more), paceKnown)
	}
}
