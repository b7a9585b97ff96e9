package main

import (
	"math/rand/v2"
	"testing"
)

func TestSignalIsFoundWhereThereIsOne(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	noise := func(shift float64) []float64 {
		d := make([]float64, 2000)
		for i := range d {
			d[i] = r.NormFloat64()*200 + shift
			if r.IntN(50) == 0 {
				d[i] += r.NormFloat64() * 20000 // the machine was busy
			}
		}
		return d
	}
	if z := wilcoxon(noise(0)); z > 3 || z < -3 {
		t.Errorf("nothing is a signal of %.1f", z)
	}
	if z := wilcoxon(noise(30)); z < 4 {
		t.Errorf("a seventh of the noise is a signal of %.1f", z)
	}
	if z := wilcoxon(noise(-30)); z > -4 {
		t.Errorf("the other way round it is one of %.1f", z)
	}
	if wilcoxon(nil) != 0 || wilcoxon([]float64{0, 0}) != 0 {
		t.Error("no differences are a signal")
	}
}
