package budget

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// Lease is what one request holds. Only one goroutine may use it at a time. A nil Lease has no
// limits.
type Lease struct {
	b       *Budget
	owner   Owner
	whole   int64    // see SetWhole
	waits   func()   // see OnWait
	account *account // nil until the first draw; then set under b.mu or by the only goroutine
	small   int64    // drawn from the reserve

	held     int64        // guarded by b.mu; drawn from the rest
	arriving int64        // guarded by b.mu; part of held
	evicted  bool         // guarded by b.mu
	onEvict  func()       // guarded by b.mu; must neither block nor call the budget
	wait     *draw        // guarded by b.mu; the waiting draw, if any
	moved    atomic.Int64 // when bytes last arrived, in Unix nanoseconds
}

func (l *Lease) movedAt() time.Time { return time.Unix(0, l.moved.Load()) }

// Grow draws n bytes for work. If there is no room it waits, unless the lease holds memory for work
// already. Its error is an *a2a.Error for callers or, if ctx has ended, the cause.
func (l *Lease) Grow(ctx context.Context, n int64) error { return l.draw(ctx, n, false) }

// OnWait makes each draw that must wait call f before it does, until the next call of OnWait; f may be nil.
func (l *Lease) OnWait(f func()) {
	if l != nil {
		l.waits = f
	}
}

// Arrive draws n bytes for what a client is still sending. From then on the lease may be evicted.
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

// Shrink gives n bytes back: first those for arriving bytes, then those for work, then the small
// ones.
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

// Arrived says that the body is complete, so the lease is no longer evicted. It returns an error if
// the lease was evicted before.
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

// firstRead is the size of the buffer before anything has arrived.
const firstRead = 4 << 10

// ReadAll reads r to its end. Its memory grows with what has arrived: to at most twice that, and 4
// KiB. hint is the announced size, or negative. ReadAll calls stop from another goroutine when the
// body is evicted: stop must make reads of r fail at once.
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

// Watch sets the function to call when the lease is evicted. It must neither block nor call the
// budget.
func (l *Lease) Watch(stop func()) {
	if l == nil {
		return
	}
	l.Touch()
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.onEvict = stop
}

// Touch says that bytes have arrived: a body without progress may be evicted.
func (l *Lease) Touch() {
	if l != nil {
		l.moved.Store(time.Now().UnixNano())
	}
}

type key struct{}

// With returns a context with the lease of a request.
func With(ctx context.Context, l *Lease) context.Context {
	if l == nil {
		return ctx
	}
	return context.WithValue(ctx, key{}, l)
}

// From returns the lease in ctx, or nil.
func From(ctx context.Context) *Lease {
	l, _ := ctx.Value(key{}).(*Lease)
	return l
}

// SetWhole says that the answer to the request is built whole, and takes n times the memory of what
// was read for it. Otherwise the answer is written in pieces.
func (l *Lease) SetWhole(n int64) {
	if l != nil {
		l.whole = n
	}
}

// Whole returns the value of SetWhole.
func (l *Lease) Whole() int64 {
	if l == nil {
		return 0
	}
	return l.whole
}

// ShrinkTo gives back what the lease holds beyond n bytes.
func (l *Lease) ShrinkTo(n int64) { l.Shrink(l.Held() - n) }

// Most returns the largest possible draw of Grow, or 0 for a nil lease.
func (l *Lease) Most() int64 {
	if l == nil {
		return 0
	}
	return l.b.Share()
}
