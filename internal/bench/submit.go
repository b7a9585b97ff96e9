package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

const (
	benchAgent  = "echo"
	benchTenant = "bench"
	benchOwner  = "bench"
)

// submission returns the submission that every store-level experiment writes.
func submission(n int64) tasks.Submission {
	id := db.NewUID()
	return tasks.Submission{
		Caller: db.Caller{Tenant: benchTenant, Owner: benchOwner}, Agent: benchAgent, ContextID: id.String(),
		Message: a2a.Message{ID: id.String(), Role: a2a.RoleUser,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: fmt.Sprintf("hello hello hello %d", n)}}},
	}
}

// submit compares Store.Submit with the same rows written in one plain transaction each.
func (b *bench) submit(ctx context.Context) error {
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
	grouped := func(ctx context.Context, n int64) error {
		_, err := s.Tasks.Submit(ctx, submission(n))
		return err
	}
	for _, c := range []struct {
		callers int
		target  float64
	}{{32, 3}, {1, 0.9}} {
		pool, err := plainPool(ctx, url, c.callers)
		if err != nil {
			return err
		}
		plain := func(ctx context.Context, n int64) error { return plainSubmit(ctx, pool, n) }
		err = b.compare(ctx, comparison{
			figure: figure{Name: fmt.Sprintf("submit, %d at once: grouped / plain", c.callers), Unit: "×",
				Target: atLeast(c.target)},
			names: [2]string{"grouped", "BEGIN, 4 INSERT, COMMIT"}, callers: c.callers, a: grouped, b: plain,
		})
		pool.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func plainPool(ctx context.Context, url string, size int) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	pc.MaxConns = int32(size)
	return pgxpool.NewWithConfig(ctx, pc)
}

// plainSubmit writes the rows of a submit the way a program without group commit would.
func plainSubmit(ctx context.Context, pool *pgxpool.Pool, n int64) error {
	in := submission(n)
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	body := []byte(fmt.Sprintf(`{"messageId":%q,"role":"ROLE_USER","parts":[{"text":%q}]}`, in.Message.ID,
		in.Message.Parts[0].Text))
	digest := make([]byte, 32)
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var now time.Time
		err := tx.QueryRow(ctx, `INSERT INTO a2a.tasks
			(id, tenant, owner, agent, context_id, state, status_at, last_seq, last_at, last_message_seq,
			last_user_seq, ready_at, bytes, created_at)
			SELECT $1, $2, $3, $4, $5, 1, date_trunc('milliseconds', n.now), 1, n.now, 1, 1, n.now, $6, n.now
			FROM (SELECT clock_timestamp() AS now) n
			RETURNING created_at`, id, in.Tenant, in.Owner, in.Agent, in.ContextID, len(body)).Scan(&now)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx,
			`INSERT INTO a2a.messages (task_id, seq, at_seq, message_id, role, body, digest)
				VALUES ($1, 1, 1, $2, 1, $3, $4)`,
			id, in.Message.ID, body, digest); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source,
			committed_at, body)
			VALUES ($1, 1, $2, 1, 1, 2, $3, '{}')`, id, uuid.New(), now); err != nil {
			return err
		}
		_, err = tx.Exec(ctx,
			`INSERT INTO a2a.task_ready (queue, priority, run_at, task_id, tenant) VALUES ($1, 0, $2, $3, $4)`,
			in.Agent, now, id, in.Tenant)
		return err
	})
}

// comparison is two ways to do something, run in turns.
type comparison struct {
	figure
	names   [2]string
	callers int
	a, b    func(ctx context.Context, n int64) error
}

// compare adds the ratio of the rates of a and b as a figure.
func (b *bench) compare(ctx context.Context, c comparison) error {
	span := b.span(4*time.Second, time.Second)
	var ratios, as, bs []float64
	var cpuA, cpuB []float64
	for pair := range b.number(5, 3) + 1 {
		rateA, usA, err := b.rate(ctx, c.callers, span, c.a)
		if err != nil {
			return fmt.Errorf("%s: %w", c.names[0], err)
		}
		rateB, usB, err := b.rate(ctx, c.callers, span, c.b)
		if err != nil {
			return fmt.Errorf("%s: %w", c.names[1], err)
		}
		if pair == 0 {
			continue // the first round warms up plans, caches and connections
		}
		ratios, as, bs = append(ratios, rateA/rateB), append(as, rateA), append(bs, rateB)
		cpuA, cpuB = append(cpuA, usA), append(cpuB, usB)
	}
	f := c.figure.series(ratios)
	f.Baseline = fmt.Sprintf("%s: %s/s, %.0f µs CPU each (client and PostgreSQL)", c.names[1], number(median(bs)),
		median(cpuB))
	f.Detail = fmt.Sprintf("%s: %s/s, %.0f µs CPU each; %d pairs of %s", c.names[0], number(median(as)), median(cpuA),
		len(ratios), span)
	b.report.add(f)
	return nil
}

// rate calls f from the given number of goroutines for a time. It returns calls per second, and the CPU time of one
// call (this process and PostgreSQL) in microseconds.
func (b *bench) rate(ctx context.Context, callers int, span time.Duration,
	f func(ctx context.Context, n int64) error) (perSecond, cpu float64, err error) {
	before, err := b.usage()
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var calls atomic.Int64
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for time.Since(start) < span && ctx.Err() == nil {
				if err := f(ctx, calls.Add(1)); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return 0, 0, err
	}
	after, err := b.usage()
	if err != nil {
		return 0, 0, err
	}
	used := after.minus(before)
	n := float64(calls.Load())
	return n / took.Seconds(), float64((used.own + used.postgres).Microseconds()) / n, nil
}
