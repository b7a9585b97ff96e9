package store

import (
	"context"
	"sync"
)

// combiner commits what several callers want written in one transaction. A caller that
// finds nobody writing writes at once; those that come while it does are gathered, and the
// first of them writes for all. So a lone caller waits for nothing, and many share a
// commit, without a timer and without a goroutine of its own.
type combiner[T any] struct {
	// flush writes items and returns one error for all of them. It has put into each item
	// what its caller wants to know.
	flush func(ctx context.Context, items []*T) error
	size  func(*T) int
	// crowd is how many have to wait for one more to write beside those that do, so that some
	// work while the commits of others wait for the disk; 0: one writes at a time.
	crowd int

	mu      sync.Mutex
	queue   []*call[T] // guarded by mu
	writers int        // guarded by mu; how many write, or have been told to
	called  bool       // guarded by mu; the first of the queue has been told to
}

type call[T any] struct {
	item *T
	done chan bool // true: you write; false: err is set
	err  error
}

// A flush takes at most so many items and about so many bytes, and so many are under way at once.
const (
	combineItems   = 256
	combineBytes   = 1 << 20
	combineWriters = 3
)

// do returns when item is durable or has failed. It does not stop early when ctx ends: the
// item may be on its way.
func (c *combiner[T]) do(ctx context.Context, item *T) error {
	w := &call[T]{item: item, done: make(chan bool, 1)}
	c.mu.Lock()
	c.queue = append(c.queue, w)
	c.call()
	c.mu.Unlock()
	if <-w.done {
		c.write(ctx)
	}
	return w.err
}

// call tells the first of the queue to write, if it is time for that. mu is held.
func (c *combiner[T]) call() {
	n := len(c.queue)
	if n == 0 || c.called || c.writers == combineWriters || c.writers > 0 && (c.crowd == 0 || n < c.crowd) {
		return
	}
	c.called = true
	c.writers++
	c.queue[0].done <- true
}

// write flushes the front of the queue, of which the caller's item is the first, and hands on.
func (c *combiner[T]) write(ctx context.Context) {
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

	items := make([]*T, n)
	for i, w := range batch {
		items[i] = w.item
	}
	err := c.flush(ctx, items)
	if n > 1 && isCode(err, "22", "23") {
		// One caller's bad row must not fail the others: write them one by one.
		for _, w := range batch {
			w.err = c.flush(ctx, []*T{w.item})
		}
	} else {
		for _, w := range batch {
			w.err = err
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
