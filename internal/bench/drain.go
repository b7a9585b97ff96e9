package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// Sizes of a drain: one claimer, and the limits of a replica with A2AD_WORKERS=2000, like River's bench. It claims as
// many at once. While final events are written it may have up to four times as many runs (see settling in
// internal/worker).
const (
	claimBatch = 2000
	inFlight   = 4 * claimBatch
	leaseTTL   = 30 * time.Second

	claimPushes = 64 // webhooks
)

// drain empties a queue of tasks and compares the rate with River's own bench.
func (b *bench) drain(ctx context.Context) error {
	taskList := b.number(200_000, 40_000)
	rival, err := b.buildRiver(ctx)
	if err != nil {
		b.log.Warn("River's bench cannot be built", "err", err)
	}
	rounds := 3
	var ours, cpus, pgs, theirs, ratios []float64
	for range rounds {
		rate, own, pg, err := b.drainOnce(ctx, taskList)
		if err != nil {
			return err
		}
		ours, cpus, pgs = append(ours, rate), append(cpus, own+pg), append(pgs, pg)
		if rival == nil {
			continue
		}
		other, err := rival.run(ctx, b, taskList)
		if err != nil {
			return fmt.Errorf("river: %w", err)
		}
		theirs, ratios = append(theirs, other), append(ratios, rate/other)
	}
	f := figure{Name: fmt.Sprintf("drain of %dk tasks", taskList/1000), Unit: "/s",
		Target: atLeast(30_000).onQuiet()}.series(ours)
	f.Detail = fmt.Sprintf("claim of %d, two events, attempt row, fenced finish each; %.0f µs CPU a task, "+
		"%.0f of them PostgreSQL's", claimBatch, median(cpus), median(pgs))
	b.report.add(f)
	if rival == nil {
		b.report.add(figure{Name: "drain / river bench", Unit: "×",
			Detail: "not measured: River's bench could not be built: " + err.Error()})
		return nil
	}
	f = figure{Name: "drain / river bench", Unit: "×", Target: atLeast(0.9), Aim: atLeast(1.6)}.series(ratios)
	f.Baseline = fmt.Sprintf("%s: %s/s", rival.what, number(median(theirs)))
	f.Detail = fmt.Sprintf("%d pairs", len(ratios))
	b.report.add(f)
	return nil
}

// drainOnce fills a queue and measures how fast it is drained.
func (b *bench) drainOnce(ctx context.Context, taskList int) (perSecond, own, pg float64, err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	defer drop()
	s, err := b.store(ctx, url)
	if err != nil {
		return 0, 0, 0, err
	}
	defer s.Close()
	if err := fill(ctx, s, taskList); err != nil {
		return 0, 0, 0, err
	}
	before, err := b.usage()
	if err != nil {
		return 0, 0, 0, err
	}
	start := time.Now()
	n, err := drainStore(ctx, s)
	took := time.Since(start)
	if err != nil {
		return 0, 0, 0, err
	}
	after, err := b.usage()
	if err != nil {
		return 0, 0, 0, err
	}
	if n != taskList {
		return 0, 0, 0, fmt.Errorf("void: drained %d of %d tasks", n, taskList)
	}
	u := after.minus(before)
	return float64(n) / took.Seconds(), float64(u.own.Microseconds()) / float64(n),
		float64(u.postgres.Microseconds()) / float64(n), b.checkFinished(ctx, url)
}

// fill submits the given number of tasks concurrently.
func fill(ctx context.Context, s *store.Store, taskList int) error {
	const callers = 512
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for n := c; n < taskList && ctx.Err() == nil; n += callers {
				if _, err := s.Tasks.Submit(ctx, submission(int64(n))); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// completion is the final batch of a run in these experiments.
var completion = tasks.Batch{Events: []a2a.Event{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}}}

// drainStore claims and finishes tasks, as a replica with many workers does, until the queue is empty. It returns
// their number.
func drainStore(ctx context.Context, s *store.Store) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	finished := 0
	slots := make(chan struct{}, inFlight)
	claimer := s.Tasks.NewClaimer()
	for ctx.Err() == nil {
		for range claimBatch {
			slots <- struct{}{}
		}
		leases, err := claimer.Claim(ctx, benchAgent, claimBatch, leaseTTL, 0)
		if err != nil {
			cancel(err)
			break
		}
		for range claimBatch - len(leases) {
			<-slots
		}
		if len(leases) == 0 {
			break
		}
		finished += len(leases)
		for i := range leases {
			wg.Go(func() {
				if _, err := s.Tasks.Append(ctx, &leases[i], completion); err != nil {
					cancel(err)
				}
				<-slots
			})
		}
	}
	wg.Wait()
	return finished, context.Cause(ctx)
}

// claim compares a claim from a queue of many tasks with one from a short queue.
func (b *bench) claim(ctx context.Context) error {
	const few, slots = 1_000, 16
	many := b.number(1_000_000, 100_000)
	var stores [2]*store.Store
	var claimers [2]*tasks.Claimer
	for i, n := range []int{many, few} {
		url, drop, err := b.database(ctx)
		if err != nil {
			return err
		}
		defer drop()
		if stores[i], err = b.store(ctx, url); err != nil {
			return err
		}
		defer stores[i].Close()
		if err := fill(ctx, stores[i], n); err != nil {
			return err
		}
		claimers[i] = stores[i].Tasks.NewClaimer()
		if err := b.exec(ctx, url, "CHECKPOINT"); err != nil {
			return err
		}
	}
	const rounds, claims = 12, 30
	var ratios, times []float64
	for round := range rounds {
		took, err := claimInTurns(ctx, stores, claimers, claims, slots)
		if err != nil {
			return err
		}
		if round == 0 {
			continue
		}
		ratios, times = append(ratios, median(took[0])/median(took[1])), append(times, median(took[1]))
	}
	f := figure{Name: fmt.Sprintf("claim with %dk waiting / with 1k", many/1000), Unit: "×",
		Target: atMost(1.5)}.series(ratios)
	f.Baseline = fmt.Sprintf("with 1k waiting: %s ms for a claim of %d", number(median(times)), slots)
	f.Detail = fmt.Sprintf("%d rounds of %d claims each, in turns", len(ratios), claims)
	b.report.add(f)
	return nil
}

// snapshot measures how much a held snapshot (a forgotten transaction, a dump) slows down the queue and webhooks.
func (b *bench) snapshot(ctx context.Context) error {
	return errors.Join(
		b.heldSnapshot(ctx, figure{Name: "rate", Target: atLeast(0.75), Baseline: "submitted, claimed and finished"},
			false),
		b.heldSnapshot(ctx, figure{Name: "rate with webhooks", Baseline: "and their webhooks claimed and delivered"},
			true))
}

// heldSnapshot compares the rate at the end of a snapshot with the rate before it, for tasks with or without
// webhooks.
func (b *bench) heldSnapshot(ctx context.Context, f figure, hookList bool) error {
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
	held := b.span(40*time.Second, 10*time.Second)
	window := min(10*time.Second, held/2)
	if _, err := churn(ctx, s, b.span(5*time.Second, 2*time.Second), hookList); err != nil { // warm up
		return err
	}
	first, err := churn(ctx, s, window, hookList)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SELECT count(*) FROM a2a.task_ready"); err != nil {
		return err
	}
	if _, err := churn(ctx, s, held-window, hookList); err != nil {
		return err
	}
	last, err := churn(ctx, s, window, hookList)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "COMMIT"); err != nil {
		return err
	}
	free, err := churn(ctx, s, window, hookList)
	if err != nil {
		return err
	}
	f.Name = fmt.Sprintf("%s at the end of a snapshot of %s / before", f.Name, held)
	f.Value, f.Unit = last/first, "×"
	f.Baseline = fmt.Sprintf("before: %s tasks/s %s", number(first), f.Baseline)
	f.Detail = fmt.Sprintf("at the end of the snapshot %s/s, after it %s/s; windows of %s", number(last), number(free),
		window)
	b.report.add(f)
	return nil
}

// churn submits, claims and finishes tasks for a time and delivers their webhooks, if any. It returns the finished
// tasks per second.
func churn(ctx context.Context, s *store.Store, span time.Duration, hookList bool) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	const rounds = 50
	claimer := s.Tasks.NewClaimer()
	finished, start := 0, time.Now()
	for n := int64(0); time.Since(start) < span; n++ {
		var wg sync.WaitGroup
		for i := range rounds {
			wg.Go(func() {
				in := submission(n*rounds + int64(i))
				if hookList {
					in.Push = webhook("http://127.0.0.1:1")
				}
				if _, err := s.Tasks.Submit(ctx, in); err != nil {
					cancel(err)
				}
			})
		}
		wg.Wait()
		leases, err := claimer.Claim(ctx, benchAgent, rounds, leaseTTL, 0)
		if err != nil {
			return 0, err
		}
		for i := range leases {
			wg.Go(func() {
				if _, err := s.Tasks.Append(ctx, &leases[i], completion); err != nil {
					cancel(err)
				}
			})
		}
		wg.Wait()
		finished += len(leases)
		if hookList {
			if err := deliverAll(ctx, s); err != nil {
				return 0, err
			}
		}
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
	}
	return float64(finished) / time.Since(start).Seconds(), nil
}

// deliverAll claims webhooks and records each as delivered, until none is due.
func deliverAll(ctx context.Context, s *store.Store) error {
	for {
		due, err := s.Webhooks.Claim(ctx, claimPushes, claimPushes, leaseTTL)
		if err != nil || len(due) == 0 {
			return err
		}
		errs := make([]error, len(due))
		var wg sync.WaitGroup
		for i := range due {
			wg.Go(func() { errs[i] = s.Webhooks.RecordDelivery(ctx, &due[i], &webhooks.Try{}, true) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
}

// flush compares grouped submits with the same on a disk whose flush takes 1 ms longer.
func (b *bench) flush(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	var stores [2]*store.Store
	for i, url := range []string{withParams(url, map[string]string{"commit_delay": "1000", "commit_siblings": "0"}),
		url} {
		if stores[i], err = b.store(ctx, url); err != nil {
			return err
		}
		defer stores[i].Close()
	}
	submit := func(s *store.Store) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			_, err := s.Tasks.Submit(ctx, submission(n))
			return err
		}
	}
	return b.compare(ctx, comparison{
		figure: figure{Name: "submit, 256 at once: flush of 1 ms more / fast disk", Unit: "×", Target: atLeast(0.8)},
		names:  [2]string{"commit_delay=1000, commit_siblings=0", "this disk"}, callers: 256, a: submit(stores[0]),
		b: submit(stores[1]),
	})
}
