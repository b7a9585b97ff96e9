package rpc

import (
	"testing"

	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// TestNoTwoEncodingsShareASlot: no binding sends the encoding that another binding stored for an
// event.
func TestNoTwoEncodingsShareASlot(t *testing.T) {
	t.Parallel()
	_, _, rest, err := v03.Codec{}.REST(&wire.Resource{Action: wire.ActionSend,
		Body: []byte(`{"message":{"role":"user"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	pack := func(item []byte) []byte { return item }
	binding := map[int]string{}
	for name, g := range map[string]*generation{
		"0.3 JSON-RPC": {Codec: v03.Codec{}}, "0.3 REST": {Codec: rest}, "0.3 REST, proto": {Codec: v03.Proto{}},
		"0.3 gRPC": {Codec: v03.Proto{Parts: true}, pack: pack}, "1.0 JSON-RPC and REST": {Codec: v1.Codec{}},
		"1.0 gRPC": {Codec: v1.Codec{}, pack: pack},
	} {
		for _, last := range []bool{false, true} {
			slot := g.slot(last)
			if binding[slot] != "" || slot >= stream.Encodings {
				t.Errorf("%s has slot %d, and so has %q", name, slot, binding[slot])
			}
			binding[slot] = name
		}
	}
}
