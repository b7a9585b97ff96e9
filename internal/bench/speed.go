package main

import (
	"context"
	"fmt"
	"time"
)

// referencePlain is the CPU time of a plain transaction on the machine for which the targets were set: client and
// PostgreSQL, in microseconds, with 32 callers.
const referencePlain = 421

// measureSpeed measures how fast the machine is, with work in which a2ad has no part: the transactions with which
// submits are compared. The speed is that of the reference machine at most, so that targets do not become stricter.
func (b *bench) measureSpeed(ctx context.Context) error {
	const callers = 32
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	pool, err := plainPool(ctx, url, callers)
	if err != nil {
		return err
	}
	defer pool.Close()
	plain := func(ctx context.Context, n int64) error { return plainSubmit(ctx, pool, n) }
	var costs []float64
	for range b.number(6, 4) {
		_, us, err := b.rate(ctx, callers, time.Second, plain)
		if err != nil {
			return fmt.Errorf("measure the speed of the machine: %w", err)
		}
		costs = append(costs, us)
	}
	m := &b.report.Machine
	m.Plain = median(costs[1:]) // the first round warms up
	m.Speed = min(1, referencePlain/m.Plain)
	return nil
}

// scales are the units whose figures depend on the speed of the machine. Ratios and sizes do not.
var scales = map[string]bool{"/s": true, "ms": true, "s": true, "µs": true, "% CPU": true, "streams": true}

// on returns the target for a machine of this speed.
func (t *target) on(speed float64, unit string) *target {
	if t == nil || speed == 0 || speed == 1 || !scales[unit] {
		return t
	}
	scaled := *t
	scaled.AtLeast *= speed
	scaled.AtMost /= speed
	return &scaled
}
