package rpc_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/store/db"
)

// TestEveryOperationNeedsItsScopes: over every binding, an operation succeeds with only its own
// scopes. Without one of them it is refused, even with all others: the error names the missing
// scope, and nothing changes.
func TestEveryOperationNeedsItsScopes(t *testing.T) {
	t.Parallel()
	const read, write, hooks = auth.ScopeTasksRead, auth.ScopeTasksWrite, auth.ScopePushWrite
	for _, binding := range slices.Sorted(maps.Keys(tellers(nil, nil))) {
		t.Run(binding, func(t *testing.T) {
			t.Parallel()
			m := newMatrix(t)
			as := m.tellers()[binding]
			for _, tt := range []struct {
				what   string
				op     operation
				scopes []auth.Scope
			}{
				{"a message", operation{name: "SendMessage", script: `{"op":"input"}`}, []auth.Scope{write}},
				{"a message that is streamed", operation{name: "SendStreamingMessage", script: `{"op":"complete"}`},
					[]auth.Scope{write}},
				{"a message with a webhook", operation{name: "SendMessage", script: `{"op":"input"}`, hook: true},
					[]auth.Scope{write, hooks}},
				{"a streamed message with a webhook",
					operation{name: "SendStreamingMessage", script: `{"op":"complete"}`, hook: true},
					[]auth.Scope{write, hooks}},
				{"a read", operation{name: "GetTask"}, []auth.Scope{read}},
				{"a list", operation{name: "ListTasks", size: "1"}, []auth.Scope{read}},
				{"a stream", operation{name: "SubscribeToTask"}, []auth.Scope{read}},
				{"a webhook", operation{name: "CreateTaskPushNotificationConfig"}, []auth.Scope{hooks}},
				{"reading a webhook", operation{name: "GetTaskPushNotificationConfig"}, []auth.Scope{read}},
				{"a list of webhooks", operation{name: "ListTaskPushNotificationConfigs"}, []auth.Scope{read}},
				{"the end of a webhook", operation{name: "DeleteTaskPushNotificationConfig"}, []auth.Scope{hooks}},
				{"a cancel", operation{name: "CancelTask"}, []auth.Scope{write}},
				{"the extended card", operation{name: "GetExtendedAgentCard"}, []auth.Scope{read}},
			} {
				x := m.make(t, as, "owner")
				if !strings.HasPrefix(tt.op.name, "Send") {
					tt.op.task, tt.op.config = x.task, x.config
				}
				before := m.view(t, as, x) + m.total(t, as)
				for _, missing := range tt.scopes {
					op := tt.op
					op.apiKey = m.keys[with(slices.DeleteFunc(auth.Scopes(),
						func(s auth.Scope) bool { return s == missing })...)]
					got := as.tell(t, &op, true)
					if !got.failed || !strings.Contains(got.raw, "FORBIDDEN") ||
						!strings.Contains(got.text, `error="insufficient_scope", scope="`+string(missing)+`"`) {
						t.Errorf("%s without %s: %s", tt.what, missing, got.text)
					}
					// The refusal does not reveal whether the task exists.
					op.task = strings.Replace(op.task, "-7", "-8", 1)
					if none := as.tell(t, &op, true); op.task != "" && none.text != got.text {
						t.Errorf("%s without %s: got %s for an existing task, %s for an unknown one", tt.what, missing,
							got.text, none.text)
					}
				}
				if after := m.view(t, as, x) + m.total(t, as); after != before {
					t.Errorf("%s without its scopes changed\n%s\nto\n%s", tt.what, before, after)
				}
				op := tt.op
				op.apiKey = m.keys[with(tt.scopes...)]
				// Read a message's stream to its end, so that its task does not change during the
				// next operation.
				// This agent has no extended card.
				got := as.tell(t, &op, !strings.HasPrefix(op.name, "Send"))
				if strings.Contains(got.raw, "FORBIDDEN") || got.failed && op.name != "GetExtendedAgentCard" {
					t.Errorf("%s with %v: %s", tt.what, tt.scopes, got.text)
				}
			}
		})
	}
}

// total is the number of tasks that the owner can list.
func (m *matrix) total(t *testing.T, as teller) string {
	t.Helper()
	op := operation{name: "ListTasks", size: "100", apiKey: m.keys["owner"]}
	return as.tell(t, &op, false).text
}

// TestLimitsOfWebhooksAndPages exceeds these limits over every binding.
func TestLimitsOfWebhooksAndPages(t *testing.T) {
	t.Parallel()
	m := newMatrix(t, func(e *engine.Config, _ *rpc.Config) {
		e.Push.Max, e.MaxPageToken = 2, 300
	})
	for binding, as := range m.tellers() {
		x := m.make(t, as, "owner") // x has one webhook
		try := func(op operation) told {
			op.apiKey = m.keys["owner"]
			return as.tell(t, &op, false)
		}
		two := operation{name: "CreateTaskPushNotificationConfig", task: x.task, config: "two"}
		if got := try(two); got.failed {
			t.Errorf("%s, the second webhook: %s", binding, got.text)
		}
		if got := try(two); got.failed {
			t.Errorf("%s, replacing the second webhook: %s", binding, got.text)
		}
		three := operation{name: "CreateTaskPushNotificationConfig", task: x.task, config: "three"}
		if got := try(three); !strings.Contains(got.raw, "INVALID_PARAMS") ||
			!strings.Contains(got.raw, "the task has its limit of 2 webhooks") {
			t.Errorf("%s, the third webhook: %s", binding, got.text)
		}
		if got := try(operation{name: "ListTaskPushNotificationConfigs", task: x.task}); got.failed ||
			strings.Contains(got.raw, "three") {
			t.Errorf("%s: %s", binding, got.text)
		}
		for _, token := range []string{strings.Repeat("A", 300), strings.Repeat("A", 301), x.token + "A"} {
			got := try(operation{name: "ListTasks", context: x.context, size: "1", token: token})
			if !strings.Contains(got.raw, "INVALID_PARAMS") ||
				!strings.Contains(got.raw, "not a page token of this list") {
				t.Errorf("%s, a page token of %d bytes: %s", binding, len(token), got.text)
			}
		}
	}
}

// TestRequiredExtensionIsRequired: every operation over every binding needs it, and the answer
// names the active extensions. Without it nothing changes, and the error does not reveal what
// exists.
func TestRequiredExtensionIsRequired(t *testing.T) {
	t.Parallel()
	const uri = "https://example.com/required/v1"
	m := newMatrix(t, func(_ *engine.Config, c *rpc.Config) {
		c.Agents[0].Card.Extensions = []a2a.Extension{{URI: uri, Required: true}}
	})
	for _, binding := range slices.Sorted(maps.Keys(tellers(nil, nil))) {
		t.Run(binding, func(t *testing.T) {
			t.Parallel()
			as := m.tellers()[binding]
			asking := func(op operation) told {
				op.apiKey, op.extension = m.keys["owner"], uri
				return as.tell(t, &op, true)
			}
			for _, p := range probes {
				x := thing{task: db.NewTaskID().String(), context: "c", config: "x", event: "1-00000000",
					key: "k", key2: "l"}
				op := p.op(x, x.task)
				op.apiKey = m.keys["owner"]
				if got := as.tell(t, &op, true); !strings.Contains(got.raw, "EXTENSION_SUPPORT_REQUIRED") {
					t.Errorf("%s without the extension: %s", p.name, got.text)
				}
			}
			list := operation{name: "ListTasks", size: "1", context: "c"}
			if got := asking(list); got.failed || strings.Contains(got.raw, `"contextId"`) {
				t.Errorf("a refused operation took effect: %s", got.text)
			}
			got := asking(operation{name: "SendMessage", context: "of " + binding, script: `{"op":"complete"}`})
			if got.failed || !strings.Contains(got.text, "A2a-Extensions: ") || !strings.Contains(got.text, uri) {
				t.Errorf("with the extension: %s", got.text)
			}
		})
	}
}
