package rpc

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/a2ad/a2ad/internal/a2a"
)

// This file is how requests and answers over gRPC draw from the memory budget: requests as they come (see callBody),
// answers and items of streams until they have been written.

// grpcShare is how many times what is read an answer takes: ProtoJSON, a message, and its bytes, one made of the other.
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
		return a2a.Error{Code: a2a.CodeTooLarge, Message: "the request could not be read"}.With(err) // gRPC has told the client already, if it can
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

// send sends a message and returns when it has been written: until then the call holds it. That takes no longer than
// limit, after which the stream of the call is reset.
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
