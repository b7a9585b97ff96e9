package main

import (
	"context"
	"time"
)

// ready measures how long a server takes from its start to readiness, on a database that has its schema.
func (b *bench) ready(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	if _, err := b.key(ctx, url); err != nil {
		return err
	}
	var took []float64
	for round := range 1 + 9 {
		s, err := b.newServer(ctx, "bench-ready", url)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := s.run(ctx, time.Millisecond); err != nil {
			return err
		}
		if round > 0 { // the first start reads the binary from the disk
			took = append(took, exact(time.Since(start)))
		}
		s.stop()
	}
	f := figure{Name: "a2ad serve: from exec to ready", Unit: "ms", Target: atMost(150)}.series(took)
	f.Detail = "until /readyz answers 200, which is asked every ms; the schema is there; 9 starts"
	b.report.add(f)
	return nil
}
