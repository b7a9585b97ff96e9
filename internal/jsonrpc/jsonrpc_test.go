package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/jsonrpc"
	"github.com/a2ad/a2ad/internal/rawjson"
)

const (
	parse   = jsonrpc.ParseError
	invalid = jsonrpc.InvalidRequest
)

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, body string
		want       jsonrpc.Kind
		id         string // the id in the answer; empty: null
	}{
		{"empty", ``, parse, ""},
		{"white space", " \n", parse, ""},
		{"byte order mark", "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"m"}`, parse, ""},
		{"two documents", `{"jsonrpc":"2.0","id":1,"method":"m"}{}`, parse, ""},
		{"trailing text", `{"jsonrpc":"2.0","id":1,"method":"m"}x`, parse, ""},
		{"trailing comma", `{"jsonrpc":"2.0","id":1,"method":"m",}`, parse, ""},
		{"comment", `{"jsonrpc":"2.0",/**/"id":1,"method":"m"}`, parse, ""},
		{"single quotes", `{'jsonrpc':'2.0'}`, parse, ""},
		{"NaN", `{"jsonrpc":"2.0","id":NaN,"method":"m"}`, parse, ""},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", parse, ""},
		{"lone surrogate", `{"jsonrpc":"2.0","id":"\ud800","method":"m"}`, parse, ""},
		{"raw NUL", "{\"jsonrpc\":\"2.0\",\"id\":\"\x00\",\"method\":\"m\"}", parse, ""},
		{"too deep",
			`{"jsonrpc":"2.0","id":1,"method":"m","params":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
			parse, ""},
		{"far too deep", strings.Repeat("[", 100_000), parse, ""},
		{"null", `null`, invalid, ""},
		{"string", `"x"`, invalid, ""},
		{"number", `1`, invalid, ""},
		{"empty batch", `[]`, invalid, ""},
		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`, invalid, ""},
		{"empty object", `{}`, invalid, ""},
		{"no version", `{"id":1,"method":"m"}`, invalid, "1"},
		{"other version", `{"jsonrpc":"aaa","id":1,"method":"m"}`, invalid, "1"},
		{"version as a number", `{"jsonrpc":2.0,"id":"x","method":"m"}`, invalid, `"x"`},
		{"no method", `{"jsonrpc":"2.0","id":1,"params":{}}`, invalid, "1"},
		{"method null", `{"jsonrpc":"2.0","id":1,"method":null}`, invalid, "1"},
		{"method number", `{"jsonrpc":"2.0","id":1.0,"method":1}`, invalid, "1.0"},
		{"a response", `{"jsonrpc":"2.0","id":1,"result":{}}`, invalid, "1"},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"m"}`, invalid, ""},
		{"id array", `{"jsonrpc":"2.0","id":[1],"method":"m"}`, invalid, ""},
		{"id bool", `{"jsonrpc":"2.0","id":true,"method":"m"}`, invalid, ""},
		{"long id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 255) + `","method":"m"}`, invalid, ""},
		{"huge id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1<<20) + `","method":"m"}`, invalid, ""},
		{"long number as id", `{"jsonrpc":"2.0","id":` + strings.Repeat("1", 257) + `,"method":"m"}`, invalid, ""},
		{"two methods", `{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}`, invalid, ""},
		{"two methods, one escaped", `{"jsonrpc":"2.0","id":1,"method":"a","\u006dethod":"b"}`, invalid, ""},
		{"two params", `{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}`, invalid, ""},
		{"two ids", `{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}`, invalid, ""},
		{"two messages", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"message":{},"message":{}}}`, invalid, ""},
		{"METHOD", `{"jsonrpc":"2.0","id":1,"METHOD":"a"}`, invalid, "1"},
		{"method and Method", `{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}`, invalid, "1"},
		{"Params", `{"jsonrpc":"2.0","id":1,"method":"a","Params":{}}`, invalid, "1"},
		{"params with a long s", `{"jsonrpc":"2.0","id":1,"method":"a","paramſ":{}}`, invalid, "1"},
		{"ID", `{"jsonrpc":"2.0","ID":1,"method":"a"}`, invalid, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, fault := jsonrpc.Parse([]byte(tc.body), 64)
			if fault == nil || fault.Kind != tc.want || string(fault.ID) != tc.id {
				t.Errorf("Parse(%.80q) = %+v, want kind %d with id %q", tc.body, fault, tc.want, tc.id)
			}
			if fault != nil && (fault.Text == "" || len(fault.Text) > 200) {
				t.Errorf("text for the caller: %q", fault.Text)
			}
		})
	}
}

func TestParseTruncated(t *testing.T) {
	t.Parallel()
	body := []byte(`{"jsonrpc":"2.0","id":"a\u00e9","method":"tasks/get",` +
		`"params":{"id":"x","n":-1.5e3,"l":[true,null]}}`)
	for i := range body {
		if _, fault := jsonrpc.Parse(body[:i], 64); fault == nil || fault.Kind != parse || fault.ID != nil {
			t.Fatalf("Parse(%q) = %+v, want a parse error", body[:i], fault)
		}
	}
}

func TestParseKeepsBytes(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		`1`, `1.0`, `1e2`, `-0`, `"1"`, `""`, `"\u0031"`, `9007199254740993`, `null`, `"\ud83d\ude00"`,
		`"` + strings.Repeat("x", 254) + `"`,
	} {
		req, fault := jsonrpc.Parse([]byte(` {"params" : {"a": 1.0 } , "id": `+id+
			` ,"x":{},"method":"tasks\/get","jsonrpc":"2.0"} `), 64)
		if fault != nil {
			t.Errorf("id %s: %v", id, fault)
			continue
		}
		if string(req.ID) != id || req.Method != "tasks/get" || string(req.Params) != `{"a": 1.0 }` {
			t.Errorf("id %s: got %q %q %q", id, req.ID, req.Method, req.Params)
		}
		if got, want := string(jsonrpc.AppendResult(nil, req.ID, []byte(`{}`))), `{"jsonrpc":"2.0","id":`+id+
			`,"result":{}}`; got != want {
			t.Errorf("answer %s, want %s", got, want)
		}
	}
}

func TestParseAbsent(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"jsonrpc":"2.0","method":""}`, `{"jsonrpc":"2.0","method":"","params":null}`} {
		req, fault := jsonrpc.Parse([]byte(body), 64)
		if fault != nil || req.ID != nil || req.Params != nil || req.Method != "" {
			t.Errorf("Parse(%s) = %+v, %v", body, req, fault)
		}
	}
	for _, params := range []string{`[1]`, `"x"`, `1`, `false`} {
		req, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":`+params+`}`), 64)
		if fault != nil || string(req.Params) != params {
			t.Errorf("params %s: got %q, %v", params, req.Params, fault)
		}
	}
}

func TestAppend(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ got, want string }{
		{string(jsonrpc.AppendResult([]byte("x"), nil, []byte("null"))), `x{"jsonrpc":"2.0","id":null,"result":null}`},
		{string(jsonrpc.AppendError([]byte("x"), []byte(`"a"`), []byte(`{"code":1}`))),
			`x{"jsonrpc":"2.0","id":"a","error":{"code":1}}`},
		{string(jsonrpc.AppendResultPrefix(nil, []byte("1.0"))) + "7" + jsonrpc.ResultSuffix,
			`{"jsonrpc":"2.0","id":1.0,"result":7}`},
	} {
		if tc.got != tc.want {
			t.Errorf("got %s, want %s", tc.got, tc.want)
		}
	}
}

// FuzzEnvelope checks that Parse does not panic, agrees with encoding/json about what is JSON, and keeps every
// byte of the id for the answer.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`, `{"jsonrpc":"2.0","id":{},"method":1}`,
		`[]`, `null`, ``, "\ufeff", `{"jsonrpc":"2.0","METHOD":"x"}`, `{"id":1,"id":2}`,
		`{"jsonrpc":"2.0","id":"\ud83d\ude00","method":"\u0000"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, fault := jsonrpc.Parse(body, 64)
		var id []byte
		switch {
		case fault == nil:
			if id = req.ID; !json.Valid(body) {
				t.Fatalf("took %q", body)
			}
		case fault.Kind != parse && fault.Kind != invalid:
			t.Fatalf("fault %+v", fault)
		default:
			id = fault.ID
		}
		if id != nil && (len(id) > jsonrpc.MaxID || !bytes.Contains(body, id)) {
			t.Fatalf("id %q of %q", id, body)
		}
		for _, answer := range [][]byte{
			jsonrpc.AppendResult(nil, id, []byte("{}")),
			jsonrpc.AppendError(nil, id, []byte(`{"code":-32600,"message":""}`)),
		} {
			if err := rawjson.Check(answer, 8); err != nil {
				t.Fatalf("answer %q: %v", answer, err)
			}
			if got := rawjson.Get(answer, "id"); id != nil && !bytes.Equal(got, id) {
				t.Fatalf("echoed %q for %q", got, id)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"message/send",` +
		`"params":{"message":{"kind":"message","messageId":"m","role":"user",` +
		`"parts":[{"kind":"text","text":"` + strings.Repeat("hello ", 100) + `"}]}}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, fault := jsonrpc.Parse(body, 64); fault != nil {
			b.Fatal(fault)
		}
	}
}
