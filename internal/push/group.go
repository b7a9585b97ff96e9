package push

import (
	"context"
	"sync"

	"github.com/a2ad/a2ad/internal/a2a"
)

// group lets deliveries share statements. One call of many runs at a time. Deliveries that come meanwhile wait, and the
// first of them then calls many for all. So a lone delivery waits for nothing.
type group[I, R any] struct {
	// many returns one result for each item, in their order. Its context must not end: others wait for the call, too.
	many func(ctx context.Context, items []I) ([]R, error)
	// alone is for an item whose group failed, perhaps because of another item.
	alone func(ctx context.Context, item I) (R, error)

	mu    sync.Mutex
	busy  bool            // guarded by mu; many runs, or the first of the queue was told to call it
	queue []*member[I, R] // guarded by mu
}

// groupMost bounds the items of a group.
const groupMost = 64

// member is an item that waits.
type member[I, R any] struct {
	item   I
	done   chan bool // true: call many for the queue; false: the fields below are set
	result R
	err    error
	shared bool // the group had other items
}

// do returns the result of an item.
func (g *group[I, R]) do(ctx context.Context, item I) (R, error) {
	m := &member[I, R]{item: item, done: make(chan bool, 1)}
	g.mu.Lock()
	g.queue = append(g.queue, m)
	g.next()
	g.mu.Unlock()
	if <-m.done {
		g.lead(ctx)
	}
	// While the database is unreachable, it is so for each of them.
	if m.err != nil && m.shared && a2a.CodeOf(m.err) != a2a.CodeUnavailable {
		return g.alone(ctx, item)
	}
	return m.result, m.err
}

// next tells the first of the queue to call many, unless it runs. The caller holds mu.
func (g *group[I, R]) next() {
	if !g.busy && len(g.queue) > 0 {
		g.busy = true
		g.queue[0].done <- true
	}
}

// lead calls many for the front of the queue, which begins with the caller's item.
func (g *group[I, R]) lead(ctx context.Context) {
	g.mu.Lock()
	n := min(len(g.queue), groupMost)
	members := g.queue[:n:n]
	g.queue = g.queue[n:]
	g.mu.Unlock()
	items := make([]I, n)
	for i, m := range members {
		items[i] = m.item
	}
	results, err := g.many(ctx, items)
	for i, m := range members {
		m.err, m.shared = err, n > 1
		if err == nil {
			m.result = results[i]
		}
	}
	g.mu.Lock()
	g.busy = false
	g.next()
	g.mu.Unlock()
	for _, m := range members[1:] {
		m.done <- false
	}
}
