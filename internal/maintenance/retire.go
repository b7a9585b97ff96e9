package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
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
}

// RetireBatch is how many tasks go in one transaction.
const RetireBatch = 80

// Between two batches there is a pause at least twice as long as the batch took, so that requests
// have most of what it uses.
const retirePause = 5 * time.Millisecond

// Run looks every interval until ctx is done.
func (r *Retirer) Run(ctx context.Context) error {
	timer := time.NewTimer(backoff.Jitter(r.Every, nil))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		r.round(ctx)
		timer.Reset(backoff.Jitter(r.Every, nil))
	}
}

// round goes over all tasks that are old enough once.
func (r *Retirer) round(ctx context.Context) {
	rules, others := r.Rules()
	age := youngest(rules, others)
	if age == 0 {
		return
	}
	decide := func(e store.Ended) store.Fate {
		rule, ok := rules[e.Agent]
		if !ok {
			rule = others
		}
		return fate(rule, e)
	}
	var deleted, pruned int
	var events int64
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for after := (a2a.ID{}); ; {
		began := time.Now()
		got, err := r.Store.Retire(ctx, after, age, RetireBatch, decide)
		if err != nil {
			if ctx.Err() == nil {
				r.Logger.WarnContext(ctx, "retire tasks", "err", err)
			}
			break
		}
		deleted, pruned, events = deleted+got.Deleted, pruned+got.Pruned, events+got.Events
		if after = got.Next; after.IsZero() {
			break
		}
		pause.Reset(max(2*time.Since(began), retirePause))
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
	if deleted > 0 || pruned > 0 {
		r.Logger.InfoContext(ctx, "retired", "tasks", deleted, "logs", pruned, "events", events)
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

// youngest is the least age at which any rule removes anything; 0: none does.
func youngest(rules map[string]a2a.Retention, others a2a.Retention) (age time.Duration) {
	least := func(d time.Duration) {
		if d > 0 && (age == 0 || d < age) {
			age = d
		}
	}
	all := []a2a.Retention{others}
	for _, r := range rules {
		all = append(all, r)
	}
	for _, r := range all {
		for _, d := range []time.Duration{r.Completed, r.Failed, r.Canceled, r.Rejected, r.Log} {
			least(d)
		}
	}
	return age
}
