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

// This file is what a call comes and goes by. gRPC's handler for HTTP reads ahead of what a method takes, keeps all of it,
// and neither bounds its writes nor tells of their end. So what it reads from and writes to are ours: nothing is read
// before it is known whose memory it takes, every piece is drawn before it is read, and every message has a deadline by
// which it must have been written.

// callWire is both ways of one call.
type callWire struct {
	in  *callBody
	out *callWriter
}

type wireKey struct{}

func wireOf(ctx context.Context) callWire {
	w, _ := ctx.Value(wireKey{}).(callWire)
	return w
}

// messagePrefix is what stands before each message: whether it is compressed, and its length.
const messagePrefix = 5

var (
	errCallTooLarge = errors.New("the call brings more than one request may hold")
	errCallOver     = errors.New("the call takes no more")
)

// callBody is what a client sends in a call: one message, or several in calls that are not of ours. gRPC takes each piece
// into a buffer of the same size, whatever has come, so a piece is passed on when it is full or the message complete.
type callBody struct {
	io.ReadCloser
	most    int64 // bytes that the message may have; of several messages, bytes of the buffers that take them
	several bool

	ctx    context.Context //nolint:containedctx // ends with the body; Read, an io.Reader, has no parameter for it
	cancel context.CancelCauseFunc
	paid   chan struct{} // closed when lease is set
	lease  *budget.Lease // set once, before paid is closed
	evict  func()        // makes reads fail; the server's own, which may not be used after Close

	ending sync.Mutex // held for moments, and not while the budget is called
	closed bool       // guarded by ending

	mu      sync.Mutex
	over    bool  // guarded by mu; nothing is drawn any more
	refused error // guarded by mu; a draw failed

	// Of the goroutine that reads.
	head [messagePrefix]byte
	seen int   // bytes of head
	left int64 // of the message, once head is known
	end  bool  // the message is complete
}

func newCallBody(r *http.Request, most int64, evict func()) *callBody {
	ctx, cancel := context.WithCancelCause(r.Context())
	return &callBody{ReadCloser: r.Body, most: most, evict: evict, ctx: ctx, cancel: cancel, paid: make(chan struct{})}
}

// pay has the body read, into what the lease holds. It is called once.
func (b *callBody) pay(lease *budget.Lease) {
	b.lease = lease
	close(b.paid)
}

// Read draws for p and reads.
func (b *callBody) Read(p []byte) (int, error) {
	select {
	case <-b.paid:
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	}
	if b.end {
		return 0, io.EOF // what a client sends after its message stays with its connection, whose window bounds it
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

// fill reads until p is full or the message complete.
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
		b.end = b.seen == messagePrefix && (b.left == 0 || b.left > b.most) // what is too large is refused by its head
	}
	return n, err
}

// draw takes what a piece of n bytes needs: of the only message of a call each piece is copied once.
func (b *callBody) draw(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
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

// finish ends the draws, so that the lease is the caller's alone, and returns why one failed.
func (b *callBody) finish() error {
	b.cancel(errCallOver) // of a draw that waits
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return b.refused
}

// makeRoom makes reads fail, unless the body is closed: the request ends then, which a call whose client is gone outlives.
func (b *callBody) makeRoom() {
	b.ending.Lock()
	defer b.ending.Unlock()
	if !b.closed {
		b.evict()
	}
}

// Close ends the body, and reads that wait to be paid for.
func (b *callBody) Close() error {
	b.cancel(errCallOver)
	b.ending.Lock()
	b.closed = true
	b.ending.Unlock()
	return b.ReadCloser.Close()
}

// callWriter ends a call whose client does not read, be it one answer or a stream: what is written holds memory until
// the client has taken it.
type callWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration // for a message

	// Of whoever sends, and, while gRPC has a message, of the goroutine that writes it.
	deadline time.Time     // of the message that is being written; zero: none
	slow     bool          // a client did not read in time
	written  chan struct{} // closed when the next message has been written, or cannot be; nil: nobody waits
}

// await says how long the next message may take, and returns what is closed when gRPC is done with it.
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
