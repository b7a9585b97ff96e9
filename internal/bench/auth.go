package main

import (
	"context"
	"fmt"
	"time"
)

// auth measures the cost of authentication: blocking sends with an API key and without authentication, in turns. Row
// policies are in force in both.
func (b *bench) auth(ctx context.Context) error {
	var servers [2]*server
	var keys [2]string
	for i, mode := range [...]string{"required", "none"} {
		url, drop, err := b.database(ctx)
		if err != nil {
			return err
		}
		defer drop()
		if servers[i], err = b.serve(ctx, "bench-auth-"+mode, url, "A2AD_AUTH="+mode); err != nil {
			return err
		}
		defer servers[i].stop()
		if mode == "required" {
			if keys[i], err = b.key(ctx, url); err != nil {
				return err
			}
		}
	}
	span := b.span(4*time.Second, time.Second)
	var ratios []float64
	var last [2]float64
	for round := range b.number(9, 3) + 1 {
		for turn := range 2 {
			i := (round + turn) % 2 // the first one runs with colder caches
			var err error
			if last[i], err = b.sendCost(ctx, servers[i], keys[i], span); err != nil {
				return err
			}
		}
		if round > 0 { // the first round warms up
			ratios = append(ratios, last[0]/last[1])
		}
	}
	f := figure{Name: "blocking send: CPU per task, with an API key / A2AD_AUTH=none", Unit: "×",
		Target: atMost(1.15)}.series(ratios)
	f.Detail = fmt.Sprintf("in the last round %s and %s ms per task", number(last[0]), number(last[1]))
	b.report.add(f)
	return nil
}

// sendCost returns the CPU time of a server and PostgreSQL, in ms per task, while clients send.
func (b *bench) sendCost(ctx context.Context, s *server, key string, span time.Duration) (float64, error) {
	load := &echoLoad{addr: s.addr(), key: key, prefix: "a"}
	running, stop := context.WithCancelCause(ctx)
	failed := make(chan error, 1)
	before, err := b.usage(s)
	if err != nil {
		stop(err)
		return 0, err
	}
	go func() { failed <- load.closed(running, senders) }()
	err = pause(ctx, span)
	stop(errEnough)
	if sendErr := <-failed; err == nil {
		err = sendErr
	}
	if err != nil {
		return 0, err
	}
	after, err := b.usage(s)
	if err != nil {
		return 0, err
	}
	u := after.minus(before)
	return ms(u.server+u.postgres) / float64(load.done.Load()), nil
}
