package push

import (
	"math"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
)

// Fate says what becomes of a webhook after an attempt that failed.
type Fate string

// Fates. Dead and disabled webhooks keep their place in the log: an operator may replay them.
const (
	FateRetry    Fate = ""         // another attempt follows
	FateDead     Fate = "dead"     // the schedule is used up, or no attempt can succeed
	FateDisabled Fate = "disabled" // the receiver wants nothing more
	FateSkip     Fate = "skip"     // the receiver does not want this notification: settle it and go on
	FateRelease  Fate = "release"  // nothing was learned: give it back untried
)

// Schedule says when failed attempts are repeated.
type Schedule struct {
	// Waits are the pauses before attempts 1, 2 and so on: n of them are n attempts.
	Waits []time.Duration
	// Throttle is the least pause after a timeout and after 429, 502, 503 and 504.
	Throttle time.Duration
}

// maxAfter is up to where a receiver's Retry-After is heeded at least.
const maxAfter = time.Hour

// Next decides what follows the failed result of attempt number n, counted from 1, and, for
// FateRetry, after what pause. Pauses of the schedule vary by 20 % either way, so that
// webhooks that failed together do not come back together; what a receiver asks for is
// exceeded by up to 20 %, and not cut short. rnd yields numbers in [0, 1); nil means
// math/rand/v2.
func (s Schedule) Next(n int, r Result, rnd func() float64) (Fate, time.Duration) {
	switch {
	case r.Class == ClassCanceled:
		return FateRelease, 0
	case r.Class.Permanent():
		return FateDead, 0
	case r.Class == ClassGone || r.Directive == DirectiveDisable:
		return FateDisabled, 0
	case r.Directive == DirectiveAbort:
		return FateSkip, 0
	case n >= len(s.Waits):
		return FateDead, 0
	}
	base := s.Waits[max(n, 0)]
	wait := backoff.Jitter(base, rnd)
	if r.RetryAfter > 0 {
		longest := max(2*base, base, maxAfter) // 2*base may overflow
		wait = min(beyond(min(max(r.RetryAfter, base), longest), rnd), longest)
	}
	if r.Class.Throttles() && wait < s.Throttle {
		wait = beyond(s.Throttle, rnd)
	}
	return FateRetry, wait
}

// beyond returns d, or up to 20 % more.
func beyond(d time.Duration, rnd func() float64) time.Duration {
	varied := backoff.Jitter(d, rnd)
	if varied >= d {
		return varied
	}
	if sum := d + (d - varied); sum > d {
		return sum
	}
	return math.MaxInt64
}

// Permanent reports whether another attempt would end the same way.
func (c Class) Permanent() bool { return c == ClassBlocked || c == ClassBadURL }

// Throttles reports whether the receiver is to be left alone for a while.
func (c Class) Throttles() bool { return c == ClassTimeout || c == ClassThrottled }

// BlamesDestination reports whether the failure says that the destination as a whole is
// down, and counts toward its breaker. A receiver that answers 404 or redirects is up: one
// wrong URL must not hold up the webhooks beside it.
func (c Class) BlamesDestination() bool {
	switch c {
	case ClassTimeout, ClassThrottled, ClassServerError, ClassDNS, ClassConnect, ClassTLS:
		return true
	}
	return false
}
