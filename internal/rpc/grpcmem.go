package rpc

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/budget"
)

// This file is how requests and answers over gRPC draw from the memory budget. gRPC says neither how large a
// request is that is on its way nor how much of it has come, and an answer is with its transport until the client
// has taken it.

const (
	// grpcShare is how many times what is read an answer takes: ProtoJSON, a message, and its bytes, one made of the other.
	grpcShare = 4
	// promptly is how long a request may take that draws nothing but what a client may send without being asked.
	promptly = 20 * time.Millisecond
)

var errStalled = errors.New("the request did not come in time")

// arrive reads the request. What is not there promptly draws as much as it may grow to, and may be evicted.
func (f *grpcFront) arrive(ctx context.Context, read func(any) error, body *unread) error {
	lease, most := f.c.mem, f.c.s.cfg.MaxBody
	if err := lease.Arrive(ctx, min(budget.Small/2, most)); err != nil {
		return err
	}
	done := make(chan error, 1)
	come := new(unread)
	f.b.senders.Go(func() { done <- read(come) }) // ends with the call, at the latest
	err := wait(ctx, done, promptly)
	if errors.Is(err, errStalled) {
		evicted, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		lease.Watch(func() { stop(errStalled) })
		if err = lease.Arrive(ctx, most); err == nil {
			err = wait(evicted, done, f.c.s.cfg.ReadTimeout)
		}
	}
	if gone := lease.Arrived(); gone != nil {
		return gone
	}
	var refused *a2a.Error
	switch {
	case err == nil:
		*body = *come
		lease.Settle(int64(len(*body)))
		return nil
	case errors.As(err, &refused):
		return err
	}
	return a2a.Error{Code: a2a.CodeTooLarge, Message: "the request could not be read"}.With(err) // gRPC has told the client already, if it can
}

// wait returns what comes, or errStalled after a time.
func wait(ctx context.Context, done <-chan error, limit time.Duration) error {
	select {
	case err := <-done:
		return err
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return errStalled
	}
}

// deliver sends the only answer of a call. The lease holds it until the transport has let go of it, be it after the call.
func (f *grpcFront) deliver(out proto.Message) error {
	data, err := proto.Marshal(out)
	if err != nil {
		return err
	}
	if f.c.mem == nil || mem.IsBelowBufferPoolingThreshold(cap(data)) {
		return f.stream.SendMsg(packed(data))
	}
	sent := &sent{lease: f.c.mem}
	f.c.held = sent
	if err := f.stream.SendMsg(held{data, sent}); err != nil {
		f.c.held = nil
		return err
	}
	return nil
}

// held is an answer of which it is to be known when it has been sent.
type held struct {
	data []byte
	sent *sent
}

// sent gives a lease back once an answer has been sent and its call is over, whichever comes last. It is the pool
// of the answer's buffer: that is whom gRPC tells.
type sent struct {
	lease *budget.Lease
	mu    sync.Mutex
	first bool // guarded by mu; one of the two has come
}

// Get returns a new buffer.
func (*sent) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put notes that nothing uses the buffer any more.
func (s *sent) Put(*[]byte) { s.over() }

func (s *sent) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first {
		s.lease.Release()
	}
	s.first = true
}
