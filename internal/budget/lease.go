package budget

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// Lease is what one request holds. All of it is for one goroutine at a time, but for Release, which
// may be called while nothing else is. A nil Lease bounds nothing.
type Lease struct {
	b       *Budget
	owner   Owner
	whole   int64    // see SetWhole
	account *account // nil until something is drawn; then set under b.mu or by the only goroutine
	small   int64    // drawn from the part for small draws

	held     int64        // guarded by b.mu; from the rest
	arriving int64        // guarded by b.mu; of held
	evicted  bool         // guarded by b.mu
	onEvict  func()       // guarded by b.mu; must neither block nor call the budget
	wait     *draw        // guarded by b.mu; the draw that waits, if one does
	moved    atomic.Int64 // when bytes came last, in Unix nanoseconds
}

func (l *Lease) movedAt() time.Time { return time.Unix(0, l.moved.Load()) }

// Grow draws n bytes for work. Where there is no room it waits, unless the lease holds bytes for work
// already. Its error is for callers, an *a2a.Error, unless ctx has ended: then it is the cause.
func (l *Lease) Grow(ctx context.Context, n int64) error { return l.draw(ctx, n, false) }

// Arrive draws n bytes for what a client is still sending. The lease may be evicted from then on.
func (l *Lease) Arrive(ctx context.Context, n int64) error { return l.draw(ctx, n, true) }

func (l *Lease) draw(ctx context.Context, n int64, arrival bool) error {
	if l == nil || n <= 0 {
		return nil
	}
	if l.account == nil {
		l.account = l.b.account(l.owner)
	}
	if l.small+n <= Small && l.b.drawSmall(l.account, n) {
		l.small += n
		return nil
	}
	return l.b.drawMain(ctx, l, n, arrival)
}

// Shrink gives n bytes back that are no longer there: those in arrival first, then the small ones,
// then those for work.
func (l *Lease) Shrink(n int64) {
	if l == nil || n <= 0 || l.account == nil {
		return
	}
	b := l.b
	b.mu.Lock()
	part := min(n, l.arriving)
	b.put(l, part, true)
	n -= part
	part = min(n, l.held)
	b.put(l, part, false)
	n -= part
	b.pump()
	b.mu.Unlock()
	if n = min(n, l.small); n > 0 {
		l.small -= n
		l.account.small.Add(-n)
		b.smallUsed.Add(-n)
	}
}

// Arrived says that the body is complete: the lease is evicted no more. Its error is that it was before.
func (l *Lease) Arrived() error {
	if l == nil || l.account == nil {
		return nil
	}
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.evicted {
		return errEvicted
	}
	l.onEvict = nil
	delete(b.arrivals, l)
	return nil
}

// Held returns how many bytes the lease holds.
func (l *Lease) Held() int64 {
	if l == nil {
		return 0
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.held + l.small
}

// Release gives everything back. The lease may be used again.
func (l *Lease) Release() {
	if l == nil || l.account == nil {
		return
	}
	b, a := l.b, l.account
	if l.small > 0 {
		a.small.Add(-l.small)
		b.smallUsed.Add(-l.small)
		l.small = 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l.onEvict = nil
	if l.held > 0 {
		b.put(l, l.arriving, true)
		b.put(l, l.held, false)
		b.pump()
	}
	if a.leases--; a.leases == 0 && len(b.owners) > knownOwners {
		delete(b.owners, a.owner)
	}
	l.account, l.evicted = nil, false
}

// firstRead is what a body is given before anything of it has come.
const firstRead = 4 << 10

// ReadAll reads r to its end into memory that grows with what has come: it is never more than twice
// that, and 4 KiB. hint is how many bytes are said to come, or less than 0. stop is called from another
// goroutine when the body has to make room for others: it must make reads of r fail, without a wait.
func ReadAll(ctx context.Context, l *Lease, r io.Reader, hint int64, stop func()) ([]byte, error) {
	size := int64(firstRead)
	if hint >= 0 {
		size = min(size, hint+1) // one more, to see the end
	}
	if err := l.Arrive(ctx, size); err != nil {
		return nil, err
	}
	l.Watch(stop)
	buf := make([]byte, 0, size)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		if buf = buf[:len(buf)+n]; n > 0 {
			l.Touch()
		}
		switch {
		case errors.Is(err, io.EOF):
			return buf, l.Arrived()
		case err != nil:
			if gone := l.Arrived(); gone != nil {
				return nil, gone
			}
			return nil, err
		}
		if len(buf) < cap(buf) {
			continue
		}
		next := 2 * int64(cap(buf))
		if hint >= int64(len(buf)) {
			next = min(next, hint+1)
		}
		if err := l.Arrive(ctx, next); err != nil {
			return nil, err
		}
		old := int64(cap(buf))
		buf = append(make([]byte, 0, next), buf...)
		l.Shrink(old)
	}
}

// Watch has stop called when what the lease holds in arrival has to make room for others. It must neither block nor
// call the budget.
func (l *Lease) Watch(stop func()) {
	if l == nil {
		return
	}
	l.Touch()
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.onEvict = stop
}

// Touch says that bytes have come: a body that rests may be evicted.
func (l *Lease) Touch() {
	if l != nil {
		l.moved.Store(time.Now().UnixNano())
	}
}

type key struct{}

// With returns a context that carries the lease of a request.
func With(ctx context.Context, l *Lease) context.Context {
	if l == nil {
		return ctx
	}
	return context.WithValue(ctx, key{}, l)
}

// From returns the lease that ctx carries, or nil.
func From(ctx context.Context) *Lease {
	l, _ := ctx.Value(key{}).(*Lease)
	return l
}

// SetWhole says that an answer to the request is made whole, and takes n times what was read for it, be it
// because of its binding. Else it is written in pieces.
func (l *Lease) SetWhole(n int64) {
	if l != nil {
		l.whole = n
	}
}

// Whole returns what SetWhole was told.
func (l *Lease) Whole() int64 {
	if l == nil {
		return 0
	}
	return l.whole
}

// ShrinkTo gives back what the lease holds beyond n bytes.
func (l *Lease) ShrinkTo(n int64) { l.Shrink(l.Held() - n) }

// Most returns the most that Grow could ever draw; 0 for a nil lease.
func (l *Lease) Most() int64 {
	if l == nil {
		return 0
	}
	return l.b.Share()
}
