package stream

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
)

// topic is the tail of one log that somebody follows: its newest events. A goroutine reads more
// when there may be some, and is gone again when it has them: most logs are still, most of the time.
type topic struct {
	f         *Follower
	task      a2a.ID
	contextID string
	refs      int             // guarded by f.mu
	ctx       context.Context // ends when the last cursor has left
	cancel    context.CancelFunc
	unwatch   func() // ends the wakes

	mu      sync.Mutex
	ring    []*Item       // guarded by mu; consecutive, the newest at the end
	tail    int64         // guarded by mu; seq of the newest event known
	changed chan struct{} // guarded by mu; closed and replaced when the tail moves
	made    bool          // guarded by mu; there is, or was, the task
	gone    bool          // guarded by mu; what comes behind the tail was removed
	looking bool          // guarded by mu; there is a goroutine that reads
	again   bool          // guarded by mu; there may be news since it began to
	left    bool          // guarded by mu; the last cursor has
	kept    int           // guarded by mu; bytes of ring
}

func newTopic(f *Follower, task a2a.ID, contextID string, after int64, made bool) *topic {
	t := &topic{f: f, task: task, contextID: contextID, tail: after, made: made, changed: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// look has the log read now, or once more where that is going on. It does not block.
func (t *topic) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.left:
	case t.looking:
		t.again = true
	default:
		t.looking = true
		t.f.wg.Go(t.catchUp)
	}
}

// catchUp reads until there is nothing more, or the last cursor has left.
func (t *topic) catchUp() {
	for failures := 0; ; {
		t.mu.Lock()
		t.again = false
		t.mu.Unlock()
		more, err := t.read()
		switch {
		case t.ctx.Err() != nil:
			return
		case err != nil:
			failures++
			t.f.logger.WarnContext(t.ctx, "read of a followed task", "task_id", t.task, "err", err)
			if !t.pause(retryPolicy.Delay(failures, nil)) {
				return
			}
		case more:
			failures = 0
		default:
			failures = 0
			if t.rest() {
				return
			}
		}
	}
}

// rest reports whether there is nothing to look for: then the goroutine ends.
func (t *topic) rest() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looking = t.again
	return !t.looking
}

// leave ends the topic.
func (t *topic) leave() {
	t.cancel()
	t.unwatch()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = true
	t.f.rings.Add(-int64(t.kept))
	t.kept, t.ring = 0, nil
}

var retryPolicy = backoff.Policy{Base: 50 * time.Millisecond, Max: 2 * time.Second}

func (t *topic) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// read takes a page behind the tail; more says that there may be another one.
func (t *topic) read() (more bool, err error) {
	if err := t.f.looks.Acquire(t.ctx, 1); err != nil {
		return false, err
	}
	defer t.f.looks.Release(1)
	tail := t.last()
	entries, more, err := t.f.log.EventPage(t.ctx, t.task, tail, pageSize, pageBytes)
	if err != nil {
		return false, err
	}
	if len(entries) > 0 && entries[0].Seq > tail+1 {
		t.vanish()
		return false, nil
	}
	t.offer(entries)
	return more, nil
}

// vanish ends cursors that have read what is known.
func (t *topic) vanish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *topic) exists() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made = true
}

func (t *topic) last() int64 {
	tail, _ := t.known()
	return tail
}

// known returns the seq of the newest event known, and whether there is, or was, the task.
func (t *topic) known() (tail int64, made bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tail, t.made
}

// offer adds the events that follow the tail. It reports false if it cannot tell that the
// topic has them all now.
func (t *topic) offer(entries []a2a.Entry) bool {
	if len(entries) == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left {
		return true
	}
	t.made = true
	for len(entries) > 0 && entries[0].Seq <= t.tail {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return true
	}
	if entries[0].Seq != t.tail+1 {
		return false
	}
	t.ring = append(t.ring, newItems(entries, t.contextID)...)
	t.trim()
	t.tail = entries[len(entries)-1].Seq
	close(t.changed)
	t.changed = make(chan struct{})
	return true
}

// trim keeps the newest items: few, not large together, and hardly any where all topics hold too much.
// What is not kept is read from the log by who needs it.
func (t *topic) trim() {
	keep, size := newest(t.ring, ringBytes)
	t.f.rings.Add(int64(size - t.kept))
	t.kept = size
	if limit := t.f.ringsMost.Load(); limit > 0 && t.f.rings.Load() > limit {
		keep, size = newest(t.ring, leastRing)
		t.f.rings.Add(int64(size - t.kept))
		t.kept = size
	}
	if keep < len(t.ring) {
		t.ring = append(t.ring[:0:0], t.ring[len(t.ring)-keep:]...)
	}
}

// newest returns how many items from the end of ring are few and have no more than limit bytes together.
func newest(ring []*Item, limit int) (n, size int) {
	for n < len(ring) && n < ringItems {
		more := ring[len(ring)-1-n].Size()
		if size+more > limit {
			break
		}
		size += more
		n++
	}
	return n, size
}

// after returns the known events behind seq, or whether they must be read from the log, or can come
// no more, and what to wait for if there are none.
func (t *topic) after(seq int64) (items []*Item, behind, gone bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq >= t.tail {
		return nil, false, t.gone, t.changed
	}
	first := t.tail - int64(len(t.ring)) + 1
	if seq+1 < first {
		return nil, true, t.gone, t.changed
	}
	return t.ring[seq+1-first : len(t.ring) : len(t.ring)], false, t.gone, t.changed
}
