package rpc

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/a2ad/a2ad/internal/a2a"
)

// This file draws memory for gRPC calls: for requests as they arrive (see callBody), and for
// answers and stream items until they have been written.

// grpcShare is how much memory an answer takes, in multiples of what was read for it: ProtoJSON, a
// message and its bytes are each made from the one before.
const grpcShare = 4

// arrive reads the request.
func (f *grpcFront) arrive(read func(any) error, body *unread) error {
	lease, in := f.c.mem, wireOf(f.stream.Context()).in
	in.pay(lease)
	err := read(body)
	refused := in.finish()
	if gone := lease.Arrived(); gone != nil {
		return gone
	}
	switch {
	case refused != nil:
		return refused
	case err != nil:
		// gRPC has told the client already, if it could
		return a2a.Error{Code: a2a.CodeTooLarge, Message: "the request could not be read"}.With(err)
	}
	lease.ShrinkTo(int64(len(*body)))
	return nil
}

// deliver sends the only answer of a call.
func (f *grpcFront) deliver(out proto.Message) error {
	data, err := proto.Marshal(out)
	if err != nil {
		return err
	}
	return f.send(packed(data), f.c.s.cfg.WriteTimeout)
}

var errSlowReader = errors.New("the client reads too slowly")

// send sends a message, and returns once it has been written, because the call holds its memory
// until then. If that takes longer than limit the stream of the call is reset.
func (f *grpcFront) send(m any, limit time.Duration) error {
	out := wireOf(f.stream.Context()).out
	written := out.await(limit)
	if err := f.stream.SendMsg(m); err != nil {
		return err
	}
	<-written
	if out.slow {
		return errSlowReader
	}
	return nil
}
