package v1_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

const info = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"`

func TestAppendErrorIsTotal(t *testing.T) {
	t.Parallel()
	want := map[a2a.ErrorCode]int64{
		a2a.CodeParse: -32700, a2a.CodeInvalidRequest: -32600, a2a.CodeTooLarge: -32600, a2a.CodeMethodNotFound: -32601,
		a2a.CodeInvalidParams: -32602,
		a2a.CodeInternal:      -32603, a2a.CodeRateLimited: -32603, a2a.CodeUnavailable: -32603,
		a2a.CodeTaskNotFound: -32001, a2a.CodeTaskNotCancelable: -32002, a2a.CodePushNotSupported: -32003,
		a2a.CodeUnsupportedOperation: -32004, a2a.CodeTaskTerminal: -32004, a2a.CodeContentTypeNotSupported: -32005,
		a2a.CodeMediaType:            -32005,
		a2a.CodeInvalidAgentResponse: -32006, a2a.CodeExtendedCardNotConfigured: -32007,
		a2a.CodeExtensionRequired: -32008, a2a.CodeVersionNotSupported: -32009,
		a2a.CodeUnauthenticated: -32041, a2a.CodeForbidden: -32043,
	}
	if len(want) != len(a2a.ErrorCodes()) {
		t.Errorf("%d codes in the table, %d in the domain", len(want), len(a2a.ErrorCodes()))
	}
	for _, code := range a2a.ErrorCodes() {
		got := codec.AppendError(nil, &a2a.Error{Code: code, Message: "f: m", Field: "f"}, "r")
		if err := rawjson.Check(got, 8); err != nil {
			t.Fatalf("%v\n%s", err, got)
		}
		if n, _ := rawjson.Int(rawjson.Get(got, "code")); n != want[code] {
			t.Errorf("%s: %d, want %d", code.Reason(), n, want[code])
		}
		data := `[` + info + code.Reason() + `","domain":"a2a-protocol.org"},` +
			`{"@type":"type.googleapis.com/google.rpc.BadRequest",` +
			`"fieldViolations":[{"field":"f","description":"f: m"}]}]`
		message := "f: m"
		if code == a2a.CodeInternal {
			data = `[` + info +
				`INTERNAL","domain":"a2a-protocol.org"},{"@type":"type.googleapis.com/google.rpc.RequestInfo",` +
				`"requestId":"r"}]`
			message = "Internal error"
		}
		if d := string(rawjson.Get(got, "data")); d != data {
			t.Errorf("%s: data %s, want %s", code.Reason(), d, data)
		}
		if m, _ := rawjson.String(rawjson.Get(got, "message")); m != message {
			t.Errorf("%s: message %q, want %q", code.Reason(), m, message)
		}
	}
}

func TestAppendErrorHidesInternalErrors(t *testing.T) {
	t.Parallel()
	const want = `{"code":-32603,"message":"Internal error","data":[` + info +
		`INTERNAL","domain":"a2a-protocol.org"}]}`
	for _, code := range []a2a.ErrorCode{a2a.CodeInternal, a2a.ErrorCode(255)} {
		if got := string(codec.AppendError(nil, &a2a.Error{Code: code, Message: "dial tcp 10.0.0.1", Field: "f"},
			"")); got != want {
			t.Errorf("code %d: %s", code, got)
		}
	}
}
