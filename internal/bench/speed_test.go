package main

import "testing"

func TestTargetsOfASlowMachine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		unit   string
		target *target
		speed  float64
		value  float64
		want   string
	}{
		{"/s", atLeast(1000), 0.5, 500, "PASS"},
		{"/s", atLeast(1000), 0.5, 499, "MISS"},
		{"/s", atLeast(1000), 1, 999, "MISS"},
		{"ms", atMost(10), 0.5, 20, "PASS"},
		{"ms", atMost(10), 0.5, 21, "MISS"},
		{"×", atLeast(2), 0.5, 1.9, "MISS"},
		{"MiB", atMost(10), 0.5, 11, "MISS"},
	} {
		r := report{Machine: machine{Speed: tt.speed}}
		r.add(figure{Unit: tt.unit, Target: tt.target, Value: tt.value})
		if got := r.Figures[0].verdict(); got != tt.want {
			t.Errorf("%v %s with the target %v at speed %v: %s, want %s",
				tt.value, tt.unit, tt.target, tt.speed, got, tt.want)
		}
	}
}
