package main

import (
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"
)

func TestWilcoxonFindsADifference(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	noise := func(shift float64) []float64 {
		d := make([]float64, 2000)
		for i := range d {
			d[i] = r.NormFloat64()*200 + shift
			if r.IntN(50) == 0 {
				d[i] += r.NormFloat64() * 20000 // outliers, as on a busy machine
			}
		}
		return d
	}
	if z := wilcoxon(noise(0)); z > 3 || z < -3 {
		t.Errorf("noise without a difference is a signal of %.1f", z)
	}
	if z := wilcoxon(noise(30)); z < 4 {
		t.Errorf("a seventh of the noise is a signal of %.1f", z)
	}
	if z := wilcoxon(noise(-30)); z > -4 {
		t.Errorf("the opposite sign gives a signal of %.1f", z)
	}
	if wilcoxon(nil) != 0 || wilcoxon([]float64{0, 0}) != 0 {
		t.Error("zero differences are a signal")
	}
}

// A difference of the reported detection limit must be detected.
func TestDetectionLimitIsDetected(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	d := make([]float64, 4000)
	for i := range d {
		d[i] = r.NormFloat64()*200e-6 + 50e-6
	}
	least := shown(d)
	if least < 5e-6 || least > 20e-6 {
		t.Errorf("the limit for 4000 pairs with noise of 200 µs is %.1f µs", least*1e6)
	}
	m := median(d)
	planted := func(shift float64) []float64 {
		moved := make([]float64, len(d))
		for i := range d {
			moved[i] = d[i] - m + shift
		}
		return moved
	}
	if z := wilcoxon(planted(least * 1.01)); z < signalFrom {
		t.Errorf("a difference of the limit gives %.2f", z)
	}
	if z := wilcoxon(planted(least * 0.99)); z > signalFrom {
		t.Errorf("a smaller difference gives %.2f", z)
	}
}

func TestUnknownIDIsNextToAKnownOne(t *testing.T) {
	t.Parallel()
	const id = "019a0000-0500-7abc-8000-000000000000"
	a, b := unknownBeside(id), unknownBeside(id)
	if a == b || a == id || a[:18] != id[:18] {
		t.Errorf("%s, %s beside %s", a, b, id)
	}
	if u, err := uuid.Parse(a); err != nil || u.Variant() != uuid.RFC4122 {
		t.Errorf("%s: %v", a, err)
	}
}
