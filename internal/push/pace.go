package push

import (
	"sync"
	"time"
)

const (
	paceFirst = 8           // requests at once to a destination of which nothing is known, or a quarter of the setting
	paceFast  = time.Second // how soon a destination answers that gets more at once
	paceKnown = 4096        // destinations that are remembered
)

// pace says how many requests at once a destination gets: a few at first, and one more after each fast answer. After a
// slow or a failed request it gets a few again, so that a destination that is slow or hangs gets no more load, and
// occupies few slots.
type pace struct {
	first, most int

	mu   sync.Mutex
	more map[string]int // guarded by mu; by origin; beyond the first few
}

func newPace(most int) *pace {
	return &pace{first: min(most, max(paceFirst, most/4)), most: most, more: make(map[string]int)}
}

// room returns how many requests at once a destination gets.
func (p *pace) room(origin string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first + p.more[origin]
}

// answered notes the result of a request to a destination.
func (p *pace) answered(origin string, res *Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	more := p.more[origin]
	switch {
	case res.Class.BlamesDestination() || res.Took > paceFast:
		delete(p.more, origin)
	case res.Status == 0 || p.first+more >= p.most: // without an answer, the destination is not the cause
	default:
		if more == 0 && len(p.more) >= paceKnown {
			clear(p.more)
		}
		p.more[origin] = more + 1
	}
}
