package e2e_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Codes of JSON-RPC and A2A.
const (
	parseError     = -32700
	invalidRequest = -32600
	methodNotFound = -32601
	invalidParams  = -32602
	taskNotFound   = -32001
	badVersion     = -32009
)

// request returns a JSON-RPC request.
func request(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
}

// message returns a message/send whose message has further members, which begin with a comma.
func message(more string) string {
	return request("message/send", `{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]`+
		more+`}}`)
}

// withPart returns a message/send of one part.
func withPart(part string) string {
	return request("message/send", `{"message":{"messageId":"m","role":"user","parts":[`+part+`]}}`)
}

// rows counts everything that a request can leave in the database.
func (c *cluster) rows() int {
	c.t.Helper()
	return one[int](c, `
		SELECT (SELECT count(*) FROM a2a.tasks) + (SELECT count(*) FROM a2a.messages) + (SELECT count(*)
		FROM a2a.task_events)
		  + (SELECT count(*) FROM a2a.task_ready) + (SELECT count(*) FROM a2a.idempotency_keys) + (SELECT count(*)
		FROM a2a.push_configs)`)
}

type badInput struct {
	name, body string
	codes      []int    // any of these
	id         string   // expected in the answer; empty: null
	field      string   // the field that the error names
	header     []string // of the request
	status     int      // 0: 200
}

// Bad input in a body or a header is refused and leaves nothing.
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_MAX_BODY=64KiB", "A2AD_MAX_PART=48KiB")
	for _, list := range [][]badInput{envelopes(), encodings(), numbers(), headers()} {
		before := c.rows()
		fanOut(len(list), func(i int) { c.refusal(list[i], c.post(a, "/", list[i].body, list[i].header...)) })
		if after := c.rows(); after != before {
			t.Errorf("inputs from %q to %q left %d rows", list[0].name, list[len(list)-1].name, after-before)
		}
	}
}

// refusal checks the answer to bad input.
func (c *cluster) refusal(in badInput, got httpAnswer) {
	c.t.Helper()
	status, id := in.status, in.id
	if status == 0 {
		status = http.StatusOK
	}
	if id == "" {
		id = "null"
	}
	switch {
	case got.status != status:
		c.t.Errorf("%s: status %d, want %d: %s", in.name, got.status, status, got.body)
	case !slices.Contains(in.codes, got.code):
		c.t.Errorf("%s: %.300s, want one of the codes %v", in.name, got.body, in.codes)
	case got.id != id:
		c.t.Errorf("%s: the answer has the id %s, want %s: %.300s", in.name, got.id, id, got.body)
	case got.data.Field != in.field && in.field != "":
		c.t.Errorf("%s: the answer names the field %q, want %q: %.300s", in.name, got.data.Field, in.field, got.body)
	case !utf8.Valid(got.body) || len(got.body) > 4096:
		c.t.Errorf("%s: the answer has %d bytes, UTF-8: %t", in.name, len(got.body), utf8.Valid(got.body))
	}
}

// envelopes are S-01 to S-04, S-08 and S-09.
func envelopes() []badInput {
	unreadable := []int{parseError}
	not := []int{invalidRequest}
	list := []badInput{
		{name: "empty", body: "", codes: unreadable}, {name: "blank", body: " \r\n\t", codes: unreadable},
		{name: "byte order mark", body: "\ufeff" + message(""), codes: unreadable},
		{name: "null", body: "null", codes: not}, {name: "array", body: "[]", codes: not},
		{name: "string", body: `"x"`, codes: not}, {name: "number", body: "1", codes: not},
		{name: "object", body: "{}", codes: not},
		{name: "two documents", body: message("") + message(""), codes: unreadable},
		{name: "trailing", body: message("") + "x", codes: unreadable},
		{name: "trailing comma", body: `{"jsonrpc":"2.0",}`, codes: unreadable},
		{name: "comment", body: `{/**/"jsonrpc":"2.0"}`, codes: unreadable},
		{name: "single quotes", body: `{'jsonrpc':'2.0'}`, codes: unreadable},
		{name: "NaN", body: `{"jsonrpc":NaN}`, codes: unreadable},
		{name: "Infinity", body: `{"jsonrpc":-Infinity}`, codes: unreadable},
		{name: "leading zero", body: `{"jsonrpc":01}`, codes: unreadable},
		{name: "duplicate method",
			body:  `{"jsonrpc":"2.0","id":1,"method":"tasks/get","method":"tasks/cancel","params":{"id":"x"}}`,
			codes: not},
		{name: "duplicate params",
			body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"},"params":{"id":"y"}}`, codes: not},
		{name: "duplicate id", body: `{"jsonrpc":"2.0","id":1,"id":2,"method":"tasks/get","params":{"id":"x"}}`,
			codes: not},
		{name: "duplicate message",
			body: request("message/send", `{"message":{"messageId":"m"},"message":{"messageId":"n"}}`), codes: not},
		{name: "duplicate by escape",
			body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","m\u0065thod":"tasks/cancel"}`, codes: not},
		{name: "METHOD", body: `{"jsonrpc":"2.0","id":1,"METHOD":"tasks/get","params":{"id":"x"}}`, codes: not,
			id: "1"},
		{name: "Params", body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"},"Params":{"id":"y"}}`,
			codes: not, id: "1"},
		{name: "long s", body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","paramſ":{"id":"x"}}`, codes: not,
			id: "1"},
		{name: "batch", body: "[" + message("") + "," + message("") + "]", codes: not},
		{name: "large batch", body: "[" + strings.TrimSuffix(strings.Repeat(`{"id":1},`, 1000), ",") + "]", codes: not},
		{name: "version", body: strings.Replace(message(""), "2.0", "1.0", 1), codes: not, id: "1"},
		{name: "method of another type", body: `{"jsonrpc":"2.0","id":1,"method":1}`, codes: not, id: "1"},
		{name: "unknown method", body: request("tasks/destroy", "{}"), codes: []int{methodNotFound}, id: "1"},
		{name: "method of another case", body: request("Message/Send", "{}"), codes: []int{methodNotFound}, id: "1"},
		{name: "params array", body: request("tasks/get", "[]"), codes: []int{invalidParams}, id: "1"},
		{name: "params string", body: request("message/send", `"x"`), codes: []int{invalidParams}, id: "1"},
	}
	for _, id := range []string{"{}", "[]", "true", `{"a":1}`, `"` + strings.Repeat("i", 257) + `"`,
		strings.Repeat("1", 300)} {
		list = append(list, badInput{name: "id " + id[:2], body: strings.Replace(message(""), `"id":1`, `"id":`+id, 1),
			codes: not})
	}
	for _, depth := range []int{65, 9_999, 10_001, 20_000} {
		for _, open := range []string{"[", `{"a":`} {
			closing := map[string]string{"[": "]", `{"a":`: "}"}[open]
			deep := strings.Repeat(open, min(depth, 60<<10/len(open+closing))) + "1" + strings.Repeat(closing,
				min(depth, 60<<10/len(open+closing)))
			list = append(list, badInput{name: fmt.Sprintf("depth %d of %s", depth, open),
				body:  message(`,"metadata":{"d":` + deep + `}`),
				codes: []int{parseError, invalidParams, invalidRequest}})
		}
	}
	good := message(`,"metadata":{"a":[1,"é\n"]}`)
	for n := range len(good) {
		list = append(list, badInput{name: fmt.Sprintf("cut at byte %d", n), body: good[:n],
			codes: []int{parseError, invalidRequest}})
	}
	return list
}

// encodings are S-05 and S-06: text that PostgreSQL cannot store is refused before it gets there.
func encodings() []badInput {
	var list []badInput
	for name, text := range map[string]string{
		"invalid byte": "\xff", "overlong slash": "\xc0\xaf", "cut character": "\xe2\x82",
		"surrogate in UTF-8": "\xed\xa0\x80", "beyond Unicode": "\xf4\x90\x80\x80",
	} {
		list = append(list, badInput{name: name, body: withPart(`{"kind":"text","text":"` + text + `"}`),
			codes: []int{parseError}},
			badInput{name: name + " in a key", body: message(`,"metadata":{"` + text + `":1}`),
				codes: []int{parseError}})
	}
	for _, s := range []string{`\ud800`, `\udc00`, `\ud800x`, `\ud800\ud800`, `\udc00\ud800`} {
		list = append(list, badInput{name: "surrogate " + s, body: withPart(`{"kind":"text","text":"` + s + `"}`),
			codes: []int{parseError}},
			badInput{name: "surrogate in metadata " + s, body: message(`,"metadata":{"a":"` + s + `"}`),
				codes: []int{parseError}})
	}
	list = append(list, badInput{name: "raw NUL", body: withPart("{\"kind\":\"text\",\"text\":\"a\x00b\"}"),
		codes: []int{parseError}})
	for field, body := range map[string]string{
		"message.messageId": request("message/send",
			`{"message":{"messageId":"m\u0000","role":"user","parts":[{"kind":"text","text":"x"}]}}`),
		"message.contextId":          message(`,"contextId":"c\u0000"`),
		"message.parts[0].file.name": withPart(`{"kind":"file","file":{"bytes":"eA==","name":"f\u0000"}}`),
		"message.parts[0].file.uri":  withPart(`{"kind":"file","file":{"uri":"http://x/\u0000"}}`),
		"message.referenceTaskIds":   message(`,"referenceTaskIds":["a\u0000"]`),
		"message.extensions":         message(`,"extensions":["a\u0000"]`),
	} {
		list = append(list, badInput{name: "NUL in " + field, body: body, codes: []int{invalidParams}, id: "1"})
	}
	return list
}

// numbers are S-15: values that a field does not allow, for every method.
func numbers() []badInput {
	var list []badInput
	bad := func(field, body string) {
		list = append(list, badInput{name: field + ": " + body, body: body, codes: []int{invalidParams}, id: "1"})
	}
	wrong := func(good string) []string {
		all := map[string]string{"string": `"s"`, "number": "1", "bool": "true", "object": "{}", "array": "[]"}
		var list []string
		for kind, v := range all {
			if kind != good {
				list = append(list, v)
			}
		}
		return list
	}
	for _, v := range append(wrong("object"), "null") {
		bad("message", request("message/send", `{"message":`+v+`}`))
	}
	bad("message", request("message/send", `{}`))
	for _, v := range append(wrong("string"), "null", `""`) {
		bad("messageId",
			request("message/send", `{"message":{"messageId":`+v+
				`,"role":"user","parts":[{"kind":"text","text":"x"}]}}`))
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/resubscribe"} {
			if v != `""` {
				bad("id of "+method, request(method, `{"id":`+v+`}`))
			}
		}
	}
	for _, v := range append(wrong("array"), "[]", "null", "[1]", `["x"]`, "[null]", "[[]]", `[{}]`,
		`[{"kind":"text"}]`, `[{"kind":"nope"}]`, `[{"kind":"file","file":{}}]`,
		`[{"kind":"file","file":{"bytes":"***"}}]`, `[{"kind":"data"}]`, `[{"kind":"text","text":1}]`,
		`[{"kind":"text","text":"x","metadata":[]}]`) {
		bad("parts", request("message/send", `{"message":{"messageId":"m","role":"user","parts":`+v+`}}`))
	}
	for _, v := range append(wrong("string"), `"robot"`, `"ROLE_UNSPECIFIED"`) {
		bad("role",
			request("message/send", `{"message":{"messageId":"m","role":`+v+`,"parts":[{"kind":"text","text":"x"}]}}`))
	}
	for _, member := range []string{"taskId", "contextId"} {
		for _, v := range wrong("string") {
			bad(member, message(`,"`+member+`":`+v))
		}
	}
	for _, v := range wrong("object") {
		bad("metadata", message(`,"metadata":`+v))
		bad("params.metadata", request("message/send",
			`{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]},"metadata":`+v+`}`))
		bad("configuration", request("message/send",
			`{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]},"configuration":`+v+`}`))
	}
	for _, member := range []string{"referenceTaskIds", "extensions"} {
		for _, v := range append(wrong("array"), "[1]", "[{}]") {
			bad(member, message(`,"`+member+`":`+v))
		}
	}
	for _, v := range append(wrong("number"), "-1", "1.5", "1e400", "99999999999999999999") {
		bad("historyLength", request("tasks/get", `{"id":"x","historyLength":`+v+`}`))
		bad("pageSize", request("tasks/list", `{"pageSize":`+v+`}`))
	}
	for _, v := range append(wrong("string"), `"nope"`, `"unknown"`) {
		bad("status", request("tasks/list", `{"status":`+v+`}`))
	}
	bad("too long a messageId", request("message/send",
		`{"message":{"messageId":"`+strings.Repeat("m", 257)+`","role":"user","parts":[{"kind":"text","text":"x"}]}}`))
	bad("too many parts",
		request("message/send", `{"message":{"messageId":"m","role":"user","parts":[`+
			strings.Repeat(`{"kind":"text","text":"x"},`, 100)+`{"kind":"text","text":"x"}]}}`))
	bad("too large a part", withPart(`{"kind":"text","text":"`+strings.Repeat("x", 49<<10)+`"}`))
	for _, id := range []string{"nope", "", "01a1f887-7fbd-72d5-a178-36d674819994",
		"01A1F887-7FBD-72D5-A178-36D67481999", "../../etc/passwd", "' OR 1=1 --", strings.Repeat("x", 300), `a\u0000`} {
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/resubscribe"} {
			list = append(list, badInput{name: method + " of " + id, body: request(method, `{"id":"`+id+`"}`),
				codes: []int{taskNotFound, invalidParams}, id: "1"})
		}
		if id != "" {
			list = append(list, badInput{name: "message to " + id, body: message(`,"taskId":"` + id + `"`),
				codes: []int{taskNotFound, invalidParams}, id: "1"})
		}
	}
	return list
}

// headers are S-10 and S-11, for one whole request.
func headers() []badInput {
	large := message(`,"metadata":{"x":"` + strings.Repeat("x", 65<<10) + `"}`)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.CopyN(z, zeros{}, 10<<20)
	_ = z.Close()
	return []badInput{
		{name: "too large", body: large, codes: []int{invalidRequest, 0}, status: http.StatusRequestEntityTooLarge},
		{name: "gzip", body: zipped.String(), header: []string{"Content-Encoding", "gzip"}, codes: []int{-32005, 0},
			status: http.StatusUnsupportedMediaType},
		{name: "text", body: message(""), header: []string{"Content-Type", "text/plain"}, codes: []int{-32005},
			status: http.StatusUnsupportedMediaType},
		{name: "no type", body: message(""), header: []string{"Content-Type", ""}, codes: []int{-32005},
			status: http.StatusUnsupportedMediaType},
		{name: "bad type", body: message(""), header: []string{"Content-Type", "application/json; ="},
			codes: []int{-32005}, status: http.StatusUnsupportedMediaType},
		{name: "version 9.9", body: message(""), header: []string{"A2A-Version", "9.9"}, codes: []int{badVersion},
			id: "1"},
		{name: "two versions", body: message(""), header: []string{"A2A-Version", "0.3", "A2A-Version", "1.0"},
			codes: []int{badVersion}, id: "1"},
		{name: "long version", body: message(""), header: []string{"A2A-Version", strings.Repeat("0.3", 3000)},
			codes: []int{badVersion}, id: "1"},
		{name: "empty key", body: message(""), header: []string{"Idempotency-Key", " "}, codes: []int{invalidParams},
			id: "1"},
		{name: "long key", body: message(""), header: []string{"Idempotency-Key", strings.Repeat("k", 257)},
			codes: []int{invalidParams}, id: "1"},
		{name: "odd key", body: message(""), header: []string{"Idempotency-Key", "ké"}, codes: []int{invalidParams},
			id: "1"},
		{name: "two keys", body: message(""), header: []string{"Idempotency-Key", "k", "Idempotency-Key", "l"},
			codes: []int{invalidParams}, id: "1"},
	}
}
