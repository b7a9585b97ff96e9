package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// sleepers compares claims beside very many tasks that wait for a time with claims beside none.
func (b *bench) sleepers(ctx context.Context) error {
	const slots, waiting = 16, 1_000
	asleep := b.number(1_000_000, 200_000)
	var stores [2]*store.Store // with sleepers, without
	var claimers [2]*tasks.Claimer
	for i, sleeping := range []int{asleep, 0} {
		url, drop, err := b.database(ctx)
		if err != nil {
			return err
		}
		defer drop()
		if stores[i], err = b.store(ctx, url); err != nil {
			return err
		}
		defer stores[i].Close()
		if sleeping > 0 {
			if err := b.addSleepers(ctx, stores[i], url, sleeping); err != nil {
				return err
			}
		}
		if err := fill(ctx, stores[i], waiting); err != nil {
			return err
		}
		claimers[i] = stores[i].Tasks.NewClaimer()
		if err := b.exec(ctx, url, "VACUUM ANALYZE"); err != nil {
			return err
		}
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
	start := time.Now()
	if in, ok, err := stores[0].Tasks.NextWait(ctx); err != nil || !ok || in < time.Hour {
		return fmt.Errorf("void: the next wait ends in %s: %w", in, err)
	}
	f := figure{Name: fmt.Sprintf("claim beside %dk sleeping tasks / none", asleep/1000), Unit: "×",
		Target: atMost(1.1)}.series(ratios)
	f.Baseline = fmt.Sprintf("beside none: %s ms for a claim of %d", number(median(times)), slots)
	f.Detail = fmt.Sprintf("%d rounds of %d claims each, in turns; the next end of a wait is found in %s ms",
		len(ratios), claims, number(ms(time.Since(start))))
	b.report.add(f)
	return nil
}

// claimInTurns claims from both databases in turns, finishes what it claimed, and fills both queues again. It returns
// the times of the claims in milliseconds.
func claimInTurns(ctx context.Context, stores [2]*store.Store, claimers [2]*tasks.Claimer, claims, slots int) (
	took [2][]float64, err error,
) {
	for range claims {
		for i := range claimers {
			start := time.Now()
			leases, err := claimers[i].Claim(ctx, benchAgent, slots, leaseTTL, 0)
			if err != nil {
				return took, err
			}
			took[i] = append(took[i], ms(time.Since(start)))
			if len(leases) != slots {
				return took, fmt.Errorf("void: claimed %d of %d", len(leases), slots)
			}
		}
	}
	for _, s := range stores {
		if err := fill(ctx, s, claims*slots); err != nil {
			return took, err
		}
	}
	return took, nil
}

// addSleepers lets one task wait, and copies its rows until there are n such tasks.
func (b *bench) addSleepers(ctx context.Context, s *store.Store, url string, n int) error {
	if err := beginWaits(ctx, s, 1, a2a.Wait{Key: "pause", For: 365 * 24 * time.Hour}); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, table := range []string{"tasks", "messages", "task_events", "task_attempts", "task_steps", "task_waits"} {
		if err := copyTask(ctx, conn, table, n); err != nil {
			return fmt.Errorf("copy %s: %w", table, err)
		}
	}
	return nil
}

// copyTask copies the rows of the only task of a table under n-1 other ids.
func copyTask(ctx context.Context, conn *pgx.Conn, table string, n int) error {
	rows, err := conn.Query(ctx, `SELECT a.attname FROM pg_attribute a
		WHERE a.attrelid = ('a2a.' || $1)::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		ORDER BY a.attnum`, table)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	key := "task_id"
	if table == "tasks" {
		key = "id"
	}
	values := make([]string, len(names))
	for i, name := range names {
		switch name {
		case key: // in order, as ids are
			values[i] = "(lpad(to_hex(g), 12, '0') || '70008000000000000000')::uuid"
		case "context_id":
			values[i] = "r.context_id || g"
		case "message_id":
			values[i] = "r.message_id || g"
		case "due_at":
			values[i] = "r.due_at + g * interval '1 s'"
		default:
			values[i] = "r." + name
		}
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("INSERT INTO a2a.%s (%s) SELECT %s FROM a2a.%s r, generate_series(1, %d) g",
		table, strings.Join(names, ", "), strings.Join(values, ", "), table, n-1))
	return err
}
