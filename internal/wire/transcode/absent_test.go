package transcode

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire"
)

// A field without presence means the same whether it is absent or zero, because protobuf cannot distinguish the
// two. The test removes each such field from each full request. It compares what the codec reads without the
// field with what it reads when JSON contains the zero value.
func TestAbsentMeansTheZeroValue(t *testing.T) {
	t.Parallel()
	tested := 0
	for _, side := range []struct {
		service *Service
		codec   wire.Codec
	}{{V1(), codec1}, {V03(), codec03}, {V03(), v03Strict}} {
		for i := range side.service.Methods {
			m := &side.service.Methods[i]
			for variant := range 3 {
				full := m.Request().ProtoReflect()
				fill(full, m, variant)
				if params, err := m.Params(full.Interface()); err != nil {
					t.Fatalf("%s: %v", m.Name, err)
				} else if _, err := side.codec.Decode(m.Codec, params); err != nil {
					t.Fatalf("%s %s: %v\n%s", side.service.Version, m.Name, err, params)
				}
				zeroes(full, "", func(field string) {
					tested++
					absent, err := m.Params(full.Interface())
					if err != nil {
						t.Fatal(err)
					}
					spelled := spellOut(t, full.Interface())
					if diff := cmp.Diff(meaning(side.codec.Decode(m.Codec, absent)),
						meaning(side.codec.Decode(m.Codec, spelled)), ignoreDigest); diff != "" {
						t.Errorf("%s %s without %s: -absent +zero\n%s\n%s\n%s", side.service.Version, m.Name, field,
							diff, absent, spelled)
					}
				})
			}
		}
	}
	if tested < 100 {
		t.Errorf("only %d fields were tested", tested)
	}
}

var ignoreDigest = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Digest" }, cmp.Ignore())

// meaning returns what a codec reads from a request: an operation, or the code of the error. Empty strings and
// lists count as absent.
func meaning(op a2a.Op, err error) any {
	var e *a2a.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return op
}

// spellOut writes a request with all fields without presence, including zero values.
func spellOut(t *testing.T, req proto.Message) []byte {
	t.Helper()
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fill sets every field of a request. In a oneof it sets only the field with the number variant.
func fill(m protoreflect.Message, rpc *Method, variant int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if of := fd.ContainingOneof(); of != nil && !of.IsSynthetic() &&
			of.Fields().Get(variant%of.Fields().Len()) != fd {
			continue
		}
		switch {
		case fd.IsMap():
		case fd.IsList():
			list := m.Mutable(fd).List()
			if fd.Message() != nil {
				element := list.NewElement()
				fill(element.Message(), rpc, variant)
				list.Append(element)
			} else {
				list.Append(scalar(fd, rpc))
			}
		case fd.Message() == nil:
			m.Set(fd, scalar(fd, rpc))
		case fd.Message().FullName() == "google.protobuf.Value":
			value := m.Mutable(fd).Message()
			value.Set(value.Descriptor().Fields().ByName("bool_value"), protoreflect.ValueOfBool(true))
		case fd.Message().FullName() == "google.protobuf.Struct",
			fd.Message().FullName() == "google.protobuf.Timestamp":
			m.Set(fd, m.NewField(fd))
		default:
			fill(m.Mutable(fd).Message(), rpc, variant)
		}
	}
}

func scalar(fd protoreflect.FieldDescriptor, rpc *Method) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		switch {
		case fd.Name() == "parent", fd.Name() == "name" && fd.Parent() == rpc.in.Descriptor() &&
			rpc.Name != "GetTaskPushNotificationConfig" && rpc.Name != "DeleteTaskPushNotificationConfig":
			return protoreflect.ValueOfString("tasks/x")
		case fd.Name() == "name" && fd.Parent().Name() != "FilePart":
			return protoreflect.ValueOfString("tasks/x/pushNotificationConfigs/x")
		}
		return protoreflect.ValueOfString("x")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("x"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	}
	panic("a request has a field of the kind " + fd.Kind().String())
}

// zeroes clears each field without presence in turn, at any depth, and calls test with its name while it is
// cleared.
func zeroes(m protoreflect.Message, path string, test func(field string)) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		name := path + string(fd.Name())
		if !fd.HasPresence() {
			old := proto.Clone(m.Interface()).ProtoReflect().Get(fd)
			m.Clear(fd)
			test(name)
			m.Set(fd, old)
		}
		switch {
		case fd.Message() == nil, fd.Message().ParentFile().Package() == "google.protobuf", fd.IsMap():
		case fd.IsList():
			zeroes(m.Get(fd).List().Get(0).Message(), name+".", test)
		default:
			zeroes(m.Mutable(fd).Message(), name+".", test)
		}
	}
}
