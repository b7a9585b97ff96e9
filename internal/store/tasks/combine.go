package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
)

// combiner commits the items of several callers in one transaction. A caller writes at once if no other caller is
// writing. Callers that come meanwhile wait, and the first of them then writes for all. So a lone caller waits for
// nothing, and many share a commit, without a timer or a goroutine of the combiner.
type combiner[I, R any] struct {
	// flush writes all items in one transaction, or none. Without an error it returns one result for each item, in
	// their order. It runs on the goroutine of one caller and changes nothing that another caller reads.
	flush func(ctx context.Context, items []*I) ([]R, error)
	size  func(*I) int
	// crowd is how many callers must wait before one more writes at the same time. So one transaction runs while the
	// commit of another waits for the disk. 0: one writes at a time.
	crowd int
	// patient reports whether an item may be held, so that its group grows. nil: none may.
	patient func(*I) bool
	task    func(*I) a2a.ID // of an item, unless no other item of it follows; used with patient
	// alone limits the callers that write their item alone, after the transaction of their group was refused.
	alone chan struct{}
	log   *slog.Logger

	mu      sync.Mutex
	queue   []*call[I, R] // guarded by mu
	writers int           // guarded by mu; how many write, or have been told to
	called  bool          // guarded by mu; the first of the queue has been told to
	hold    hold          // guarded by mu
}

func newCombiner[I, R any](
	flush func(context.Context, []*I) ([]R, error), size func(*I) int, crowd int, log *slog.Logger,
) *combiner[I, R] {
	return &combiner[I, R]{flush: flush, size: size, crowd: crowd, alone: make(chan struct{}, combineWriters), log: log}
}

// call is an item with its caller, which waits for done and then either writes or reads the result.
type call[I, R any] struct {
	item   *I
	done   chan bool // true: write; false: the fields below are set
	result R
	err    error
	shared bool // the item was written, or refused, together with others
}

// A flush has at most combineItems items and about combineBytes bytes. At most combineWriters run at once.
const (
	combineItems   = 256
	combineBytes   = 1 << 20
	combineWriters = 3
)

// do returns when item is durable or has failed, with its result. It does not return early when ctx ends, because the
// item may be in a transaction already. If another item may have caused the error of the group, the item is written
// alone.
func (c *combiner[I, R]) do(ctx context.Context, item *I) (R, error) {
	w := &call[I, R]{item: item, done: make(chan bool, 1)}
	c.mu.Lock()
	c.queue = append(c.queue, w)
	if c.patient != nil {
		c.hold.arrived(len(c.queue), c.task(item), c.patient(item), c.ripe)
	}
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

// doAlone writes one item in a transaction of its own, so that it does not wait for locks that other items need. It may
// wait for its turn; until then nothing is written.
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

// call lets the first caller of the queue write, if one more may write. The caller holds mu.
func (c *combiner[I, R]) call() {
	n := len(c.queue)
	few := c.crowd == 0 || n < c.crowd
	if n == 0 || c.called || c.hold.on || c.writers == combineWriters || c.writers > 0 && few {
		return
	}
	c.called = true
	c.writers++
	c.queue[0].done <- true
}

// ripe ends the hold of a group that has waited for long enough.
func (c *combiner[I, R]) ripe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold.ripen()
	c.call()
}

// write flushes the front of the queue, which begins with the caller's item, and then lets the next caller write.
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
	items := make([]*I, n)
	for i, w := range batch {
		items[i] = w.item
	}
	c.note(items)
	c.call()
	c.mu.Unlock()

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

// note tells the hold whose items are written now. The caller holds mu.
func (c *combiner[I, R]) note(items []*I) {
	if c.patient == nil {
		return
	}
	tasks := make([]a2a.ID, 0, len(items))
	for _, item := range items {
		if id := c.task(item); id != (a2a.ID{}) {
			tasks = append(tasks, id)
		}
	}
	c.hold.wrote(tasks)
}

// safely is flush with a panic turned into an error. Otherwise the callers that wait for this one would wait for ever.
func (c *combiner[I, R]) safely(ctx context.Context, items []*I) (results []R, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.log.ErrorContext(ctx, "write panicked",
				"items", len(items), "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			results, err = nil, fmt.Errorf("write panicked: %v", v)
		}
	}()
	return c.flush(ctx, items)
}
