// Package tail tells those who follow many tasks which of them have changed.
//
// One goroutine collects the wake-ups of all tasks and reads the tasks that they name, a few times a second and once
// for all followers. The changes go into a ring of bounded size. A follower that falls out of it is told so, and so is
// one for whom changes may be missing. The package keeps nothing while there are no followers.
package tail

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/wake"
)

// Hub delivers wake-ups.
type Hub interface {
	WatchClass(class string, wake func(key string)) (stop func())
}

// Bounds of what is kept.
const (
	kept       = 4096                   // changes by which a follower may lag
	collected  = 8192                   // tasks that have changed and are not read yet
	batch      = 500                    // tasks of one read
	pace       = 200 * time.Millisecond // between two reads
	readWithin = 5 * time.Second
)

// Change is a task that has changed, as it was shortly after.
type Change struct {
	ID     string // names the change for Follow
	Task   operate.FoundTask
	Missed bool // there is no task: changes before this one may be missing
}

// Tail is the changes of all tasks. Use New. Its methods are safe for concurrent use; Run works once.
type Tail struct {
	search func(context.Context, operate.TaskSearch) ([]operate.FoundTask, error)
	hub    Hub
	log    *slog.Logger
	run    string        // part of the ids of changes: those of another process are not known here
	signal chan struct{} // capacity 1; something has changed

	mu        sync.Mutex
	followers int                 // guarded by mu
	pending   map[a2a.ID]struct{} // guarded by mu; tasks that have changed
	missed    bool                // guarded by mu; other tasks have changed, too
	ring      []Change            // guarded by mu; change n is at n % kept
	first     int                 // guarded by mu; number of the oldest change in the ring
	next      int                 // guarded by mu; number of the next change
	grown     chan struct{}       // guarded by mu; closed when there is another change
}

// New returns a Tail, which reads tasks with search.
func New(
	search func(context.Context, operate.TaskSearch) ([]operate.FoundTask, error), hub Hub, log *slog.Logger,
) *Tail {
	return &Tail{
		search: search, hub: hub, log: log, run: db.NewUID().Short(), signal: make(chan struct{}, 1),
		pending: make(map[a2a.ID]struct{}), ring: make([]Change, kept), grown: make(chan struct{}),
	}
}

// Run reads changes until ctx is done.
func (t *Tail) Run(ctx context.Context) error {
	defer t.hub.WatchClass(wake.Tasks, t.note)()
	timer := time.NewTimer(pace)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.signal:
		}
		t.read(ctx)
		timer.Reset(pace)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}

// note notes that the task of a key has changed. An empty key is unknown tasks.
func (t *Tail) note(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.followers == 0 {
		return
	}
	id, err := a2a.ParseID(strings.TrimPrefix(key, wake.Tasks+":"))
	if err != nil || len(t.pending) >= collected {
		t.missed = true
	} else {
		t.pending[id] = struct{}{}
	}
	t.wakeUp()
}

func (t *Tail) wakeUp() {
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// read reads the next tasks that have changed.
func (t *Tail) read(ctx context.Context) {
	ids, missed := t.take()
	var found []operate.FoundTask
	if len(ids) > 0 {
		var err error
		found, err = t.search(ctx, operate.TaskSearch{IDs: ids, Limit: len(ids), Timeout: readWithin})
		if err != nil && ctx.Err() == nil {
			t.log.WarnContext(ctx, "read tasks that have changed", "err", err)
			missed = true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.followers == 0 {
		return
	}
	if missed {
		t.add(Change{Missed: true})
	}
	for i := len(found) - 1; i >= 0; i-- { // the oldest task first
		t.add(Change{Task: found[i]})
	}
	close(t.grown)
	t.grown = make(chan struct{})
}

// take returns the tasks to read now.
func (t *Tail) take() (ids []a2a.ID, missed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.pending {
		if len(ids) == batch {
			t.wakeUp() // for the others
			break
		}
		ids = append(ids, id)
		delete(t.pending, id)
	}
	missed, t.missed = t.missed, false
	return ids, missed
}

// add puts a change into the ring. The caller holds mu.
func (t *Tail) add(c Change) {
	c.ID = t.run + "-" + strconv.Itoa(t.next)
	t.ring[t.next%kept] = c
	t.next++
	t.first = max(t.first, t.next-kept)
}

// Follower receives changes. Close it when done.
type Follower struct {
	tail *Tail
	next int
	gap  bool // the first change says that others may be missing
}

// Follow returns the changes from now on, or those after the change with this id. If these are no longer known, the
// first change says that some may be missing.
func (t *Tail) Follow(after string) *Follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followers++
	f := &Follower{tail: t, next: t.next}
	if after == "" {
		return f
	}
	run, number, _ := strings.Cut(after, "-")
	n, err := strconv.Atoi(number)
	if err != nil || run != t.run || n+1 < t.first || n >= t.next {
		f.gap = true
	} else {
		f.next = n + 1
	}
	return f
}

// Close ends the subscription.
func (f *Follower) Close() {
	t := f.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.followers--; t.followers > 0 {
		return
	}
	// Nothing is collected from now on. A follower that comes back may miss changes: the skipped number says so.
	t.next++
	t.first = t.next
	t.pending, t.missed = make(map[a2a.ID]struct{}), false
	clear(t.ring)
}

// ErrSlow says that a follower has not read for so long that it would miss changes.
var ErrSlow = errors.New("the reader is too slow for the changes of tasks")

// Next waits for changes and returns them, the oldest first. It returns ErrSlow, or the cause of ctx.
func (f *Follower) Next(ctx context.Context) ([]Change, error) {
	t := f.tail
	for {
		t.mu.Lock()
		grown := t.grown
		if f.next < t.first {
			t.mu.Unlock()
			return nil, ErrSlow
		}
		var list []Change
		if f.gap {
			list, f.gap = append(list, Change{Missed: true}), false
		}
		for ; f.next < t.next; f.next++ {
			list = append(list, t.ring[f.next%kept])
		}
		t.mu.Unlock()
		if len(list) > 0 {
			return list, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
