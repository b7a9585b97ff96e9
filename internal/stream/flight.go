package stream

import (
	"context"

	"github.com/a2ad/a2ad/internal/a2a"
)

// spot is a position in a log.
type spot struct {
	task  a2a.ID
	after int64
}

// flight is a read of a page that all cursors at one spot share. It lasts until it has read, or until the last of them
// is closed: not only for one Next, so it keeps its place among the reads that wait for their turn.
type flight struct {
	at      spot
	cancel  context.CancelFunc
	cursors int           // guarded by Follower.mu; that wait for it
	done    chan struct{} // closed when the read has ended; then the rest is set

	items []*Item
	more  bool // there may be further ones
	err   error
}

// read reads a page for a cursor that is not at the tail. Many streams that come back at once read one after the other,
// however long that takes.
func (c *Cursor) read(ctx context.Context) (items []*Item, more bool, err error) {
	at := spot{c.task, c.after}
	if c.flight != nil && c.flight.at != at { // it has got further without it
		c.bail()
	}
	if c.flight == nil {
		c.flight = c.f.board(ctx, at, c.contextID)
	}
	select {
	case <-c.flight.done:
		r := c.flight
		c.flight = nil
		return r.items, r.more, r.err
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
}

// board returns the read at a spot, which it begins if there is none.
func (f *Follower) board(ctx context.Context, at spot, contextID string) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.flights[at]
	if r == nil {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r = &flight{at: at, cancel: cancel, done: make(chan struct{})}
		f.flights[at] = r
		go f.fly(own, r, contextID)
	}
	r.cursors++
	return r
}

// fly carries out a read.
func (f *Follower) fly(ctx context.Context, r *flight, contextID string) {
	defer close(r.done)
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.land(r)
	}()
	if r.err = f.reads.Acquire(ctx, 1); r.err != nil {
		return
	}
	defer f.reads.Release(1)
	var entries []a2a.Entry
	entries, r.more, r.err = f.log.EventPage(ctx, r.at.task, r.at.after, pageSize, pageBytes)
	if r.err == nil && len(entries) > 0 && entries[0].Seq > r.at.after+1 {
		r.err = ErrGone
	}
	r.items = newItems(entries, contextID)
}

// bail makes a cursor no longer wait for its read.
func (c *Cursor) bail() {
	r := c.flight
	if c.flight = nil; r == nil {
		return
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if r.cursors--; r.cursors == 0 {
		c.f.land(r)
	}
}

// land keeps cursors from joining a read that has ended, or ends now. The caller holds f.mu.
func (f *Follower) land(r *flight) {
	r.cancel()
	if f.flights[r.at] == r {
		delete(f.flights, r.at)
	}
}
