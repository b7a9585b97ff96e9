package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// deadHooks inserts tasks with webhooks that are due at a destination.
const deadHooks = `WITH t AS (
	INSERT INTO a2a.tasks (id, tenant, owner, agent, context_id, state, status_at, last_seq, last_at, last_message_seq,
	last_user_seq, created_at, has_push, list_key)
	SELECT gen_random_uuid(), 'bench', 'bench', 'words', 'c', 1, now(), 1, now(), 0, 0, now(), true,
	a2a.list_key('bench', 'bench', 'words')
	FROM generate_series(1, $1) RETURNING id)
INSERT INTO a2a.push_configs (id, task_id, config_id, tenant, owner, agent, url, origin, schemes, wire_version,
from_seq, cursor_seq, head_seq, next_attempt_at)
SELECT gen_random_uuid(), t.id, 'default', 'bench', 'bench', 'words', $2 || '/x', $2, '{}', 3, 0, 0, 1,
clock_timestamp() - interval '1 hour' - random() * interval '1 hour' FROM t`

// pushDead measures a claim among many webhooks of a destination with an open circuit breaker.
func (b *bench) pushDead(ctx context.Context) error {
	sizes := []struct {
		count  int
		name   string
		before string
	}{{100_000, "100k", "74 ms"}, {1_000_000, "1M", "763 ms"}}
	if b.opts.quick {
		sizes = sizes[:1]
	}
	for _, size := range sizes {
		if err := b.pushDeadOf(ctx, size.count, size.name, size.before); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) pushDeadOf(ctx context.Context, count int, name, before string) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	const dead, alive = "https://dead.example:443", "https://alive.example:443"
	const rounds, each = 30, 4
	if err := b.exec(ctx, url, deadHooks, count, dead); err != nil {
		return err
	}
	if err := b.exec(ctx, url, deadHooks, rounds*each, alive); err != nil {
		return err
	}
	for _, statement := range []string{
		"UPDATE a2a.push_configs SET next_attempt_at = 'infinity' WHERE origin = '" + alive + "'",
		"INSERT INTO a2a.push_destinations (tenant, origin, fails, openings, first_failure_at, open_until) " +
			"VALUES ('bench', '" + dead + "', 5, 1, now(), now() + interval '1 hour')",
		"VACUUM ANALYZE",
	} {
		if err := b.exec(ctx, url, statement); err != nil {
			return err
		}
	}
	s, err := b.store(ctx, url)
	if err != nil {
		return err
	}
	defer s.Close()
	start := time.Now()
	for left := int64(1); left > 0; {
		if _, err := s.Webhooks.Claim(ctx, each, each, time.Hour); err != nil {
			return err
		}
		if left, err = b.queryInt(ctx, url,
			"SELECT count(*) FROM (SELECT FROM a2a.push_configs WHERE origin = $1 AND NOT parked LIMIT 1) x",
			dead); err != nil {
			return err
		}
	}
	parking := time.Since(start)
	var took []float64
	for range rounds {
		took1, err := b.claimAlive(ctx, url, s, alive, each)
		if err != nil {
			return err
		}
		took = append(took, took1)
	}
	slices.Sort(took)
	f := figure{Name: "claim of webhooks beside " + name + " of a destination with an open breaker", Unit: "ms",
		Target: atMost(20).onQuiet()}.series(took)
	f.Baseline = "walking over them: " + before
	f.Detail = fmt.Sprintf("%d claims of %d; parking them took %s, once", rounds, each, parking.Round(time.Millisecond))
	b.report.add(f)
	return nil
}

// claimAlive makes some webhooks of a working destination due, and claims them.
func (b *bench) claimAlive(ctx context.Context, url string, s *store.Store, origin string, n int) (float64, error) {
	const due = `UPDATE a2a.push_configs SET next_attempt_at = clock_timestamp()
		WHERE id = ANY (ARRAY(SELECT id FROM a2a.push_configs WHERE origin = $1 AND lease_until IS NULL
		AND cursor_seq < head_seq LIMIT $2))`
	if err := b.exec(ctx, url, due, origin, n); err != nil {
		return 0, err
	}
	start := time.Now()
	claimed, err := s.Webhooks.Claim(ctx, n, n, time.Hour)
	took := ms(time.Since(start))
	if err != nil {
		return 0, err
	}
	if len(claimed) != n {
		return 0, fmt.Errorf("void: %d webhooks claimed, want %d", len(claimed), n)
	}
	for i := range claimed {
		if err := s.Webhooks.RecordDelivery(ctx, &claimed[i], &webhooks.Try{Status: 200}, false); err != nil {
			return 0, err
		}
	}
	return took, nil
}
