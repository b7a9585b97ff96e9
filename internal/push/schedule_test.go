package push

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var schedule = Schedule{
	Waits: []time.Duration{
		0, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
		3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	},
	Throttle: time.Minute,
}

func TestNext(t *testing.T) {
	t.Parallel()
	const s, m, h = time.Second, time.Minute, time.Hour
	fail := Result{Class: ClassServerError}
	after := func(c Class, d time.Duration) Result { return Result{Class: c, RetryAfter: d} }
	for name, tt := range map[string]struct {
		n    int
		res  Result
		rnd  float64
		fate Fate
		wait time.Duration
	}{
		"first failure":                 {1, fail, 0.5, FateRetry, 5 * s},
		"early":                         {1, fail, 0, FateRetry, 4 * s},
		"late":                          {1, fail, 1, FateRetry, 6 * s},
		"last pause":                    {10, fail, 0.5, FateRetry, 24 * h},
		"used up":                       {11, fail, 0.5, FateDead, 0},
		"far beyond":                    {math.MaxInt, fail, 0.5, FateDead, 0},
		"not found is tried again":      {3, Result{Class: ClassClientError}, 0.5, FateRetry, 2 * m},
		"redirect is tried again":       {3, Result{Class: ClassRedirect}, 0.5, FateRetry, 2 * m},
		"internal fault is tried again": {3, Result{Class: ClassInternal}, 0.5, FateRetry, 2 * m},
		"gone":                          {1, Result{Class: ClassGone}, 0.5, FateDisabled, 0},
		"gone at the last attempt":      {11, Result{Class: ClassGone}, 0.5, FateDisabled, 0},
		"disable": {1, Result{Class: ClassServerError, Directive: DirectiveDisable}, 0.5,
			FateDisabled, 0},
		"abort": {1, Result{Class: ClassServerError, Directive: DirectiveAbort}, 0.5,
			FateSkip, 0},
		"abort at the last attempt": {11, Result{Class: ClassServerError, Directive: DirectiveAbort}, 0.5,
			FateSkip, 0},
		"blocked":                           {1, Result{Class: ClassBlocked}, 0.5, FateDead, 0},
		"bad URL":                           {1, Result{Class: ClassBadURL}, 0.5, FateDead, 0},
		"canceled":                          {11, Result{Class: ClassCanceled}, 0.5, FateRelease, 0},
		"timeout has a floor":               {1, Result{Class: ClassTimeout}, 0.5, FateRetry, m},
		"floor is spread upward":            {1, Result{Class: ClassThrottled}, 0, FateRetry, 72 * s},
		"floor is spread upward too":        {1, Result{Class: ClassThrottled}, 1, FateRetry, 72 * s},
		"floor does not shorten":            {4, Result{Class: ClassThrottled}, 0.5, FateRetry, 10 * m},
		"connect has no floor":              {1, Result{Class: ClassConnect}, 0.5, FateRetry, 5 * s},
		"Retry-After":                       {1, after(ClassServerError, 20*s), 0.5, FateRetry, 20 * s},
		"Retry-After is not cut short":      {1, after(ClassServerError, 20*s), 0, FateRetry, 24 * s},
		"Retry-After below the base":        {4, after(ClassServerError, s), 0.5, FateRetry, 10 * m},
		"Retry-After up to an hour":         {1, after(ClassServerError, 24*h), 0.5, FateRetry, h},
		"Retry-After up to twice the base":  {8, after(ClassServerError, 24*h), 0.5, FateRetry, 12 * h},
		"Retry-After never beyond the most": {1, after(ClassServerError, h), 1, FateRetry, h},
		"Retry-After below the floor":       {1, after(ClassThrottled, 7*s), 0.5, FateRetry, m},
		"Retry-After above the floor":       {1, after(ClassThrottled, 90*s), 0.5, FateRetry, 90 * s},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fate, wait := schedule.Next(tt.n, tt.res, func() float64 { return tt.rnd })
			if fate != tt.fate || wait != tt.wait {
				t.Errorf("got %q after %s, want %q after %s", fate, wait, tt.fate, tt.wait)
			}
		})
	}
}

var classes = []Class{
	ClassDelivered, ClassGone, ClassRedirect, ClassClientError, ClassThrottled, ClassServerError, ClassTimeout,
	ClassDNS, ClassConnect, ClassTLS, ClassBlocked, ClassBadURL,
	ClassCanceled, ClassInternal,
}

func TestNextKeepsItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		duration := rapid.Map(rapid.OneOf(rapid.Int64Range(0, 1<<50), rapid.Int64Range(0, math.MaxInt64)),
			func(n int64) time.Duration { return time.Duration(n) })
		s := Schedule{Waits: rapid.SliceOfN(duration, 0, 12).Draw(t, "waits"), Throttle: duration.Draw(t, "throttle")}
		r := Result{
			Class: rapid.SampledFrom(classes).Draw(t, "class"), RetryAfter: rapid.OneOf(rapid.Just(time.Duration(0)),
				duration).Draw(t, "after"),
			Directive: rapid.SampledFrom([]Directive{DirectiveNone, DirectiveAbort, DirectiveDisable}).Draw(t,
				"directive"),
		}
		n := rapid.IntRange(1, 15).Draw(t, "n")
		rnd := rapid.Float64Range(0, 1).Draw(t, "rnd")
		fate, wait := s.Next(n, r, func() float64 { return rnd })
		if fate != FateRetry {
			if wait != 0 {
				t.Fatalf("%q after %s", fate, wait)
			}
			if fate == FateDead && !r.Class.Permanent() && n < len(s.Waits) {
				t.Fatal("given up early")
			}
			return
		}
		if n >= len(s.Waits) {
			t.Fatal("more attempts than the schedule has")
		}
		base := s.Waits[n]
		low := base - base/5 - 1
		high := grow(base)
		if r.RetryAfter > 0 {
			low = min(max(r.RetryAfter, base), max(2*base, base, time.Hour))
			high = max(2*base, base, time.Hour)
		}
		if r.Class.Throttles() {
			low, high = max(low, s.Throttle), max(high, grow(s.Throttle))
		}
		if low < 1<<52 && wait < low || high < 1<<52 && wait > high ||
			wait < 0 { // a larger float64 cannot represent nanoseconds
			t.Fatalf("waits %s, not between %s and %s", wait, low, high)
		}
	})
}

// grow returns d and the most that jitter adds.
func grow(d time.Duration) time.Duration {
	if d > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return d + d/5 + 1
}

func TestPropertiesOfEveryClass(t *testing.T) {
	t.Parallel()
	down := map[Class]bool{ClassTimeout: true, ClassThrottled: true, ClassServerError: true, ClassDNS: true,
		ClassConnect: true, ClassTLS: true}
	for _, c := range classes {
		if got := c.BlamesDestination(); got != down[c] {
			t.Errorf("%s: BlamesDestination() = %t", c, got)
		}
		if c.Permanent() && c.BlamesDestination() || c.Throttles() && !c.BlamesDestination() {
			t.Errorf("%s contradicts itself", c)
		}
	}
}
