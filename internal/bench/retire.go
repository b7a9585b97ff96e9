package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/maintenance"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// retire measures how fast retention deletes, and compares sends with and without it, in turns.
func (b *bench) retire(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	taskList, rounds := b.number(600_000, 240_000), b.number(5, 9) // single p99s differ by a half
	if err := b.fillDrained(ctx, url, taskList); err != nil {
		return err
	}
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, "bench-retire", url)
	if err != nil {
		return err
	}
	defer s.stop()
	load := &echoLoad{addr: s.addr(), key: key, prefix: "r"}
	const perSecond = 200
	span := b.span(10*time.Second, 2*time.Second)
	p99 := func() (float64, error) {
		took, _, err := load.open(ctx, perSecond, span, 64)
		slices.Sort(took)
		return ms(quantile(took, 0.99)), err
	}
	if _, err := p99(); err != nil { // the first ones are slower
		return err
	}
	alone, beside, rates, err := b.compareRetiring(ctx, url, rounds, p99)
	if err != nil {
		return err
	}
	left, err := b.queryInt(ctx, url, `SELECT count(*) FROM a2a.tasks`)
	if err != nil {
		return err
	}
	s.stop()
	if err := b.reportRetireCost(ctx, url); err != nil {
		return err
	}
	f := figure{Name: "retention: tasks deleted, beside 200 sends/s", Unit: "/s",
		Target: atLeast(5000).onQuiet()}.series(rates)
	f.Detail = fmt.Sprintf("by one replica that does nothing else, with a pause after each batch twice as long as "+
		"it; %dk of %dk tasks with 3 events, in %d turns", taskList/1000-int(left)/1000, taskList/1000, rounds)
	b.report.add(f)
	b.report.add(figure{
		Name: "blocking send: p99 beside retention / without", Value: median(beside) / median(alone), Unit: "×",
		Target:   atMost(1.5).onQuiet(),
		Baseline: fmt.Sprintf("without: %s ms", number(median(alone))),
		Detail: fmt.Sprintf("beside: %s ms; %d sends each", number(median(beside)),
			int(span.Seconds())*perSecond*rounds),
	})
	return nil
}

// compareRetiring measures sends without and with retention, in turns, and how fast retention deletes.
func (b *bench) compareRetiring(
	ctx context.Context, url string, rounds int, p99 func() (float64, error),
) (alone, beside, rates []float64, err error) {
	for range rounds {
		took, err := p99()
		if err != nil {
			return nil, nil, nil, err
		}
		alone = append(alone, took)
		rate, took, err := b.whileRetiring(ctx, url, p99)
		if err != nil {
			return nil, nil, nil, err
		}
		rates, beside = append(rates, rate), append(beside, took)
	}
	return alone, beside, rates, nil
}

// reportRetireCost adds the figure of deletions without a pause.
func (b *bench) reportRetireCost(ctx context.Context, url string) error {
	cpu, wal, n, err := b.retireCost(ctx, url, b.number(100_000, 20_000))
	if err != nil {
		return err
	}
	b.report.add(figure{
		Name: "retention: PostgreSQL CPU per task deleted", Value: cpu, Unit: "µs", Target: atMost(100),
		Baseline: "at half the time of one connection, 5,000/s leave 100 µs",
		Detail:   fmt.Sprintf("%d tasks, without a pause; %s B of WAL each", n, number(wal)),
	})
	return nil
}

// fillDrained submits tasks and runs them to their end.
func (b *bench) fillDrained(ctx context.Context, url string, taskList int) error {
	s, err := b.store(ctx, url)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := fill(ctx, s, taskList); err != nil {
		return err
	}
	n, err := drainStore(ctx, s)
	if err == nil && n != taskList {
		err = fmt.Errorf("void: drained %d of %d tasks", n, taskList)
	}
	if err != nil {
		return err
	}
	return b.exec(ctx, url, "CHECKPOINT")
}

// whileRetiring runs measure while another replica deletes tasks that ended at least a second ago. It returns the
// rate of deletions.
func (b *bench) whileRetiring(ctx context.Context, url string, measure func() (float64, error)) (rate, measured float64,
	err error) {
	last, err := b.queryInt(ctx, url, `SELECT coalesce(max(id), 0) FROM audit.action`)
	if err != nil {
		return 0, 0, err
	}
	s, err := b.serve(ctx, "bench-retirer", url, "A2AD_WORKERS=0", "A2AD_RETENTION=1s", "A2AD_RETIRE_INTERVAL=10ms")
	if err != nil {
		return 0, 0, err
	}
	defer s.stop()
	if measured, err = measure(); err != nil {
		return 0, 0, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var old int64
	err = conn.QueryRow(ctx, `SELECT coalesce(sum((a.detail ->> 'tasks')::int) / extract(epoch
		FROM nullif(max(a.at) - min(a.at), interval '0')), 0)::float8,
		(SELECT count(*) FROM a2a.tasks t WHERE t.created_at < (SELECT min(a.at) FROM audit.action a
		WHERE a.id > $1) - interval '2 s')
		FROM audit.action a WHERE a.id > $1 AND a.action = 'task.retire'`, last).Scan(&rate, &old)
	if err == nil && (old == 0 || rate == 0) {
		err = errors.New("void: retention ran out of tasks while sends were measured")
	}
	return rate, measured, err
}

// retireCost deletes tasks without a pause.
func (b *bench) retireCost(ctx context.Context, url string, atLeast int) (cpu, wal float64, n int, err error) {
	s, err := b.store(ctx, url)
	if err != nil {
		return 0, 0, 0, err
	}
	defer s.Close()
	if err := b.exec(ctx, url, "CHECKPOINT"); err != nil { // leaves out what other statements have written
		return 0, 0, 0, err
	}
	before, err := b.usage()
	if err != nil {
		return 0, 0, 0, err
	}
	walBefore, err := b.walStat(ctx, url)
	if err != nil {
		return 0, 0, 0, err
	}
	all := func(tasks.Ended) tasks.Fate { return tasks.Delete }
	for after := (a2a.ID{}); n < atLeast; {
		got, err := s.Tasks.Retire(ctx, after, time.Second, maintenance.RetireBatch, all)
		if err != nil {
			return 0, 0, 0, err
		}
		n += got.Deleted
		if after = got.Next; after.IsZero() {
			break
		}
	}
	after, err := b.usage()
	if err != nil {
		return 0, 0, 0, err
	}
	walAfter, err := b.walStat(ctx, url)
	u := after.minus(before)
	return float64(u.postgres.Microseconds()) / float64(n), float64(walAfter.bytes-walBefore.bytes) / float64(n), n, err
}
