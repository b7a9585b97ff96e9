// Package transcode carries requests and answers between the messages of gRPC and the ProtoJSON
// that codecs read and write, so that gRPC needs no codec of its own.
//
// It promises that a request means what the same request in JSON would, and that its JSON has
// one spelling: equal requests have equal bytes, whatever program made them. It knows neither
// connections nor errors of the protocol beyond malformed params. What protobuf cannot hold is
// lost here and nowhere else: numbers of free-form values are doubles.
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

// Service is one generation as gRPC knows it.
type Service struct {
	Name    string // with its package
	File    string // that defines it
	Version string // of the codec that speaks the generation
	Methods []Method

	items *Method // one that answers with many messages: they all send the same ones
}

// Method is one RPC of a service.
type Method struct {
	Name   string // on gRPC
	Codec  string // as the codec calls it
	Stream bool   // answers with many messages

	in, out protoreflect.MessageType
	result  func([]byte) []byte // what the codec writes, as ProtoJSON; nil: it is that
}

// Request returns an empty request.
func (m *Method) Request() proto.Message { return m.in.New().Interface() }

// Answer returns an empty answer.
func (m *Method) Answer() proto.Message { return m.out.New().Interface() }

// Params returns a request as JSON for the codec, without white space, of which protojson
// writes more or less by chance. The error is an *a2a.Error: JSON has no form for some value.
func (m *Method) Params(req proto.Message) ([]byte, error) {
	if list, ok := req.(*apb1.ListTasksRequest); ok && list.GetPageSize() == 0 {
		list.PageSize = nil // the official Go client cannot leave it out
	}
	text, err := protojson.Marshal(req)
	if err != nil {
		return nil, a2a.Error{
			Code: a2a.CodeInvalidParams, Message: "the request has a value without a kind, a number that is not finite, or a time out of range",
		}.With(err)
	}
	var b bytes.Buffer
	b.Grow(len(text))
	err = json.Compact(&b, text)
	return b.Bytes(), err
}

// Result returns what the codec wrote, be it an answer or an item of a stream, as a message.
// A number too large for a double comes as the text of its digits.
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

// Pack returns an item of a stream, as the codec wrote it, as the bytes of a message. It is nil
// if the item has no form in protobuf.
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

// methods03 has the names of the codec for those of the service.
var methods03 = map[string]string{
	"SendMessage": "message/send", "SendStreamingMessage": "message/stream", "GetTask": "tasks/get", "ListTasks": "tasks/list",
	"CancelTask": "tasks/cancel", "TaskSubscription": "tasks/resubscribe", "GetAgentCard": "agent/getAuthenticatedExtendedCard",
	"CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set", "GetTaskPushNotificationConfig": "tasks/pushNotificationConfig/get",
	"ListTaskPushNotificationConfig": "tasks/pushNotificationConfig/list", "DeleteTaskPushNotificationConfig": "tasks/pushNotificationConfig/delete",
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
		m := Method{Name: string(rpc.Name()), Stream: rpc.IsStreamingServer(), in: typeOf(rpc.Input()), out: typeOf(rpc.Output())}
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
		panic(err) // linked in with the service: cannot be
	}
	return t
}

// quoteLargeNumbers returns a JSON document in which numbers that are too large for a double
// are strings: protobuf has no other place for them.
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
