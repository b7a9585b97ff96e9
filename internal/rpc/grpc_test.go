package rpc_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/a2ad/a2ad/internal/rpc"
)

const (
	service03 = "a2a.v1.A2AService"
	service1  = "lf.a2a.v1.A2AService"
	resumeURI = "https://a2ad.dev/extensions/resume/v1"
)

func TestGRPCMethods(t *testing.T) {
	eachGRPC(t, func(t *testing.T, c caller, d grpcDialect) {
		done := object(t, c.call("SendMessage",
			d.send("", `{"op":"artifact","id":"a","text":"x"},{"op":"complete","text":"done"}`, true))["task"])
		if state(t, done) != completed {
			t.Fatalf("sent: %v", done)
		}
		equal(t, "the task as it is read", done, c.call("GetTask", d.ref(id(done))))
		asks := object(t, c.call("SendMessage", d.send("", `{"op":"input"}`, true))["task"])
		if state(t, asks) != inputRequired {
			t.Fatalf("sent: %v", asks)
		}
		set := c.call("CreateTaskPushNotificationConfig", d.push(id(asks)))
		if strings.Contains(strings.Join(slices.Collect(strings.Lines(dump(set))), ""), "credentials") {
			t.Errorf("the answer contains a secret: %v", set)
		}
		equal(t, "the webhook as it is read", set, c.call("GetTaskPushNotificationConfig", d.pushRef(id(asks))))
		parent := strings.NewReplacer(`"name"`, `"`+d.pushes+`"`, `"id"`, `"`+d.pushes+`"`).Replace(d.ref(id(asks)))
		equal(t, "the webhooks", map[string]any{"configs": []any{set}}, c.call(d.listPush, parent))
		equal(t, "a deleted webhook", map[string]any{}, c.call("DeleteTaskPushNotificationConfig", d.pushRef(id(asks))))
		equal(t, "no webhooks", map[string]any{}, c.call(d.listPush, parent))

		follower := c.follow(t.Context(), d.subscribe, d.ref(id(asks)))
		equal(t, "the first item of a subscription", map[string]any{"task": asks}, follower.next())
		items := c.follow(t.Context(), "SendStreamingMessage",
			d.send(id(asks), `{"op":"chunk","id":"a","n":2},{"op":"input"}`, true)).all()
		if len(items) != 5 || items[0]["task"] == nil || items[2]["artifactUpdate"] == nil ||
			stateOf(items[4]) != inputRequired {
			t.Errorf("got the turn %v", items)
		}
		if final := object(t, items[4]["statusUpdate"])["final"]; (final == true) != (d.service == service03) {
			t.Errorf("the last event: %v", items[4])
		}
		if gone := c.call("CancelTask", d.ref(id(asks))); state(t, gone) != d.canceled {
			t.Errorf("canceled: %v", gone)
		}
		items = follower.all()
		if len(items) == 0 || stateOf(items[len(items)-1]) != d.canceled || follower.end.Code() != codes.OK {
			t.Errorf("the subscription: %v, %v", items, follower.end)
		}

		list := c.call("ListTasks", `{"pageSize":1}`)
		tasks := list["tasks"].([]any)
		if len(tasks) != 1 || parseInt(t, list["totalSize"]) < 2 || list["nextPageToken"] == "" {
			t.Errorf("listed: %v", list)
		}
		if list := c.call("ListTasks", `{"status":"`+d.canceled+`","contextId":"`+asks["contextId"].(string)+
			`"}`)["tasks"]; len(list.([]any)) != 1 {
			t.Errorf("canceled tasks: %v", list)
		}
	})
}

func TestGRPCErrors(t *testing.T) {
	eachGRPC(t, func(t *testing.T, c caller, d grpcDialect) {
		old := d.service == service03
		done := object(t, c.call("SendMessage", d.send("", `{"op":"complete"}`, true))["task"])
		extendedCard, cardReason := "GetExtendedAgentCard", "UNSUPPORTED_OPERATION"
		unsupported, finished := codes.FailedPrecondition, codes.FailedPrecondition
		if old {
			extendedCard, cardReason = "GetAgentCard", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
			finished = codes.InvalidArgument
		}
		unknown := "01890000-0000-7000-8000-000000000000"
		for _, e := range []struct {
			name, params string
			code         codes.Code
			reason       string
		}{
			{"GetTask", d.ref(unknown), codes.NotFound, "TASK_NOT_FOUND"},
			{"GetTask", d.ref("nonsense"), codes.NotFound, "TASK_NOT_FOUND"},
			{"GetTask", `{}`, codes.InvalidArgument, "INVALID_PARAMS"},
			{"CancelTask", d.ref(unknown), codes.NotFound, "TASK_NOT_FOUND"},
			{"CancelTask", d.ref(id(done)), codes.FailedPrecondition, "TASK_NOT_CANCELABLE"},
			{"SendMessage", d.send(unknown, `{"op":"complete"}`, true), codes.NotFound, "TASK_NOT_FOUND"},
			{"SendMessage", d.send(id(done), `{"op":"complete"}`, true), finished, "UNSUPPORTED_OPERATION"},
			{"SendMessage", `{}`, codes.InvalidArgument, "INVALID_PARAMS"},
			{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER"}}`, codes.InvalidArgument,
				"INVALID_PARAMS"},
			{"SendMessage", `{"message":{"messageId":"m","parts":[{"text":"x"}]}}`, codes.InvalidArgument,
				"INVALID_PARAMS"},
			{"CreateTaskPushNotificationConfig", d.push(unknown), codes.NotFound, "TASK_NOT_FOUND"},
			{"GetTaskPushNotificationConfig", d.pushRef(id(done)), codes.NotFound, "TASK_NOT_FOUND"},
			{"DeleteTaskPushNotificationConfig", d.pushRef(unknown), codes.NotFound, "TASK_NOT_FOUND"},
			{"ListTasks", `{"pageSize":101}`, codes.InvalidArgument, "INVALID_PARAMS"},
			{"ListTasks", `{"pageToken":"x"}`, codes.InvalidArgument, "INVALID_PARAMS"},
			{extendedCard, `{}`, unsupported, cardReason},
		} {
			_, r, st := c.try(e.name, e.params)
			wantStatus(t, e.name+" "+e.params, st, e.code, e.reason)
			if len(r.trailer["x-request-id"]) != 1 {
				t.Errorf("%s: no request id: %v", e.name, r.trailer)
			}
		}
		s := c.follow(t.Context(), d.subscribe, d.ref(unknown))
		if items := s.all(); len(items) != 0 {
			t.Errorf("a stream of an unknown task: %v", items)
		}
		wantStatus(t, "a stream of an unknown task", s.end, codes.NotFound, "TASK_NOT_FOUND")
		s = c.follow(t.Context(), d.subscribe, d.ref(id(done)))
		items := s.all()
		if old {
			if len(items) != 2 || s.end.Code() != codes.OK {
				t.Errorf("a stream of a finished task: %v, %v", items, s.end)
			}
		} else {
			wantStatus(t, "a stream of a finished task", s.end, codes.FailedPrecondition, "UNSUPPORTED_OPERATION")
		}
	})
}

func TestGRPCErrorNamesTheField(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(*rpc.Config) {})
	_, _, st := caller{t, conn, service1}.try("SendMessage",
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"mediaType":"x"}]}}`)
	for _, d := range st.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok && bad.GetFieldViolations()[0].GetField() == "message.parts[0]" {
			return
		}
	}
	t.Errorf("%v", st.Proto())
}

// TestGRPCVersions: the service determines the version of a call, and metadata must not contradict
// it.
func TestGRPCVersions(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(*rpc.Config) {})
	for _, v := range []struct {
		service, version string
		fine             bool
	}{
		{service1, "1.0", true}, {service1, "1.0.1", true}, {service1, "", true}, {service1, "0.3", false},
		{service1, "1.1", false}, {service1, "x", false},
		{service03, "0.3", true}, {service03, "0.3.0", true}, {service03, "1.0", false}, {service03, "9.9", false},
	} {
		_, _, st := caller{t, conn, v.service}.try("ListTasks", `{}`, "a2a-version", v.version)
		if v.fine && st.Code() != codes.OK {
			t.Errorf("%s with %q: %v", v.service, v.version, st)
		} else if !v.fine {
			wantStatus(t, v.service+" with "+v.version, st, codes.FailedPrecondition, "VERSION_NOT_SUPPORTED")
		}
	}
}

func TestGRPCErrorProfile(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(c *rpc.Config) { c.ErrorProfile = rpc.Profile100 })
	c := caller{t, conn, service1}
	_, _, st := c.try("ListTasks", `{}`, "a2a-version", "99.0")
	wantStatus(t, "another version", st, codes.Unimplemented, "VERSION_NOT_SUPPORTED")
	_, _, st = c.try("GetExtendedAgentCard", `{}`)
	wantStatus(t, "no extended card", st, codes.Unimplemented, "UNSUPPORTED_OPERATION")
}

func TestGRPCIdempotency(t *testing.T) {
	eachGRPC(t, func(t *testing.T, c caller, d grpcDialect) {
		first := c.call("SendMessage", d.send("", `{"op":"complete"}`, true), "idempotency-key", d.service)
		equal(t, "a repeated send", first,
			c.call("SendMessage", d.send("", `{"op":"complete"}`, true), "idempotency-key", d.service))
		_, _, st := c.try("SendMessage", d.send("", `{"op":"fail"}`, true), "idempotency-key", d.service)
		wantStatus(t, "another message with the key", st, codes.InvalidArgument, "INVALID_PARAMS")
	})
}

// TestGRPCMalformed: a malformed message is an error of the client, and so is text that is not
// UTF-8.
func TestGRPCMalformed(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(*rpc.Config) {})
	path, _, resp := caller{t, conn, service03}.method("GetTask")
	err := conn.Invoke(t.Context(), path, wrapperspb.Bytes([]byte{0xff}), resp) // instead of the resource name
	wantStatus(t, "a name that is no text", status.Convert(err), codes.InvalidArgument, "PARSE_ERROR")
}
