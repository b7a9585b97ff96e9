package rpc

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/transcode"
)

// grpcFront answers one call.
type grpcFront struct {
	b      *GRPC
	c      *call
	m      *transcode.Method
	stream grpc.ServerStream

	err error // a status; nil if the call was answered
}

// serve reads the operation of a call and carries it out.
func (f *grpcFront) serve(ctx context.Context, rec *record, gen *generation, header http.Header, read func(any) error) {
	f.c = &call{
		s: f.b.s, front: f, rec: rec, agent: f.b.s.root(), gen: gen,
		header: header, reply: http.Header{"X-Request-Id": {rec.id}},
	}
	defer f.c.end()
	if op, err := f.read(ctx, read); err != nil {
		f.c.fail(ctx, err)
	} else {
		f.c.serve(ctx, op)
	}
}

// headerOf returns the metadata of a call as a header with the same names.
func headerOf(ctx context.Context) http.Header {
	md, _ := metadata.FromIncomingContext(ctx)
	h := make(http.Header, len(md))
	for name, values := range md {
		if !strings.HasPrefix(name, ":") && !strings.HasSuffix(name, "-bin") {
			h[http.CanonicalHeaderKey(name)] = values
		}
	}
	return h
}

// requestOf returns an HTTP request with what identifies the client of a call.
func requestOf(ctx context.Context, header http.Header) *http.Request {
	r := &http.Request{Header: header}
	if p, ok := peer.FromContext(ctx); ok {
		if p.Addr != nil {
			r.RemoteAddr = p.Addr.String()
		}
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			r.TLS = &info.State
		}
	}
	return r.WithContext(ctx)
}

func (f *grpcFront) read(ctx context.Context, read func(any) error) (a2a.Op, error) {
	c := f.c
	asked, unspoken := c.s.asked(c.header, "")
	if err := c.signIn(requestOf(ctx, c.header)); err != nil {
		return nil, err
	}
	if unspoken != nil {
		return nil, unspoken
	}
	// The package of the gRPC service says which version the call uses, so no header need.
	if asked != nil && asked.Version() != c.gen.Version() {
		return nil, a2a.Errorf(a2a.CodeVersionNotSupported, "the service is for A2A %s, but the request asks for %s",
			c.gen.Version(), asked.Version())
	}
	var body unread
	c.mem.SetWhole(grpcShare)
	if err := f.arrive(read, &body); err != nil {
		return nil, err
	}
	if err := c.work(ctx, body); err != nil {
		return nil, err
	}
	req := f.m.Request()
	if err := proto.Unmarshal(body, req); err != nil {
		return nil, a2a.Error{Code: a2a.CodeParse,
			Message: "the request is not a valid message for the method"}.With(err)
	}
	params, err := f.m.Params(req)
	if err != nil {
		return nil, err
	}
	if err := rawjson.Check(params, c.s.cfg.MaxDepth); err != nil {
		return nil, a2a.Error{Code: a2a.CodeInvalidParams, Message: "the request is nested too deeply"}.With(err)
	}
	op, err := c.gen.Decode(f.m.Codec, params)
	if err != nil {
		return nil, err
	}
	if name := c.gen.Tenant(params); name != "" {
		err = c.chooseAgent(name)
	}
	return op, err
}

// unread is a request as raw bytes.
type unread []byte

// packed is an encoded message, which streams may share.
type packed []byte

// grpcCodec is the protobuf codec, except that it leaves requests unread and passes packed messages
// through. gRPC itself would answer a malformed request with an internal error.
type grpcCodec struct{ encoding.CodecV2 }

func (c grpcCodec) Marshal(v any) (mem.BufferSlice, error) {
	if body, ok := v.(packed); ok {
		return mem.BufferSlice{mem.SliceBuffer(body)}, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c grpcCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if body, ok := v.(*unread); ok {
		*body = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// reply returns the metadata of the answer.
func (f *grpcFront) reply() metadata.MD {
	md := make(metadata.MD, len(f.c.reply))
	for name, values := range f.c.reply {
		md[strings.ToLower(name)] = values
	}
	return md
}

// answer sends the only message of a call, even if its method could send more.
func (f *grpcFront) answer(result []byte) {
	out, err := f.m.Result(result)
	if err == nil {
		f.stream.SetHeader(f.reply()) //nolint:errcheck // the client disconnected
		err = f.deliver(out)
	}
	if err != nil {
		f.c.fail(f.stream.Context(), err)
	}
}

func (f *grpcFront) fail(e *a2a.Error) {
	if err := f.stream.Context().Err(); err != nil && e.Code == a2a.CodeInternal {
		f.err = status.FromContextError(err).Err() // the client disconnected, or its deadline passed
		return
	}
	reply := f.reply()
	if challenges := reply["www-authenticate"]; challenges != nil { // net/http does not send this header in a trailer
		f.stream.SetHeader(metadata.MD{"www-authenticate": challenges}) //nolint:errcheck // the client disconnected
	}
	f.stream.SetTrailer(reply)
	f.err = statusOf(e, f.c.gen.Version(), f.c.s.cfg.ErrorProfile, f.c.rec.id).Err()
}

func (f *grpcFront) open() (items, error) {
	if err := f.stream.SetHeader(f.reply()); err != nil {
		return nil, err
	}
	return &grpcItems{grpcFront: f, marked: wantsExtension(f.c.header, ResumeExtension)}, nil
}

// grpcItems is a stream of messages.
type grpcItems struct {
	*grpcFront
	marked bool   // the client has activated ResumeExtension
	last   string // id of the newest item
}

// eventIDTrailer is the trailer with the id of the last item sent, for clients that resume.
const eventIDTrailer = "last-event-id"

func (s *grpcItems) item(id string, result []byte) error {
	if len(result) == 0 {
		return errNoMessage
	}
	var out any = packed(result)
	if s.marked {
		m := s.m.Answer()
		if err := proto.Unmarshal(result, m); err != nil {
			return err
		}
		markEvent(m, id)
		out = m
	}
	if err := s.send(out, s.c.s.cfg.SSEWriteTimeout); err != nil {
		return err
	}
	s.last = id
	return nil
}

var errNoMessage = errors.New("a stream item cannot be encoded in protobuf")

// gap does nothing: clients that resume activate our extension, which marks the gap in the task.
func (s *grpcItems) gap() error { return nil }

// ping does nothing: gRPC checks its connections itself.
func (s *grpcItems) ping() error { return nil }

// end tells the client of a stream that ended early that it may come back.
func (s *grpcItems) end(why error) error {
	md := metadata.MD{}
	if s.last != "" {
		md.Set(eventIDTrailer, s.last)
	}
	s.stream.SetTrailer(md)
	var refused *auth.Error
	switch {
	case why == nil:
	case errors.As(why, &refused):
		s.err = statusOf(asRefusal(refused), s.c.gen.Version(), s.c.s.cfg.ErrorProfile, s.c.rec.id).Err()
	case s.stream.Context().Err() != nil:
		s.err = status.FromContextError(s.stream.Context().Err()).Err()
	case errors.Is(why, engine.ErrDraining):
		s.err = interrupted("the server is shutting down", s.c.s.cfg.SSERetry).Err()
	case errors.Is(why, errSlowReader):
		s.err = interrupted("messages were not read for too long", s.c.s.cfg.SSERetry).Err()
	default:
		s.err = interrupted("the stream was interrupted", s.c.s.cfg.SSERetry).Err()
	}
	return nil
}

// markEvent puts the id of an event into the metadata of its item, because a gRPC message has no
// other member for it.
func markEvent(m proto.Message, id string) {
	r := m.ProtoReflect()
	payload := r.WhichOneof(r.Descriptor().Oneofs().ByName("payload"))
	if payload == nil {
		return
	}
	item := r.Mutable(payload).Message()
	md := item.Mutable(item.Descriptor().Fields().ByName("metadata")).Message().Interface().(*structpb.Struct)
	if md.Fields == nil {
		md.Fields = make(map[string]*structpb.Value, 1)
	}
	mark := md.Fields[ResumeExtension].GetStructValue() // set if there is a gap
	if mark == nil {
		mark = &structpb.Struct{Fields: make(map[string]*structpb.Value, 1)}
	}
	mark.Fields["eventId"] = structpb.NewStringValue(id)
	md.Fields[ResumeExtension] = structpb.NewStructValue(mark)
}
