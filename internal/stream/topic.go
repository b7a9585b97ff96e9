package stream

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
)

// topic is the tail of one followed log: its newest events. A goroutine reads more when there may be some, and ends
// when it has them, because most logs do not change most of the time.
type topic struct {
	f         *Follower
	task      a2a.ID
	contextID string
	refs      int             // guarded by f.mu; open cursors
	ctx       context.Context //nolint:containedctx // ends with the last cursor; wake-ups, which start reads, have none
	cancel    context.CancelFunc
	unwatch   func() // ends the wake-ups

	mu      sync.Mutex
	ring    []*Item       // guarded by mu; consecutive, the newest at the end
	tail    int64         // guarded by mu; seq of the newest event known
	changed chan struct{} // guarded by mu; closed and replaced when the tail moves
	made    bool          // guarded by mu; the task exists, or existed
	gone    bool          // guarded by mu; the events after the tail were removed
	reading bool          // guarded by mu; a goroutine reads
	again   bool          // guarded by mu; there may be new events since its read began
	closed  bool          // guarded by mu; the last cursor is closed
	kept    int           // guarded by mu; bytes of ring
}

func newTopic(f *Follower, task a2a.ID, contextID string, after int64, made bool) *topic {
	t := &topic{
		f: f, task: task, contextID: contextID, tail: after, made: made, changed: make(chan struct{}),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// wake makes the log be read now, or once more if a read is in progress. It does not block.
func (t *topic) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
	case t.reading:
		t.again = true
	default:
		t.reading = true
		t.f.wg.Go(t.catchUp)
	}
}

// catchUp reads until there is nothing more, or the last cursor is closed.
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
			t.f.logger.WarnContext(t.ctx, "read a followed task", "task_id", t.task, "err", err)
			if !t.pause(retryPolicy.Delay(failures, nil)) {
				return
			}
		case more:
			failures = 0
		default:
			failures = 0
			if t.caughtUp() {
				return
			}
		}
	}
}

// caughtUp reports whether no wake-up came since the last read began. Then the goroutine ends.
func (t *topic) caughtUp() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading = t.again
	return !t.reading
}

// close ends the topic.
func (t *topic) close() {
	t.cancel()
	t.unwatch()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
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

// read reads a page after the tail; more says that there may be another one.
func (t *topic) read() (more bool, err error) {
	if err := t.f.topical.Acquire(t.ctx, 1); err != nil {
		return false, err
	}
	defer t.f.topical.Release(1)
	tail := t.last()
	entries, more, err := t.f.log.EventPage(t.ctx, t.task, tail, pageSize, pageBytes)
	if err != nil {
		return false, err
	}
	if len(entries) > 0 && entries[0].Seq > tail+1 {
		t.markGone()
		return false, nil
	}
	t.offer(entries)
	return more, nil
}

// markGone ends cursors that have read all known events.
func (t *topic) markGone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *topic) markMade() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made = true
}

func (t *topic) last() int64 {
	tail, _ := t.known()
	return tail
}

// known returns the seq of the newest known event, and whether the task exists or existed.
func (t *topic) known() (tail int64, made bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tail, t.made
}

// offer adds the events that follow the tail. It returns false if the topic may not have all of them now.
func (t *topic) offer(entries []a2a.Entry) bool {
	if len(entries) == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
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

// trim keeps the newest items, within limits, and hardly any while all topics together keep too much. Cursors read the
// others from the log.
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

// newest returns how many items from the end of ring are within the limits of items and bytes, and their size.
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

// after returns the known events after seq. Without any, mustRead says that they must be read from
// the log, and gone that no further ones will come. changed is closed when there are more.
func (t *topic) after(seq int64) (items []*Item, mustRead, gone bool, changed <-chan struct{}) {
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
