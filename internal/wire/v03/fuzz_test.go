package v03_test

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
	"github.com/a2ad/a2ad/internal/wire/v03"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

var methods = []string{
	"message/send", "message/stream", "tasks/get", "tasks/list", "tasks/cancel", "tasks/resubscribe",
	"tasks/pushNotificationConfig/set", "tasks/pushNotificationConfig/get", "tasks/pushNotificationConfig/list",
	"tasks/pushNotificationConfig/delete", "agent/getAuthenticatedExtendedCard", "unknown",
}

// FuzzSendParams checks that every accepted message can be written, is valid by the schema, and is read back as
// the same message, also in strict mode.
func FuzzSendParams(f *testing.F) {
	for _, s := range []string{
		`{"message":` + hello + `}`, fullSend,
		`{"contextId":"c","message":{"messageId":"m","role":"user",` +
			`"parts":[{"kind":"file","data":"QQ","mimeType":"a"}]}}`,
		`{"message":{"messageId":"m","role":"agent","parts":[{"kind":"data","data":[1],"mimeType":"x",` +
			`"metadata":{"a2ad/mediaType":1,"data_part_compat":false}}]}}`,
		`{"message":{"messageId":"m","role":"user","parts":[{"data":{"value":{"value":2}},` +
			`"metadata":{ "data_part_compat" : true , "a2ad/filename":"f"}}]}}`,
		`{"message":{"messageId":"m","role":"user","parts":[{"kind":"file","file":{"fileWithUri":"u\n"}},` +
			`{"text":"\ud83d\ude00\u0000"}]}}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	message := schema(f, "Message")
	f.Fuzz(func(t *testing.T, params []byte, lenient bool) {
		if rawjson.Check(params, 64) == nil {
			checkSend(t, message, rawjson.Trim(params), lenient)
		}
	})
}

// TestOddParts is FuzzSendParams with parts built from the words of the protocol and its dialects, because
// random bytes rarely contain them.
func TestOddParts(t *testing.T) {
	t.Parallel()
	message := schema(t, "Message")
	keys := []string{"kind", "text", "file", "data", "metadata", "mimeType", "name", "bytes", "uri", "url",
		"fileWithBytes", "fileWithUri", "type"}
	words := rapid.SampledFrom([]string{
		`"text"`, `"file"`, `"data"`, `"QQ=="`, `"-_8"`, `"https://u"`, `null`, `""`, `{"value":1}`, `{"bytes":"QQ"}`,
		`{"uri":"u","mimeType":"m"}`,
		`{"data":"QQ"}`, `{"url":"u","bytes":null}`, `{"data_part_compat":true}`, `{"a2ad/filename":"f", "k":1}`,
		`{ "a2ad/mediaType":1}`,
		`{"data_part_compat":true,"a2ad/mediaType":"m","a2ad/filename":""}`,
	})
	part := rapid.Custom(func(t *rapid.T) string {
		b := []byte{'{'}
		for i, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 1, 6, rapid.ID).Draw(t, "keys") {
			b = append(rawjson.AppendString(appendComma(b, i), key), ':')
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
			params := `{"message":{"messageId":"m","role":"user","parts":[` + part.Draw(t, "part") + `]}}`
			if checkSend(t, message, []byte(params), rapid.Bool().Draw(t, "lenient")) {
				accepted++
			}
		}
	})
	if accepted < tried/40 {
		t.Errorf("%d of %d messages were accepted, want more", accepted, tried)
	}
}

func appendComma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// checkSend reports whether the message was accepted.
func checkSend(t wiretest.Reporter, message *jsonschema.Schema, params []byte, lenient bool) bool {
	t.Helper()
	before := bytes.Clone(params)
	op, err := v03.Codec{Lenient: lenient}.Decode("message/send", params)
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
	op, err = v03.Codec{}.Decode("message/send", append(append([]byte(`{"message":`), doc...), '}'))
	if err != nil {
		t.Fatalf("own output: %v\n%s", err, doc)
	}
	again := op.(*a2a.SendMessage).Message
	withoutOurs(&m)
	withoutOurs(&again)
	if diff := cmp.Diff(m, again, sameRaw); diff != "" {
		t.Fatalf("-want +got\n%s\n%s", diff, doc)
	}
	return true
}

// withoutOurs removes a2ad's own members from the metadata of parts. A client that uses these members for
// something else loses its values.
func withoutOurs(m *a2a.Message) {
	for i := range m.Parts {
		for _, key := range []string{"a2ad/mediaType", "a2ad/filename", "data_part_compat"} {
			m.Parts[i].Metadata = rawjson.Without(m.Parts[i].Metadata, key)
		}
	}
}

// FuzzDecode checks that no method panics, changes its params, or returns an error that is not for the client.
func FuzzDecode(f *testing.F) {
	for i := range methods {
		f.Add(uint8(i),
			[]byte(`{"id":"x","taskId":"t","pushNotificationConfigId":"p","historyLength":1,"metadata":{}}`), true)
	}
	f.Add(uint8(3), []byte(`{"status":"cancelled","pageSize":3,"pageToken":"","includeArtifacts":true}`), true)
	f.Add(uint8(6), []byte(`{"taskId":"x","pushNotificationConfig":`+fullPush+`}`), false)
	f.Fuzz(func(t *testing.T, method uint8, params []byte, lenient bool) {
		if rawjson.Check(params, 64) != nil {
			return
		}
		params = rawjson.Trim(params)
		before := bytes.Clone(params)
		c := v03.Codec{Lenient: lenient, OnLenient: func(string) {}}
		name := methods[int(method)%len(methods)]
		op, err := c.Decode(name, params)
		if !bytes.Equal(before, params) {
			t.Fatalf("changed its input: %q", before)
		}
		if err != nil {
			wiretest.WantClientError(t, codec, err)
			return
		}
		again, err := c.Decode(name, params)
		if diff := cmp.Diff(op, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("read differently twice: %v %s", err, diff)
		}
	})
}
