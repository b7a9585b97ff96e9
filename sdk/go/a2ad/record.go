package a2ad

import (
	"context"
	"time"
)

// tryRecord is the record of a try.
type tryRecord struct{ stepRecord }

func (t *try) record() tryRecord {
	return tryRecord{stepRecord{Key: t.key, Name: t.name, Input: t.input}}
}

// times returns the record with the times of its beginning and its end.
func (r tryRecord) times(started time.Time) tryRecord {
	r.StartedAt, r.EndedAt = stamp(started), stamp(time.Now())
	return r
}

// withUsage returns the events that record the try: what it has used, then how it ended.
func (t *try) withUsage(r tryRecord) []any { return append(t.takeUsage(), stepEvent{r.stepRecord}) }

// send records the try, and returns when the server has stored it.
func (t *try) send(ctx context.Context, r tryRecord) error {
	if err := t.session.add(ctx, t.withUsage(r)...); err != nil {
		return err
	}
	return t.session.store(ctx)
}

// takeUsage removes and returns the usage that the function has reported.
func (t *try) takeUsage() []any {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := make([]any, len(t.usage))
	for i, u := range t.usage {
		events[i] = usageEvent{u}
	}
	t.usage = nil
	return events
}

// addUsage adds a report to those of the step. The sums by model fit into one request.
func (t *try) addUsage(u Usage) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkLocked(); err != nil {
		return err
	}
	for i := range t.usage {
		if sum, ok := t.usage[i].plus(u); ok {
			t.usage[i] = sum
			return nil
		}
	}
	t.usage = append(t.usage, u)
	return nil
}
