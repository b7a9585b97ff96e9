package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// timers measures how late tasks start whose waits end at the same time. A server runs them with the echo agent.
func (b *bench) timers(ctx context.Context) error {
	const due, apart = 1000, 6 * time.Second
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	s, err := b.store(ctx, url)
	if err != nil {
		return err
	}
	defer s.Close()
	rounds := b.number(5, 2)
	var ends []time.Time
	first := time.Now().Truncate(time.Second).Add(2 * apart)
	for round := range rounds {
		until := first.Add(time.Duration(round) * apart)
		if err := beginWaits(ctx, s, due, a2a.Wait{Key: "pause", Until: until}); err != nil {
			return err
		}
		ends = append(ends, until)
	}
	srv, err := b.serve(ctx, "bench-timers", url)
	if err != nil {
		return err
	}
	defer srv.stop()
	if time.Now().After(first) {
		return fmt.Errorf("void: it took longer than %s to prepare the tasks", 2*apart)
	}
	if err := b.ebb(ctx, url); err != nil {
		return err
	}
	var last, half []float64
	for _, until := range ends {
		middle, latest, err := startsAfter(ctx, url, until, due)
		if err != nil {
			return err
		}
		half, last = append(half, middle), append(last, latest)
	}
	f := figure{Name: "1000 waits that end at once: last start", Unit: "s", Target: atMost(2)}.series(last)
	f.Detail = fmt.Sprintf("from the end of the wait to the claim, by the database's clock; half of them after %s s; "+
		"one replica, echo", number(median(half)))
	b.report.add(f)
	return b.checkFinished(ctx, url)
}

// beginWaits submits n tasks, claims them, and lets them wait.
func beginWaits(ctx context.Context, s *store.Store, n int, w a2a.Wait) error {
	leases, err := leaseMany(ctx, s, n)
	if err != nil {
		return err
	}
	batch := tasks.Batch{
		Steps: []a2a.StepRecord{{Step: a2a.Step{Key: w.Key}, Seq: 1, Kind: a2a.StepWait}}, Wait: &w,
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range leases {
		wg.Go(func() {
			if _, err := s.Tasks.Append(ctx, &leases[i], batch); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// startsAfter returns how long after the end of their wait half of the tasks and the last task were claimed.
func startsAfter(ctx context.Context, url string, until time.Time, tasks int) (half, last float64, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var n int
	var soonest float64
	err = conn.QueryRow(ctx, `SELECT count(*), min(s), percentile_cont(0.5) WITHIN GROUP (ORDER BY s), max(s)
		FROM (
			SELECT extract(epoch FROM a.claimed_at - $1)::float8 AS s
			FROM a2a.task_attempts a
			WHERE a.epoch > 1 AND a.claimed_at >= $1 - interval '1 s' AND a.claimed_at < $1 + interval '5 s'
		) x`, until).Scan(&n, &soonest, &half, &last)
	switch {
	case err != nil:
		return 0, 0, err
	case n != tasks:
		return 0, 0, fmt.Errorf("void: %d of %d tasks started within 5 s", n, tasks)
	case soonest < 0:
		return 0, 0, fmt.Errorf("void: a task started %.3f s before the end of its wait", -soonest)
	}
	return half, last, nil
}
