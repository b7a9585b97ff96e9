// Package transcode converts requests and answers between gRPC messages and the ProtoJSON of
// codecs, so that gRPC needs no codec of its own.
//
// A request means the same as the same request in JSON, and its JSON has one spelling: equal
// requests have equal bytes. The package knows no connections, and of the protocol's errors only
// malformed params. What protobuf cannot hold is lost only here: numbers in free-form values become
// doubles.
package transcode

import (
	"bytes"
	"encoding/json"
	"strconv"

	apb03 "github.com/a2aproject/a2a-go/a2apb"
	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Service is the gRPC service of one generation.
type Service struct {
	Name    string // with its package
	File    string // that defines the service
	Version string // of the codec for this generation
	Methods []Method

	items *Method // any method that answers with a stream: all send the same items
}

// Method is one RPC of a service.
type Method struct {
	Name   string // in gRPC
	Codec  string // in the codec
	Stream bool   // answers with many messages

	in, out protoreflect.MessageType
	result  func([]byte) []byte // turns the codec's output into ProtoJSON; nil: it is ProtoJSON
}

// Request returns an empty request.
func (m *Method) Request() proto.Message { return m.in.New().Interface() }

// Answer returns an empty answer.
func (m *Method) Answer() proto.Message { return m.out.New().Interface() }

// Params returns a request as JSON for the codec. It removes the white space, which protojson
// varies at random. The error is an *a2a.Error: some value has no JSON form.
func (m *Method) Params(req proto.Message) ([]byte, error) {
	if list, ok := req.(*apb1.ListTasksRequest); ok && list.GetPageSize() == 0 {
		list.PageSize = nil // the official Go client cannot leave it out
	}
	text, err := protojson.Marshal(req)
	if err != nil {
		return nil, a2a.Error{
			Code:    a2a.CodeInvalidParams,
			Message: "the request has a value without a kind, a number that is not finite, or a time out of range",
		}.With(err)
	}
	var b bytes.Buffer
	b.Grow(len(text))
	err = json.Compact(&b, text)
	return b.Bytes(), err
}

// Result returns the codec's output, an answer or an item of a stream, as a message. A number too
// large for a double becomes a string of its digits.
func (m *Method) Result(result []byte) (proto.Message, error) {
	if m.result != nil {
		result = m.result(result)
	}
	out := m.Answer()
	if err := unmarshal.Unmarshal(result, out); err == nil {
		return out, nil
	}
	proto.Reset(out)
	return out, unmarshal.Unmarshal(quoteLargeNumbers(result), out)
}

// Pack returns an item of a stream in the codec's form as the bytes of a message, or nil if
// protobuf has no form for it.
func (s *Service) Pack(item []byte) []byte {
	m, err := s.items.Result(item)
	if err != nil {
		return nil
	}
	packed, err := proto.Marshal(m)
	if err != nil {
		return nil
	}
	return packed
}

var unmarshal = protojson.UnmarshalOptions{DiscardUnknown: true}

// V1 returns the service of 1.0.
func V1() *Service {
	return service(apb1.File_a2av1_proto, "1.0", func(m *Method) { m.Codec = m.Name })
}

// methods03 maps the methods of the service to those of the codec.
var methods03 = map[string]string{
	"SendMessage": "message/send", "SendStreamingMessage": "message/stream", "GetTask": "tasks/get",
	"ListTasks":  "tasks/list",
	"CancelTask": "tasks/cancel", "TaskSubscription": "tasks/resubscribe",
	"GetAgentCard":                     "agent/getAuthenticatedExtendedCard",
	"CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set",
	"GetTaskPushNotificationConfig":    "tasks/pushNotificationConfig/get",
	"ListTaskPushNotificationConfig":   "tasks/pushNotificationConfig/list",
	"DeleteTaskPushNotificationConfig": "tasks/pushNotificationConfig/delete",
}

// V03 returns the service of 0.3, for the codec v03.Proto with Parts.
func V03() *Service {
	return service(apb03.File_a2a_proto, "0.3", func(m *Method) {
		if m.Codec = methods03[m.Name]; m.Name == "GetAgentCard" {
			m.result = card
		}
	})
}

// service reads a service from its definition.
func service(file protoreflect.FileDescriptor, version string, fill func(*Method)) *Service {
	d := file.Services().Get(0)
	s := &Service{Name: string(d.FullName()), File: file.Path(), Version: version}
	for i := range d.Methods().Len() {
		rpc := d.Methods().Get(i)
		m := Method{Name: string(rpc.Name()), Stream: rpc.IsStreamingServer(), in: typeOf(rpc.Input()),
			out: typeOf(rpc.Output())}
		fill(&m)
		if s.Methods = append(s.Methods, m); m.Stream {
			s.items = &m
		}
	}
	return s
}

func typeOf(d protoreflect.MessageDescriptor) protoreflect.MessageType {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // linked in with the service, so it cannot fail
	}
	return t
}

// quoteLargeNumbers turns numbers that are too large for a double into strings, because protobuf
// cannot hold them.
func quoteLargeNumbers(v []byte) []byte {
	out := make([]byte, 0, len(v)+16)
	for i := 0; i < len(v); {
		end := i + 1
		switch b := v[i]; {
		case b == '"':
			for v[end] != '"' {
				if v[end] == '\\' {
					end++
				}
				end++
			}
			end++
		case b == '-', b >= '0' && b <= '9':
			for end < len(v) && bytes.IndexByte([]byte("+-.eE0123456789"), v[end]) >= 0 {
				end++
			}
			if _, err := strconv.ParseFloat(string(v[i:end]), 64); err != nil {
				out = append(append(append(out, '"'), v[i:end]...), '"')
				i = end
				continue
			}
		}
		out = append(out, v[i:end]...)
		i = end
	}
	return out
}
