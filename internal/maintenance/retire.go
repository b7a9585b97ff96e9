package maintenance

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
)

// Retirer removes what ended long ago: tasks, or their logs.
type Retirer struct {
	Store *store.Store
	// Rules returns how long what agents' tasks leave is kept, by the name of the agent, and
	// for agents that are not in the map. It is called once a round.
	Rules  func() (rules map[string]a2a.Retention, others a2a.Retention)
	Every  time.Duration
	Logger *slog.Logger

	marks marks // of Run
}

// RetireBatch is how many tasks go in one transaction.
const RetireBatch = 80

// Between two batches there is a pause at least twice as long as the batch took, so that requests
// have most of what it uses.
const retirePause = 5 * time.Millisecond

// Run looks every interval until ctx is done.
func (r *Retirer) Run(ctx context.Context) error { return repeat(ctx, r.Every, r.round) }

// round removes what is due. Most rounds read only what has become old enough since the last one.
func (r *Retirer) round(ctx context.Context) {
	m := &r.marks
	m.follow(r.Rules())
	decide := func(e store.Ended) store.Fate { return fate(m.rule(e.Agent), e) }
	var sum store.Retired
	defer func() {
		if sum.Deleted > 0 || sum.Pruned > 0 {
			r.Logger.InfoContext(ctx, "retired", "tasks", sum.Deleted, "logs", sum.Pruned, "events", sum.Events)
		}
	}()
	// step reports whether the round goes on; if not, the next one does so here.
	step := func(do func() (store.Retired, error), note func(*store.Retired, time.Time)) bool {
		began := time.Now()
		got, err := do()
		if err != nil && ctx.Err() == nil {
			r.Logger.WarnContext(ctx, "retire tasks", "err", err)
		}
		if err != nil || got.Busy {
			return false
		}
		note(&got, time.Now())
		sum.Deleted, sum.Pruned, sum.Events = sum.Deleted+got.Deleted, sum.Pruned+got.Pruned, sum.Events+got.Events
		return rest(ctx, max(2*time.Since(began), retirePause))
	}
	for i := range m.levels {
		for l, more := &m.levels[i], true; more; {
			if !step(func() (store.Retired, error) { return r.Store.Retire(ctx, l.after, l.age, RetireBatch, decide) }, func(got *store.Retired, now time.Time) {
				m.scanned(i, got, now)
				more = !got.Next.IsZero()
			}) {
				return
			}
		}
	}
	for ids := range slices.Chunk(m.due(time.Now()), RetireBatch) {
		if !step(func() (store.Retired, error) { return r.Store.RetireAgain(ctx, ids, decide) }, func(got *store.Retired, now time.Time) { m.lookedAgain(ids, got, now) }) {
			return
		}
	}
}

// rest reports whether ctx goes on after a pause.
func rest(ctx context.Context, d time.Duration) bool {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-pause.C:
		return true
	}
}

// fate is what a rule says of a task.
func fate(r a2a.Retention, e store.Ended) store.Fate {
	if keep := r.Of(e.State); keep > 0 && e.For >= keep {
		return store.Delete
	}
	if r.Log > 0 && e.For >= r.Log {
		return store.Prune
	}
	return store.Keep
}
