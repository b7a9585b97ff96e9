package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/a2ad/a2ad/internal/store/db"
)

// combiner commits what several callers want written in one transaction. A caller that
// finds nobody writing writes at once; those that come while it does are gathered, and the
// first of them writes for all. So a lone caller waits for nothing, and many share a
// commit, without a timer and without a goroutine of its own.
type combiner[I, R any] struct {
	// flush writes all items in one transaction, or none. Only without an error are there results: one for each item,
	// in their order. It runs on the goroutine of one caller and changes nothing that another one reads.
	flush func(ctx context.Context, items []*I) ([]R, error)
	size  func(*I) int
	// crowd is how many have to wait for one more to write beside those that do, so that some
	// work while the commits of others wait for the disk; 0: one writes at a time.
	crowd int
	// alone has room for the callers that write their item by themselves, after the transaction of their group was refused.
	alone chan struct{}
	log   *slog.Logger

	mu      sync.Mutex
	queue   []*call[I, R] // guarded by mu
	writers int           // guarded by mu; how many write, or have been told to
	called  bool          // guarded by mu; the first of the queue has been told to
}

func newCombiner[I, R any](flush func(context.Context, []*I) ([]R, error), size func(*I) int, crowd int, log *slog.Logger) *combiner[I, R] {
	return &combiner[I, R]{flush: flush, size: size, crowd: crowd, alone: make(chan struct{}, combineWriters), log: log}
}

// call is an item with its caller, who waits for done and then either writes or reads what became of the item.
type call[I, R any] struct {
	item   *I
	done   chan bool // true: you write; false: the rest is set
	result R
	err    error
	shared bool // it was written, or refused, with others
}

// A flush takes at most so many items and about so many bytes, and so many are under way at once.
const (
	combineItems   = 256
	combineBytes   = 1 << 20
	combineWriters = 3
)

// do returns when item is durable or has failed, with the result of the flush that was committed. It does not stop early
// when ctx ends: the item may be on its way. An error of the group's statement may be due to another's
// item: then the item is written by itself, and the error is its own.
func (c *combiner[I, R]) do(ctx context.Context, item *I) (R, error) {
	w := &call[I, R]{item: item, done: make(chan bool, 1)}
	c.mu.Lock()
	c.queue = append(c.queue, w)
	c.call()
	c.mu.Unlock()
	if <-w.done {
		c.write(ctx)
	}
	if w.shared && db.DueToOneItem(w.err) {
		return c.doAlone(ctx, item)
	}
	return w.result, w.err
}

// doAlone writes one item without waiting for others, or for what they wait for. Nothing of it is written before it has its turn.
func (c *combiner[I, R]) doAlone(ctx context.Context, item *I) (none R, err error) {
	select {
	case c.alone <- struct{}{}:
		defer func() { <-c.alone }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	results, err := c.safely(ctx, []*I{item})
	if err != nil {
		return none, err
	}
	return results[0], nil
}

// call tells the first of the queue to write, if it is time for that. mu is held.
func (c *combiner[I, R]) call() {
	n := len(c.queue)
	if n == 0 || c.called || c.writers == combineWriters || c.writers > 0 && (c.crowd == 0 || n < c.crowd) {
		return
	}
	c.called = true
	c.writers++
	c.queue[0].done <- true
}

// write flushes the front of the queue, of which the caller's item is the first, and hands on.
func (c *combiner[I, R]) write(ctx context.Context) {
	c.mu.Lock()
	c.called = false
	n, bytes := 0, 0
	for n < len(c.queue) && n < combineItems && (n == 0 || bytes < combineBytes) {
		bytes += c.size(c.queue[n].item)
		n++
	}
	batch := c.queue[:n:n]
	c.queue = c.queue[n:]
	c.call()
	c.mu.Unlock()

	items := make([]*I, n)
	for i, w := range batch {
		items[i] = w.item
	}
	results, err := c.safely(ctx, items)
	for i, w := range batch {
		w.err, w.shared = err, n > 1
		if err == nil {
			w.result = results[i]
		}
	}
	for _, w := range batch[1:] {
		w.done <- false
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.writers--
	c.call()
}

// safely is flush. A panic of it is an error: who waits for this writer, and who comes after it, must not wait for ever.
func (c *combiner[I, R]) safely(ctx context.Context, items []*I) (results []R, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.log.ErrorContext(ctx, "write panicked", "items", len(items), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			results, err = nil, fmt.Errorf("write panicked: %v", v)
		}
	}()
	return c.flush(ctx, items)
}
