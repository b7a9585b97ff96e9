package maintenance

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Retirer removes tasks that ended long ago, or their logs.
type Retirer struct {
	Store *tasks.Store
	// Rules returns the retention of tasks by the name of their agent, and for agents that are not in the map. It is
	// called once a round.
	Rules  func() (rules map[string]a2a.Retention, others a2a.Retention)
	Every  time.Duration
	Logger *slog.Logger

	marks marks // of Run
}

// RetireBatch is how many tasks are removed in one transaction.
const RetireBatch = 80

// retirePause is the shortest pause between two batches. A pause is at least twice as long as the batch took, so that
// requests get most of the resources.
const retirePause = 5 * time.Millisecond

// Run removes old tasks every interval until ctx is done.
func (r *Retirer) Run(ctx context.Context) error { return repeat(ctx, r.Every, r.round) }

// round removes the tasks that are due. Most rounds only read tasks that have become old enough since the last round.
func (r *Retirer) round(ctx context.Context) {
	m := &r.marks
	m.setRules(r.Rules())
	decide := func(e tasks.Ended) tasks.Fate { return fate(m.rule(e.Agent), e) }
	var sum tasks.Retired
	defer func() {
		if sum.Deleted > 0 || sum.Pruned > 0 {
			r.Logger.InfoContext(ctx, "retired", "tasks", sum.Deleted, "logs", sum.Pruned, "events", sum.Events)
		}
	}()
	// step reports whether the round continues; if not, the next round continues here.
	step := func(do func() (tasks.Retired, error), note func(*tasks.Retired, time.Time)) bool {
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
		return pause(ctx, max(2*time.Since(began), retirePause))
	}
	for i := range m.levels {
		l, more := &m.levels[i], true
		scan := func() (tasks.Retired, error) { return r.Store.Retire(ctx, l.after, l.age, RetireBatch, decide) }
		note := func(got *tasks.Retired, now time.Time) {
			m.scanned(i, got, now)
			more = !got.Next.IsZero()
		}
		for more {
			if !step(scan, note) {
				return
			}
		}
	}
	for more := m.importedDue(); more; {
		scan := func() (tasks.Retired, error) {
			return r.Store.RetireImported(ctx, m.imported, RetireBatch, decide)
		}
		if !step(scan, func(got *tasks.Retired, now time.Time) { more = m.scannedImported(got, now) }) {
			return
		}
	}
	for ids := range slices.Chunk(m.due(time.Now()), RetireBatch) {
		read := func() (tasks.Retired, error) { return r.Store.RetireAgain(ctx, ids, decide) }
		note := func(got *tasks.Retired, now time.Time) { m.readAgain(ids, got, now) }
		if !step(read, note) {
			return
		}
	}
}

// pause waits, and reports whether ctx is not done.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// fate returns what a rule does with a task.
func fate(r a2a.Retention, e tasks.Ended) tasks.Fate {
	if keep := r.Of(e.State); keep > 0 && e.For >= keep {
		return tasks.Delete
	}
	if r.Log > 0 && e.For >= r.Log {
		return tasks.Prune
	}
	return tasks.Keep
}
