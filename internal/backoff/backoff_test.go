package backoff_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/backoff"
)

func fixed(f float64) func() float64 { return func() float64 { return f } }

func TestCeilingDoublesUntilMax(t *testing.T) {
	t.Parallel()
	p := backoff.Policy{Base: 100 * time.Millisecond, Max: 2 * time.Second}
	tests := []struct {
		policy  backoff.Policy
		attempt int
		want    time.Duration
	}{
		{p, 0, 100 * time.Millisecond},
		{p, 1, 200 * time.Millisecond},
		{p, 4, 1600 * time.Millisecond},
		{p, 5, 2 * time.Second},
		{p, math.MaxInt, 2 * time.Second},
		{p, -3, 100 * time.Millisecond},
		{backoff.Policy{Base: time.Minute, Max: time.Second}, 0, time.Second},
		{backoff.Policy{Base: 1, Max: math.MaxInt64}, math.MaxInt, math.MaxInt64},
		{backoff.Policy{}, 0, backoff.DefaultBase},
		{backoff.Policy{}, 1000, backoff.DefaultMax},
		{backoff.Policy{Base: -1, Max: -1}, 0, backoff.DefaultBase},
	}
	for _, tt := range tests {
		if got := tt.policy.Ceiling(tt.attempt); got != tt.want {
			t.Errorf("%+v.Ceiling(%d) = %v, want %v", tt.policy, tt.attempt, got, tt.want)
		}
	}
}

func TestDelaySpansZeroToCeiling(t *testing.T) {
	t.Parallel()
	p := backoff.Policy{Base: time.Second, Max: time.Minute}
	tests := []struct {
		rnd  float64
		want time.Duration
	}{
		{0, 0}, {0.5, 2 * time.Second}, {1, 4 * time.Second},
		{-7, 0}, {7, 4 * time.Second}, {math.NaN(), 0}, {math.Inf(1), 4 * time.Second},
	}
	for _, tt := range tests {
		if got := p.Delay(2, fixed(tt.rnd)); got != tt.want {
			t.Errorf("Delay(2) with draw %v = %v, want %v", tt.rnd, got, tt.want)
		}
	}
}

func TestJitterIsTwentyPercentEitherWay(t *testing.T) {
	t.Parallel()
	tests := []struct {
		d    time.Duration
		rnd  float64
		want time.Duration
	}{
		{10 * time.Second, 0, 8 * time.Second},
		{10 * time.Second, 0.5, 10 * time.Second},
		{10 * time.Second, 1, 12 * time.Second},
		{0, 0.9, 0},
		{-time.Second, 0.9, -time.Second},
		{math.MaxInt64, 1, math.MaxInt64},
	}
	for _, tt := range tests {
		if got := backoff.Jitter(tt.d, fixed(tt.rnd)); got != tt.want {
			t.Errorf("Jitter(%v) with draw %v = %v, want %v", tt.d, tt.rnd, got, tt.want)
		}
	}
}

func TestBoundsHoldForAnyPolicy(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := backoff.Policy{
			Base: time.Duration(rapid.Int64().Draw(t, "base")),
			Max:  time.Duration(rapid.Int64().Draw(t, "max")),
		}
		attempt := rapid.IntRange(-2, 200).Draw(t, "attempt")
		rnd := fixed(rapid.Float64().Draw(t, "rnd"))

		ceiling := p.Ceiling(attempt)
		if ceiling <= 0 || p.Max > 0 && ceiling > p.Max {
			t.Fatalf("ceiling %v outside (0, %v]", ceiling, p.Max)
		}
		if next := p.Ceiling(attempt + 1); next < ceiling {
			t.Fatalf("ceiling shrank from %v to %v", ceiling, next)
		}
		if d := p.Delay(attempt, rnd); d < 0 || d > ceiling {
			t.Fatalf("delay %v outside [0, %v]", d, ceiling)
		}
		// Not near the top of the range, where a float64 cannot represent nanoseconds.
		d := time.Duration(rapid.Int64Range(1, 1<<50).Draw(t, "d"))
		if j := backoff.Jitter(d, rnd); j < d-d/5-1 || j > d+d/5+1 {
			t.Fatalf("jitter of %v is %v, which differs by more than 20 %%", d, j)
		}
	})
}

func TestNilSourceIsRandom(t *testing.T) {
	t.Parallel()
	p := backoff.Policy{Base: time.Hour, Max: time.Hour}
	first := p.Delay(0, nil)
	for range 100 { // the chance that 100 draws of 52 bits are equal is nil
		if d := p.Delay(0, nil); d < 0 || d > time.Hour {
			t.Fatalf("delay %v out of range", d)
		} else if d != first {
			return
		}
	}
	t.Fatal("100 equal delays in a row")
}
