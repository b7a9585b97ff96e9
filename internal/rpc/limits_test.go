package rpc_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// sender sends messages of any content over one version and binding.
type sender struct {
	name   string
	words  words
	method string // JSON-RPC method; empty: HTTP+JSON
	path   string
	conn   *grpc.ClientConn // set for gRPC
}

var senders = []sender{
	{"1.0 JSON-RPC", wordsV1, "SendMessage", "/", nil},
	{"0.3 JSON-RPC", wordsSchema, "message/send", "/", nil},
	{"1.0 REST", wordsV1, "", "/agents/script/message:send", nil},
	{"0.3 REST", wordsSchema, "", "/agents/script/v1/message:send", nil},
	{"0.3 REST, proto", wordsProto, "", "/agents/script/v1/message:send", nil},
}

// outcome is the content of a refusal, whatever the binding.
type outcome struct {
	status  int // HTTP status
	reason  string
	message string
	header  http.Header
}

// send posts a message with these parts. members are further members of the message, and beside of
// the request.
func (s sender) send(t *testing.T, to *site, parts []string, members, beside string) outcome {
	t.Helper()
	name := "parts"
	if s.words == wordsProto && s.conn == nil {
		name = "content"
	}
	role := map[words]string{wordsV1: "ROLE_USER", wordsSchema: "user", wordsProto: "ROLE_USER"}[s.words]
	return s.post(t, to, `{"message":{"messageId":"m","role":"`+role+`","`+name+`":[`+strings.Join(parts, ",")+`]`+
		members+`}`+beside+`}`, `"x"`)
}

// post sends the body of a send.
func (s sender) post(t *testing.T, to *site, body, id string) outcome {
	t.Helper()
	if s.conn != nil {
		_, _, st := caller{t, s.conn, s.path}.try("SendMessage", body)
		return outcome{status: runtimeStatus[st.Code()], reason: grpcReason(st), message: st.Message()}
	}
	if s.method != "" {
		body = `{"jsonrpc":"2.0","id":` + id + `,"method":"` + s.method + `","params":` + body + `}`
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to.URL+s.path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.words == wordsV1 {
		req.Header.Set("A2A-Version", "1.0")
	}
	resp, err := to.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return readOutcome(resp, answer)
}

// runtimeStatus maps gRPC codes to HTTP statuses.
var runtimeStatus = map[codes.Code]int{codes.OK: http.StatusOK, codes.InvalidArgument: http.StatusBadRequest,
	codes.ResourceExhausted: http.StatusRequestEntityTooLarge}

// readOutcome finds the reason and the text of an error, in any form.
func readOutcome(resp *http.Response, answer []byte) outcome {
	o := outcome{status: resp.StatusCode, header: resp.Header}
	failure := rawjson.Get(answer, "error")
	if failure == nil && resp.StatusCode != http.StatusOK {
		failure = answer // 0.3 over REST does not wrap the error
	}
	if failure == nil {
		return o
	}
	o.message, _ = rawjson.String(rawjson.Get(failure, "message"))
	if at := bytes.Index(answer, []byte(`"reason":"`)); at >= 0 {
		rest := answer[at+len(`"reason":"`):]
		o.reason = string(rest[:bytes.IndexByte(rest, '"')])
	}
	return o
}

func (s sender) text(text string) string {
	if s.words == wordsSchema {
		return `{"kind":"text","text":"` + text + `"}`
	}
	return `{"text":"` + text + `"}`
}

// play returns a part with a script.
func (s sender) play(ops string) string {
	data := `{"script":[` + ops + `]}`
	switch s.words {
	case wordsSchema:
		return `{"kind":"data","data":` + data + `}`
	case wordsProto:
		return `{"data":{"data":` + data + `}}`
	}
	return `{"data":` + data + `}`
}

// TestEveryLimitOfAMessageHasItsOwnError sends what just fits, and then slightly more.
func TestEveryLimitOfAMessageHasItsOwnError(t *testing.T) {
	t.Parallel()
	limits := wire.Limits{Parts: 3, PartBytes: 600, IDBytes: 40, URLBytes: 50, TokenSize: 20}
	s := newSiteWith(t, func(e *engine.Config, c *rpc.Config) {
		c.V03, c.V1 = v03.Codec{Lenient: true, Limits: limits}, v1.Codec{Limits: limits}
		c.MaxBody, c.MaxDepth = 4000, 12
		e.MaxMessageBytes, e.MaxPageToken = 1000, 64
	})
	end := `{"op":"complete"}`
	conn, _ := serveGRPCWithin(t, s, limits)
	for _, as := range append(senders, sender{"1.0 gRPC", wordsV1, "", service1, conn},
		sender{"0.3 gRPC", wordsProto, "", service03, conn}) {
		done := as.play(end)
		push := func(url, token string) string {
			config := `{"url":"` + url + `","token":"` + token + `"}`
			return map[words]string{
				wordsV1:     `,"configuration":{"taskPushNotificationConfig":` + config + `}`,
				wordsSchema: `,"configuration":{"blocking":true,"pushNotificationConfig":` + config + `}`,
				wordsProto:  `,"configuration":{"blocking":true,"pushNotification":` + config + `}`,
			}[as.words]
		}
		nested := func(n int) string { return strings.Repeat(`{"a":`, n) + `1` + strings.Repeat(`}`, n) }
		deep := 10 // the limit is 12, with the metadata beside the message
		if as.method != "" {
			deep-- // the envelope is one level
		}
		for _, tt := range []struct {
			what            string
			parts           []string
			excess          []string
			members, above  string // added to the message
			beside, besides string
			reason, text    string
			status          int // over REST, and over JSON-RPC if it is not 200
		}{
			{what: "parts", parts: []string{done, as.text("a"), as.text("b")},
				excess: []string{done, as.text("a"), as.text("b"), as.text("c")}, reason: "INVALID_PARAMS",
				text: "must not have more than 3 entries"},
			{what: "size of a part", parts: []string{done, as.text(strings.Repeat("x", 600))},
				excess: []string{done, as.text(strings.Repeat("x", 601))}, reason: "INVALID_PARAMS",
				text: "must not be longer than 600 bytes"},
			{what: "size of the message", parts: []string{done, as.text(strings.Repeat("x", 450)),
				as.text(strings.Repeat("x", 450))},
				excess: []string{done, as.text(strings.Repeat("x", 490)), as.text(strings.Repeat("x", 490))},
				reason: "INVALID_PARAMS", text: "must not be larger than 1000 bytes"},
			{what: "context id", parts: []string{done}, members: `,"contextId":"` + strings.Repeat("c", 40) + `"`,
				above: `,"contextId":"` + strings.Repeat("c", 41) + `"`, reason: "INVALID_PARAMS",
				text: "must not be longer than 40 bytes"},
			{what: "depth", parts: []string{done}, beside: `,"metadata":` + nested(deep),
				besides: `,"metadata":` + nested(deep+2), text: "deep", reason: "PARSE_ERROR"},
			{what: "body", parts: []string{done}, beside: `,"metadata":{"k":"` + strings.Repeat("x", 3500) + `"}`,
				besides: `,"metadata":{"k":"` + strings.Repeat("x", 4000) + `"}`, text: "larger than 4000 bytes",
				reason: "REQUEST_TOO_LARGE", status: 413},
			{what: "url of a webhook", parts: []string{done}, beside: push("https://h/"+strings.Repeat("u", 40), "t"),
				besides: push("https://h/"+strings.Repeat("u", 41), "t"), text: "must not be longer than 50 bytes",
				reason: "INVALID_PARAMS"},
			{what: "token of a webhook", parts: []string{done}, beside: push("https://h/", strings.Repeat("t", 20)),
				besides: push("https://h/", strings.Repeat("t", 21)), text: "must not be longer than 20 bytes",
				reason: "INVALID_PARAMS"},
		} {
			name := fmt.Sprintf("%s, %s", as.name, tt.what)
			switch {
			case as.conn == nil:
			case tt.what == "depth": // gRPC has no JSON
				tt.reason = "INVALID_PARAMS"
			case tt.what == "body": // gRPC itself refuses the body
				tt.reason, tt.text = "", "larger than max"
			}
			if got := as.send(t, s, tt.parts, tt.members, tt.beside); got.reason != "" || got.status != http.StatusOK {
				t.Errorf("%s: a message within the limit was refused: %d %s %s",
					name, got.status, got.reason, got.message)
			}
			if tt.excess == nil {
				tt.excess = tt.parts
			}
			if tt.above == "" {
				tt.above = tt.members
			}
			if tt.besides == "" {
				tt.besides = tt.beside
			}
			got := as.send(t, s, tt.excess, tt.above, tt.besides)
			if got.reason != tt.reason || !strings.Contains(got.message, tt.text) {
				t.Errorf("%s: got %d %s %q, want %s %q", name, got.status, got.reason, got.message, tt.reason, tt.text)
			}
			if as.method == "" && got.status < 400 || tt.status != 0 && got.status != tt.status {
				t.Errorf("%s: HTTP status %d", name, got.status)
			}
		}
		if as.method == "" {
			continue
		}
		// Only JSON-RPC requests have ids.
		message := `{"message":{"messageId":"m","role":"` +
			map[words]string{wordsV1: "ROLE_USER", wordsSchema: "user"}[as.words] + `","parts":[` + done + `]}}`
		if got := as.post(t, s, message, `"`+strings.Repeat("i", 254)+`"`); got.reason != "" {
			t.Errorf("%s: an id of 256 bytes was refused: %s", as.name, got.message)
		}
		if got := as.post(t, s, message, `"`+strings.Repeat("i", 255)+`"`); got.reason != "INVALID_REQUEST" {
			t.Errorf("%s: an id of 257 bytes: %+v", as.name, got)
		}
	}
}

// TestTaskAcceptsNothingBeyondItsLimits adds messages to a task until it is full.
func TestTaskAcceptsNothingBeyondItsLimits(t *testing.T) {
	t.Parallel()
	for what, set := range map[string]func(*engine.Config){
		"the task has its limit of 3 messages":             func(e *engine.Config) { e.MaxHistory = 3 },
		"the task would grow over its limit of 1500 bytes": func(e *engine.Config) { e.MaxTaskBytes = 1500 },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSiteWith(t, func(e *engine.Config, _ *rpc.Config) { set(e) })
			for _, d := range dialects {
				c := client{s, t, d}
				task := id(c.task(d.send, c.message("", "", `{"op":"input"}`, true)))
				refused := false
				for range 12 {
					resp := c.post(d.send, c.message(task, "",
						`{"op":"input"},{"op":"status","text":"`+strings.Repeat("x", 100)+`"}`, true), nil)
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil {
						t.Fatal(err)
					}
					got := readOutcome(resp, body)
					if refused = got.reason != ""; refused {
						if got.reason != "INVALID_PARAMS" || !strings.HasSuffix(got.message, what) {
							t.Errorf("%s: %+v", d.version, got)
						}
						break
					}
				}
				if !refused {
					t.Errorf("%s: never refused", d.version)
				}
				state := stateOf(map[string]any{"task": any(c.task(d.get, `{"id":"`+task+`"}`))})
				if state != "TASK_STATE_INPUT_REQUIRED" {
					t.Errorf("%s: got the state %s", d.version, state)
				}
			}
		})
	}
}
