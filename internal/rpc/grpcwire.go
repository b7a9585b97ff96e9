package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/budget"
)

// This file controls how a call reads and writes. gRPC's HTTP handler reads ahead of what a method
// needs and keeps all of it. It neither limits its writes nor reports when they are done. So the
// server supplies its own body and writer. They read nothing before it is known whose memory it
// takes. Every piece draws memory before it is read, and every message has a write deadline.

// callWire is the body and the writer of one call.
type callWire struct {
	in  *callBody
	out *callWriter
}

type wireKey struct{}

func wireOf(ctx context.Context) callWire {
	w, _ := ctx.Value(wireKey{}).(callWire)
	return w
}

// messagePrefix is the size of the header of each message: a compression flag and a length.
const messagePrefix = 5

var (
	errCallTooLarge = errors.New("the call sends more than one request may hold")
	errCallOver     = errors.New("the call reads no more")
)

// callBody is the body of a call: one message, or several in calls of other services. gRPC
// allocates a buffer for each piece, whatever its size. So a piece is passed on only when it is
// full or the message is complete.
type callBody struct {
	io.ReadCloser
	most    int64 // size limit of the message; for several messages, of all buffers together
	several bool

	ctx    context.Context //nolint:containedctx // ends with the body; Read, an io.Reader, has no parameter for it
	cancel context.CancelCauseFunc
	paid   chan struct{} // closed when lease is set
	lease  *budget.Lease // set once, before paid is closed
	evict  func()        // makes reads fail; belongs to the server, and must not be called after Close

	ending sync.Mutex // held only briefly, and never during a call of the budget
	closed bool       // guarded by ending

	mu      sync.Mutex
	ended   bool  // guarded by mu; no more memory may be drawn
	refused error // guarded by mu; why a draw failed

	// Used by the reading goroutine only.
	head [messagePrefix]byte
	seen int   // bytes of head that were read
	left int64 // bytes of the message to read, once head is complete
	end  bool  // the message is complete
}

func newCallBody(r *http.Request, most int64, evict func()) *callBody {
	ctx, cancel := context.WithCancelCause(r.Context())
	return &callBody{ReadCloser: r.Body, most: most, evict: evict, ctx: ctx, cancel: cancel, paid: make(chan struct{})}
}

// pay allows the body to be read, with memory of the lease. Call it once.
func (b *callBody) pay(lease *budget.Lease) {
	b.lease = lease
	close(b.paid)
}

// Read draws memory for p and then reads.
func (b *callBody) Read(p []byte) (int, error) {
	select {
	case <-b.paid:
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	}
	if b.end {
		return 0, io.EOF // what a client sends after its message stays in the connection, whose window bounds it
	}
	if err := b.draw(int64(len(p))); err != nil {
		return 0, err
	}
	if b.several {
		n, err := b.ReadCloser.Read(p)
		b.lease.Touch()
		return n, err
	}
	return b.fill(p)
}

// fill reads until p is full or the message is complete.
func (b *callBody) fill(p []byte) (n int, err error) {
	for n < len(p) && !b.end && err == nil {
		var m int
		if b.seen < messagePrefix {
			m, err = b.ReadCloser.Read(p[n:min(len(p), n+messagePrefix-b.seen)])
			b.seen += copy(b.head[b.seen:], p[n:n+m])
			b.left = int64(binary.BigEndian.Uint32(b.head[1:]))
		} else {
			m, err = b.ReadCloser.Read(p[n:min(int64(len(p)), int64(n)+b.left)])
			b.left -= int64(m)
		}
		if n += m; m > 0 {
			b.lease.Touch()
		}
		// the header is enough to refuse a message that is too large
		b.end = b.seen == messagePrefix && (b.left == 0 || b.left > b.most)
	}
	return n, err
}

// draw draws memory for a piece of n bytes. gRPC copies each piece of a single message once.
func (b *callBody) draw(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return errCallOver
	}
	if b.several {
		if b.most -= n; b.most < 0 {
			return errCallTooLarge
		}
	} else {
		n *= 2
	}
	if b.refused = b.lease.Arrive(b.ctx, n); b.refused == nil {
		b.lease.Watch(b.makeRoom)
	}
	return b.refused
}

// finish ends the draws, so that only the caller uses the lease from now on. It returns why a draw
// failed.
func (b *callBody) finish() error {
	b.cancel(errCallOver) // wakes a draw that waits
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	return b.refused
}

// makeRoom makes reads fail, unless the body is closed. The request ends at Close, but a call whose
// client disconnected may live longer.
func (b *callBody) makeRoom() {
	b.ending.Lock()
	defer b.ending.Unlock()
	if !b.closed {
		b.evict()
	}
}

// Close ends the body, and reads that wait for pay.
func (b *callBody) Close() error {
	b.cancel(errCallOver)
	b.ending.Lock()
	b.closed = true
	b.ending.Unlock()
	return b.ReadCloser.Close()
}

// callWriter ends a call whose client does not read, whether it sends one answer or a stream: what
// is written holds memory until the client has received it.
type callWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration // how long one message may take

	// Used by the sending goroutine and, while gRPC has a message, by the one that writes it.
	deadline time.Time     // of the message being written; zero: none
	slow     bool          // the client did not read in time
	written  chan struct{} // closed when the next message was written or cannot be; nil: nothing waits for it
}

// await sets how long the next message may take, and returns a channel that is closed when gRPC is
// done with it.
func (w *callWriter) await(limit time.Duration) <-chan struct{} {
	w.limit, w.written = limit, make(chan struct{})
	return w.written
}

func (w *callWriter) Write(p []byte) (int, error) {
	if w.deadline.IsZero() {
		if at := time.Now().Add(w.limit); w.rc.SetWriteDeadline(at) == nil {
			w.deadline = at
		}
	}
	n, err := w.ResponseWriter.Write(p)
	w.note(err)
	return n, err
}

func (w *callWriter) note(err error) {
	if err != nil && !w.deadline.IsZero() && !time.Now().Before(w.deadline) {
		w.slow = true
	}
}

// Flush sends what was written. gRPC calls it after each message.
func (w *callWriter) Flush() {
	err := w.rc.Flush()
	w.note(err)
	if err == nil && !w.deadline.IsZero() && w.rc.SetWriteDeadline(time.Time{}) == nil {
		w.deadline = time.Time{}
	}
	if done := w.written; done != nil {
		w.written = nil
		close(done)
	}
}
