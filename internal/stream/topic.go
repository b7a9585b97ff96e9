package stream

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
)

// topic is the tail of one log that somebody follows: its newest events, and the goroutine
// that looks for more.
type topic struct {
	f         *Follower
	task      a2a.ID
	contextID string
	refs      int             // guarded by f.mu
	ctx       context.Context // ends when the last cursor has left
	cancel    context.CancelFunc
	kick      chan struct{} // capacity 1: look now

	mu      sync.Mutex
	ring    []*Item       // guarded by mu; consecutive, the newest at the end
	tail    int64         // guarded by mu; seq of the newest event known
	changed chan struct{} // guarded by mu; closed and replaced when the tail moves
}

func newTopic(f *Follower, task a2a.ID, contextID string, after int64) *topic {
	t := &topic{f: f, task: task, contextID: contextID, tail: after, kick: make(chan struct{}, 1), changed: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// run looks at the log whenever there may be news, until the last cursor has left.
func (t *topic) run(fresh bool, wake <-chan struct{}) {
	for failures := 0; ; {
		if !fresh {
			more, err := t.read()
			if t.ctx.Err() != nil {
				return
			}
			if err != nil {
				failures++
				t.f.logger.WarnContext(t.ctx, "read of a followed task", "task_id", t.task, "err", err)
				if !t.pause(retryPolicy.Delay(failures, nil)) {
					return
				}
				continue
			}
			failures = 0
			if more {
				continue
			}
		}
		fresh = false
		select {
		case <-wake:
		case <-t.kick:
		case <-t.ctx.Done():
			return
		}
	}
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
	entries, err := t.f.log.EventsAfter(t.ctx, t.task, t.last(), pageSize)
	if err != nil {
		return false, err
	}
	t.offer(entries)
	return len(entries) == pageSize, nil
}

func (t *topic) last() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tail
}

func (t *topic) look() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// offer adds the events that follow the tail. It reports false if it cannot tell that the
// topic has them all now.
func (t *topic) offer(entries []a2a.Entry) bool {
	if len(entries) == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
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
	if keep := newest(t.ring); keep < len(t.ring) {
		t.ring = append(t.ring[:0:0], t.ring[len(t.ring)-keep:]...)
	}
	t.tail = entries[len(entries)-1].Seq
	close(t.changed)
	t.changed = make(chan struct{})
	return true
}

// newest returns how many items from the end of ring are worth keeping: few, and not large
// together, but the last one in any case.
func newest(ring []*Item) int {
	n, bytes := 0, 0
	for n < len(ring) && n < ringItems {
		if bytes += ring[len(ring)-1-n].Size(); bytes > ringBytes && n > 0 {
			break
		}
		n++
	}
	return n
}

// after returns the known events behind seq, or whether they must be read from the log, and
// what to wait for if there are none.
func (t *topic) after(seq int64) (items []*Item, behind bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq >= t.tail {
		return nil, false, t.changed
	}
	first := t.tail - int64(len(t.ring)) + 1
	if seq+1 < first {
		return nil, true, t.changed
	}
	return t.ring[seq+1-first : len(t.ring) : len(t.ring)], false, t.changed
}
