package e2e_test

import (
	"context"
	"sync"
	"testing"
	"time"
)

// change announces that something in this process has changed. The zero value is ready to use.
type change struct {
	mu sync.Mutex
	c  chan struct{} // guarded by mu; nil: no one waits. Closed by the next change
}

// next returns a channel that the next change closes.
func (c *change) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c == nil {
		c.c = make(chan struct{})
	}
	return c.c
}

// happened wakes everything that waits for a change.
func (c *change) happened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c != nil {
		close(c.c)
		c.c = nil
	}
}

// untilChange waits for a condition in this process, and checks it after each change. next must be that of the change,
// and is called before the check, so that no change falls between.
func untilChange(t *testing.T, what string, next func() <-chan struct{}, holds func() bool) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		changed := next()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// until polls for a condition that no event announces to the test: what another process answers, has in /proc, or has
// committed. A LISTEN would not do for the rows: replicas notify each other only of what they wait for themselves.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	untilFor(t, patience, what, holds)
}

// untilFor is until with another limit.
func untilFor(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		case <-tick.C:
		}
	}
}

// pause lets time pass between two actions of a client, a fault or an observer. The pause is part of the load: it waits
// for no event.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
