package v1_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

// FuzzSendParams checks that every accepted message can be written, is valid by the schema, and is read back as
// the same message.
func FuzzSendParams(f *testing.F) {
	for _, s := range []string{
		`{"message":` + hello + `}`, fullSend,
		`{"message":{"message_id":"m","role":1,"parts":[{"raw":"-_8","media_type":"a"}]}}`,
		`{"message":{"messageId":"m","role":"ROLE_AGENT",` +
			`"parts":[{"data":null},{"data":[1],"text":null},{"url":"u\n"},{"text":"\ud83d\ude00\u0000"}]}}`,
	} {
		f.Add([]byte(s))
	}
	message := schema(f, "SendMessageResponse")
	f.Fuzz(func(t *testing.T, params []byte) {
		if rawjson.Check(params, 64) == nil {
			checkSend(t, message, rawjson.Trim(params))
		}
	})
}

// TestOddParts is FuzzSendParams with parts built from the words of the protocol, because random bytes rarely
// contain them.
func TestOddParts(t *testing.T) {
	t.Parallel()
	message := schema(t, "SendMessageResponse")
	keys := []string{"kind", "text", "raw", "url", "data", "metadata", "mediaType", "media_type", "filename", "file"}
	words := rapid.SampledFrom([]string{`"text"`, `"QQ=="`, `"-_8"`, `"https://u"`, `null`, `null`, `""`, `{"value":1}`,
		`{"bytes":"QQ"}`, `{ "k" : 1e400}`, `[]`, `0`})
	part := rapid.Custom(func(t *rapid.T) string {
		b := []byte{'{'}
		for i, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 1, 5, rapid.ID).Draw(t, "keys") {
			b = append(rawjson.AppendString(encode.Comma(b, i), key), ':')
			if rapid.IntRange(0, 9).Draw(t, "any value") == 0 {
				b = append(b, a2atest.Value().Draw(t, "value")...)
			} else {
				b = append(b, words.Draw(t, "word")...)
			}
		}
		return string(append(b, '}'))
	})
	tried, accepted := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			tried++
			if checkSend(t, message,
				[]byte(`{"message":{"messageId":"m","role":"ROLE_USER","parts":[`+part.Draw(t, "part")+`]}}`)) {
				accepted++
			}
		}
	})
	if accepted < tried/40 {
		t.Errorf("%d of %d messages were accepted, want more", accepted, tried)
	}
}

// checkSend reports whether the message was accepted.
func checkSend(t wiretest.Reporter, message *jsonschema.Schema, params []byte) bool {
	t.Helper()
	before := bytes.Clone(params)
	op, err := codec.Decode("SendMessage", params)
	if !bytes.Equal(before, params) {
		t.Fatalf("changed its input: %q", before)
	}
	if err != nil {
		wiretest.WantClientError(t, codec, err)
		return false
	}
	m := op.(*a2a.SendMessage).Message
	doc := codec.AppendReply(nil, &m)
	wiretest.Valid(t, message, doc)
	op, err = codec.Decode("SendMessage", doc)
	if err != nil {
		t.Fatalf("own output: %v\n%s", err, doc)
	}
	if diff := cmp.Diff(m, op.(*a2a.SendMessage).Message, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("-want +got\n%s\n%s", diff, doc)
	}
	return true
}

// FuzzDecode checks that no method panics, changes its params, or returns an error that is not for the client.
func FuzzDecode(f *testing.F) {
	for i := range requests {
		f.Add(uint8(i), []byte(requests[i].full))
		f.Add(uint8(i),
			[]byte(`{"id":"x","task_id":"t","history_length":"1","page_size":0,"status":8,`+
				`"status_timestamp_after":"2026-11-20T10:00:00Z"}`))
	}
	f.Add(uint8(len(requests)), []byte(`{}`))
	f.Fuzz(func(t *testing.T, method uint8, params []byte) {
		if rawjson.Check(params, 64) != nil {
			return
		}
		params = rawjson.Trim(params)
		before := bytes.Clone(params)
		name := "Unknown"
		if int(method) < len(requests) {
			name = requests[method].method
		}
		op, err := codec.Decode(name, params)
		if !bytes.Equal(before, params) {
			t.Fatalf("changed its input: %q", before)
		}
		codec.Tenant(params)
		if err != nil {
			wiretest.WantClientError(t, codec, err)
			return
		}
		again, err := codec.Decode(name, params)
		if diff := cmp.Diff(op, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("read differently twice: %v %s", err, diff)
		}
	})
}
