// Package backoff computes how long to wait before the next try.
//
// Its functions are pure: the caller owns the clock, the attempt count and, in tests, the random numbers. It never
// sleeps.
package backoff

import (
	"math"
	"math/rand/v2"
	"time"
)

// Defaults of a Policy.
const (
	DefaultBase = 100 * time.Millisecond
	DefaultMax  = 30 * time.Second
)

// Policy is exponential backoff with full jitter: the wait before retry n is drawn evenly from zero to Base·2ⁿ, but
// never more than Max. The jitter is full because clients that failed together, for instance when a database
// restarts, must not come back together.
//
// The zero value works: it uses DefaultBase and DefaultMax. A Policy is safe for concurrent use.
type Policy struct {
	Base time.Duration // upper bound of the first wait; 0 means DefaultBase
	Max  time.Duration // upper bound of every wait; 0 means DefaultMax
}

// Ceiling returns the longest wait that Delay may return for attempt. Attempts count
// from 0; a negative one counts as 0. It grows with attempt until Max.
func (p Policy) Ceiling(attempt int) time.Duration {
	base, limit := p.Base, p.Max
	if base <= 0 {
		base = DefaultBase
	}
	if limit <= 0 {
		limit = DefaultMax
	}
	for ; attempt > 0 && base < limit; attempt-- {
		if base > limit/2 { // doubling would pass limit, or overflow
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}

// Delay returns the wait before retry attempt, counted from 0: at least zero and at
// most Ceiling(attempt). rnd yields numbers in [0, 1); nil means math/rand/v2.
func (p Policy) Delay(attempt int, rnd func() float64) time.Duration {
	ceiling := p.Ceiling(attempt)
	return min(scale(ceiling, draw(rnd)), ceiling) // beyond 2⁵³ a float64 may round up
}

// jitterPart is the share by which Jitter stretches or shortens: ±20 %.
const jitterPart = 0.2

// Jitter returns d changed by up to 20 % either way, evenly drawn. It is for fixed schedules and poll intervals,
// which would otherwise synchronize across replicas. A d of zero or less is returned unchanged. rnd yields numbers in
// [0, 1); nil means math/rand/v2.
func Jitter(d time.Duration, rnd func() float64) time.Duration {
	if d <= 0 {
		return d
	}
	return scale(d, 1-jitterPart+2*jitterPart*draw(rnd))
}

// draw limits a number of a bad source, which would otherwise become a negative wait.
func draw(rnd func() float64) float64 {
	if rnd == nil {
		return rand.Float64()
	}
	f := rnd()
	if math.IsNaN(f) {
		return 0
	}
	return min(max(f, 0), 1)
}

// scale multiplies without overflow: as a float64, MaxInt64 is 2⁶³, the first number that does not fit.
func scale(d time.Duration, f float64) time.Duration {
	product := float64(d) * f
	if product >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(product)
}
