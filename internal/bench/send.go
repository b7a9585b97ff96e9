package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// send measures blocking sends to echo over HTTP: the cost of a task, the highest rate, and the latency at a moderate
// rate.
func (b *bench) send(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, "bench-send", url)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := b.sendClosed(ctx, s, url, key); err != nil {
		return fmt.Errorf("closed loop: %w", err)
	}
	if err := b.sendOpen(ctx, s, key); err != nil {
		return fmt.Errorf("open loop: %w", err)
	}
	return b.checkFinished(ctx, url)
}

// walStat is what the database has written and committed.
type walStat struct{ bytes, commits int64 }

func (b *bench) walStat(ctx context.Context, url string) (w walStat, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return w, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx,
		`SELECT (SELECT wal_bytes::bigint FROM pg_stat_wal), xact_commit FROM pg_stat_database
			WHERE datname = current_database()`).
		Scan(&w.bytes, &w.commits)
	return w, err
}

const senders = 32

func (b *bench) sendClosed(ctx context.Context, s *server, url, key string) error {
	load := &echoLoad{addr: s.addr(), key: key, prefix: "c"}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	failed := make(chan error, 1)
	go func() { failed <- load.closed(running, senders) }()
	if err := pause(ctx, b.span(4*time.Second, time.Second)); err != nil {
		return err
	}
	span := b.span(4*time.Second, 2*time.Second)
	profiled := make(chan error, 1)
	rounds := b.number(5, 3)
	go func() { profiled <- b.profile(ctx, s, "send", span*time.Duration(rounds)) }()
	var rates, cpus, servers, postgreses, owns []float64
	wal, err := b.walStat(ctx, url)
	if err != nil {
		return err
	}
	first := load.done.Load()
	for range rounds {
		before, err := b.usage(s)
		if err != nil {
			return err
		}
		n, start := load.done.Load(), time.Now()
		select {
		case err := <-failed:
			return err
		case <-time.After(span):
		}
		took, done := time.Since(start), float64(load.done.Load()-n)
		after, err := b.usage(s)
		if err != nil {
			return err
		}
		u := after.minus(before)
		rates = append(rates, done/took.Seconds())
		cpus = append(cpus, ms(u.server+u.postgres)/done)
		servers, postgreses = append(servers, ms(u.server)/done), append(postgreses, ms(u.postgres)/done)
		owns = append(owns, u.own.Seconds()/took.Seconds()/float64(runtime.NumCPU()))
	}
	tasks := float64(load.done.Load() - first)
	walAfter, err := b.walStat(ctx, url)
	if err != nil {
		return err
	}
	stop(errEnough)
	if err := errors.Join(<-failed, <-profiled); err != nil {
		return err
	}
	f := figure{Name: fmt.Sprintf("blocking send, %d at once: CPU per task", senders), Unit: "ms",
		Target: atMost(sendCPUTarget)}.series(cpus)
	f.Baseline = "a2a-js 1.3.0 on PostgreSQL, measured once on two cores: 1.66 to 1.93 ms"
	f.Detail = fmt.Sprintf("server %s + PostgreSQL %s ms; WAL %s B per task", number(median(servers)),
		number(median(postgreses)), number(float64(walAfter.bytes-wal.bytes)/tasks))
	b.report.add(f)
	b.report.add(figure{Name: fmt.Sprintf("blocking send, %d at once: commits per task", senders),
		Value: float64(walAfter.commits-wal.commits) / tasks, Target: atMost(commitsTarget), Aim: atMost(commitsAim)})
	b.reportSendRate(rates, median(owns))
	return nil
}

// reportSendRate adds the figure of the rate. own is the share of the cores that the load generator used.
func (b *bench) reportSendRate(rates []float64, own float64) {
	f := figure{Name: fmt.Sprintf("blocking send, %d at once: rate", senders), Unit: "/s",
		Target: atLeast(1500).onQuiet()}.series(rates)
	f.Baseline = "a2a-js 1.3.0 on PostgreSQL, measured once on two cores: 558/s"
	f.Detail = fmt.Sprintf("the load generator used %.0f %% of the cores", own*100)
	b.report.add(f)
}

// tooBusy is the share of the cores above which the load generator distorts the result.
const tooBusy = 0.35

func (b *bench) sendOpen(ctx context.Context, s *server, key string) error {
	const perSecond = 200
	load := &echoLoad{addr: s.addr(), key: key, prefix: "o"}
	if _, _, err := load.open(ctx, perSecond, 2*time.Second, 64); err != nil {
		return err
	}
	before, err := b.usage(s)
	if err != nil {
		return err
	}
	start := time.Now()
	span := b.span(20*time.Second, 5*time.Second)
	took, late, err := load.open(ctx, perSecond, span, 64)
	if err != nil {
		return err
	}
	after, err := b.usage(s)
	if err != nil {
		return err
	}
	u := after.minus(before)
	share := u.own.Seconds() / time.Since(start).Seconds() / float64(runtime.NumCPU())
	if share > tooBusy {
		return fmt.Errorf("void: the load generator used %.0f %% of the cores", share*100)
	}
	slices.Sort(took)
	detail := fmt.Sprintf("%d sends, %d started more than 1 ms late; worst %s ms; generator %.0f %% of the cores; "+
		"CPU per task %s ms",
		len(took), late, number(ms(took[len(took)-1])), share*100, number(ms(u.server+u.postgres)/float64(len(took))))
	b.report.add(figure{Name: "blocking send, 200/s open loop: p50", Value: ms(quantile(took, 0.50)), Unit: "ms"})
	b.report.add(figure{Name: "blocking send, 200/s open loop: p99", Value: ms(quantile(took, 0.99)), Unit: "ms",
		Target: atMost(50), Detail: detail})
	return nil
}

// checkFinished checks the database after the load: every task has ended and every log is whole.
func (b *bench) checkFinished(ctx context.Context, url string) error {
	bad, err := b.queryInt(ctx, url, `SELECT count(*) FROM a2a.tasks t
		WHERE t.state < 100 OR (SELECT count(*) FROM a2a.task_events e WHERE e.task_id = t.id) <> t.last_seq
		OR EXISTS (SELECT FROM a2a.task_ready r WHERE r.task_id = t.id) OR EXISTS (SELECT FROM a2a.task_leases l
		WHERE l.task_id = t.id)`)
	if err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("void: %d tasks are not finished or have a gap in their log", bad)
	}
	return nil
}
