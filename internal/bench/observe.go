package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// observe measures the cost of metrics and the log. The same load goes in turns to a server with default settings,
// which is scraped, and to one without metrics that logs only errors.
func (b *bench) observe(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	seen, err := b.serve(ctx, "bench-seen", url)
	if err != nil {
		return err
	}
	defer seen.stop()
	blind, err := b.serve(ctx, "bench-blind", url, "A2AD_LOG_LEVEL=error", noAdmin)
	if err != nil {
		return err
	}
	defer blind.stop()
	var ratios, with, without []float64
	for i := range b.number(3, 2) {
		order := []*server{seen, blind}
		if i%2 == 1 {
			order = []*server{blind, seen}
		}
		var cpu [2]float64 // of seen, of blind
		for _, s := range order {
			v, err := b.observedCost(ctx, s, key)
			if err != nil {
				return err
			}
			if s == seen {
				cpu[0] = v
			} else {
				cpu[1] = v
			}
		}
		with, without = append(with, cpu[0]), append(without, cpu[1])
		ratios = append(ratios, cpu[0]/cpu[1])
	}
	f := figure{Name: "metrics and log by default against neither: CPU per task", Unit: "×",
		Target: atMost(1.05)}.series(ratios)
	f.Baseline = "the same server with A2AD_ADMIN_LISTEN=off and A2AD_LOG_LEVEL=error, in turns"
	f.Detail = fmt.Sprintf("blocking sends, 16 at once: %s against %s ms of server and PostgreSQL",
		number(median(with)), number(median(without)))
	b.report.add(f)
	return b.checkFinished(ctx, url)
}

// observedCost returns the CPU time per task of a server under load, which is scraped once if it has metrics.
func (b *bench) observedCost(ctx context.Context, s *server, key string) (cpu float64, err error) {
	load := &echoLoad{addr: s.addr(), key: key, prefix: s.name}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	failed := make(chan error, 1)
	go func() { failed <- load.closed(running, 16) }()
	if err := pause(ctx, b.span(time.Second, 500*time.Millisecond)); err != nil {
		return 0, err
	}
	before, err := b.usage(s)
	if err != nil {
		return 0, err
	}
	n := load.done.Load()
	if s.admin != "" {
		if err := s.get(ctx, "/metrics", io.Discard); err != nil {
			return 0, err
		}
	}
	select {
	case err := <-failed:
		return 0, err
	case <-time.After(b.span(15*time.Second, 4*time.Second)): // one scrape in 15 s: deploy/compose/prometheus.yml
	}
	after, err := b.usage(s)
	if err != nil {
		return 0, err
	}
	u, done := after.minus(before), float64(load.done.Load()-n)
	stop(errEnough)
	if err := <-failed; err != nil && !errors.Is(err, errEnough) {
		return 0, err
	}
	return ms(u.server+u.postgres) / done, nil
}
