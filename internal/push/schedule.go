package push

import (
	"math"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
)

// Fate says what happens to a webhook after an attempt.
type Fate string

// Fates. Dead and disabled webhooks keep their position in the log, so an operator may replay them.
const (
	FateRetry     Fate = ""          // another attempt follows
	FateDelivered Fate = "delivered" // the receiver has accepted the notification
	FateDead      Fate = "dead"      // the schedule is exhausted, or no attempt can succeed
	FateDisabled  Fate = "disabled"  // the receiver wants nothing more
	FateSkip      Fate = "skip"      // the receiver does not want this notification: continue after it
	FateRelease   Fate = "release"   // the attempt says nothing about the receiver: release the webhook untried
)

// Schedule says when failed attempts are repeated.
type Schedule struct {
	// Waits are the pauses before attempts 1, 2 and so on: n pauses mean n attempts.
	Waits []time.Duration
	// Throttle is the shortest pause after a timeout and after 429, 502, 503 and 504.
	Throttle time.Duration
}

// minAfterLimit is the limit of a receiver's Retry-After while the schedule's own pauses are short.
const minAfterLimit = time.Hour

// Next returns what follows the failed attempt number n, counted from 1, and the pause before a FateRetry. Pauses of
// the schedule vary by 20 % either way, so that webhooks that failed together do not come back together. A pause that
// a receiver asks for is up to 20 % longer, and never shorter. rnd yields numbers in [0, 1); nil means math/rand/v2.
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
		longest := max(2*base, base, minAfterLimit) // 2*base may overflow
		wait = min(extend(min(max(r.RetryAfter, base), longest), rnd), longest)
	}
	if r.Class.Throttles() && wait < s.Throttle {
		wait = extend(s.Throttle, rnd)
	}
	return FateRetry, wait
}

// extend returns d, or up to 20 % more.
func extend(d time.Duration, rnd func() float64) time.Duration {
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
func (c Class) Permanent() bool { return c == ClassBlocked || c == ClassBadURL || c == classSecret }

// Throttles reports whether the receiver needs a longer pause.
func (c Class) Throttles() bool { return c == ClassTimeout || c == ClassThrottled }

// BlamesDestination reports whether the failure says that the destination as a whole is down, and counts toward its
// circuit breaker. A receiver that answers 404 or redirects is up: one wrong URL must not delay the other webhooks of
// the destination.
func (c Class) BlamesDestination() bool {
	switch c {
	case ClassTimeout, ClassThrottled, ClassServerError, ClassDNS, ClassConnect, ClassTLS:
		return true
	}
	return false
}
