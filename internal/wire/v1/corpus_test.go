package v1_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

const fullMessage = `{"messageId":"m","role":"ROLE_USER","contextId":"c","taskId":"t","referenceTaskIds":["r"],
	"extensions":["e"],"metadata":{"k":1},"parts":[
	{"text":"t","mediaType":"m/t","filename":"n","metadata":{}},
	{"raw":"QQ==","mediaType":"m/t","filename":"n","metadata":{}},
	{"url":"https://u","mediaType":"m/t","filename":"n","metadata":{}},
	{"data":{"k":1},"mediaType":"m/t","filename":"n","metadata":{}}]}`

const fullPush = `{"tenant":"a","id":"p","taskId":"t","url":"https://u","token":"t",` +
	`"authentication":{"scheme":"Bearer","credentials":"c"}}`

const fullSend = `{"tenant":"a","message":` + fullMessage +
	`,"metadata":{},"configuration":{"returnImmediately":true,"historyLength":1,"acceptedOutputModes":["a/b"],` +
	`"taskPushNotificationConfig":` + fullPush + `}}`

var requests = []struct{ method, definition, full string }{
	{"SendMessage", "SendMessageRequest", fullSend},
	{"SendStreamingMessage", "SendMessageRequest", fullSend},
	{"GetTask", "GetTaskRequest", `{"tenant":"a","id":"x","historyLength":1}`},
	{"ListTasks", "ListTasksRequest",
		`{"tenant":"a","contextId":"c","status":"TASK_STATE_WORKING","pageSize":1,"pageToken":"p","historyLength":1,` +
			`"statusTimestampAfter":"2026-11-20T10:00:00.000Z","includeArtifacts":true}`},
	{"CancelTask", "CancelTaskRequest", `{"tenant":"a","id":"x","metadata":{}}`},
	{"SubscribeToTask", "SubscribeToTaskRequest", `{"tenant":"a","id":"x"}`},
	{"CreateTaskPushNotificationConfig", "TaskPushNotificationConfig", fullPush},
	{"GetTaskPushNotificationConfig", "GetTaskPushNotificationConfigRequest", `{"tenant":"a","id":"p","taskId":"x"}`},
	{"ListTaskPushNotificationConfigs", "ListTaskPushNotificationConfigsRequest",
		`{"tenant":"a","taskId":"x","pageSize":1,"pageToken":"p"}`},
	{"DeleteTaskPushNotificationConfig", "DeleteTaskPushNotificationConfigRequest",
		`{"tenant":"a","id":"p","taskId":"x"}`},
	{"GetExtendedAgentCard", "GetExtendedAgentCardRequest", `{"tenant":"a"}`},
}

// nodes returns the definitions of the schema for the corpus.
func nodes(t *testing.T) (byName map[string]*wiretest.Node, resolve func(ref string) *wiretest.Node) {
	t.Helper()
	var doc any
	if err := json.Unmarshal(wiretest.ReadFile(t, schemas.File), &doc); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(wiretest.StrictV1(doc))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &byName); err != nil {
		t.Fatal(err)
	}
	return byName, func(ref string) *wiretest.Node {
		words := strings.Split(strings.TrimSuffix(ref, ".jsonschema.json"), ".")
		return byName[words[len(words)-1]]
	}
}

// missing returns the member with the error. A part without content is itself invalid, and null is valid
// content for data. A webhook inside a message needs no task.
func missing(path string, required, null bool) string {
	switch {
	case strings.HasSuffix(path, "].data") && null, path == "configuration.taskPushNotificationConfig.taskId":
		return ""
	case required:
		return path
	}
	for _, content := range []string{"].text", "].raw", "].url", "].data"} {
		if part, ok := strings.CutSuffix(path, content); ok {
			return part + "]"
		}
	}
	return ""
}

func wrong(_ string, n *wiretest.Node, v any) []any {
	switch {
	case n.Enum != nil:
		return []any{99, -1, 1.5, true, map[string]any{}, []any{}, "", "other", "1", strings.ToLower(v.(string)),
			v.(string) + " "}
	case n.Type == "integer":
		return []any{"", "x", "1.5", " 1", 1.5, -1, true, map[string]any{}, []any{}}
	}
	return wiretest.WrongType(n)
}

// Every request of the corpus must mean the same with its members in camelCase and in snake_case.
func TestEveryFieldOfEveryRequest(t *testing.T) {
	t.Parallel()
	byName, resolve := nodes(t)
	total := 0
	for _, r := range requests {
		c := wiretest.Corpus{Full: r.full, Missing: missing, Wrong: wrong, Resolve: resolve}
		for _, m := range c.Cases(t, byName[r.definition]) {
			total++
			op, err := decode(t, r.method, m.Params)
			if m.Field != "" {
				wiretest.WantInvalid(t, err, m.Field, r.method, m.What)
			} else if err != nil {
				t.Errorf("%s with %s: %v", r.method, m.What, err)
			}
			snake, snakeErr := decode(t, r.method, snakeCase(t, m.Params))
			if diff := cmp.Diff(op, snake, sameDigest); diff != "" || (err == nil) != (snakeErr == nil) ||
				err != nil && err.Error() != snakeErr.Error() {
				t.Errorf("%s with %s: in snake_case %v instead of %v\n%s", r.method, m.What, snakeErr, err, diff)
			}
		}
	}
	if total < 750 {
		t.Errorf("the corpus has shrunk to %d requests", total)
	}
}

var sameDigest = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Digest" }, cmp.Ignore())

// snakeCase renames every member of a request. Members of free-form values have no capitals.
func snakeCase(t *testing.T, params string) string {
	t.Helper()
	var doc any
	if err := json.Unmarshal([]byte(params), &doc); err != nil {
		t.Fatal(err)
	}
	renameAll(doc, func(_ string) bool { return true })
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func renameAll(v any, which func(name string) bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			renameAll(e, which)
		}
	case map[string]any:
		for name, member := range v {
			renameAll(member, which)
			if snake := snakeName(name); snake != name && which(name) {
				delete(v, name)
				v[snake] = member
			}
		}
	}
}

func snakeName(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// The request has one member under both of its names.
func TestBothNames(t *testing.T) {
	t.Parallel()
	total := 0
	for _, r := range requests {
		var doc map[string]any
		if err := json.Unmarshal([]byte(r.full), &doc); err != nil {
			t.Fatal(err)
		}
		each(doc, nil, func(path []any, holder map[string]any, name string) {
			total++
			holder[snakeName(name)] = holder[name]
			params, _ := json.Marshal(doc)
			delete(holder, snakeName(name))
			_, err := decode(t, r.method, string(params))
			wiretest.WantInvalid(t, err, wiretest.PathOf(append(path, name)), r.method, string(params))
		})
	}
	if total < 30 {
		t.Errorf("only %d members have two names", total)
	}
}

// each calls f for every member, at any depth, that has a second name.
func each(v any, path []any, f func(path []any, holder map[string]any, name string)) {
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			each(e, append(path, i), f)
		}
	case map[string]any:
		for name, member := range v {
			each(member, append(path, name), f)
		}
		for name := range v {
			if snakeName(name) != name {
				f(path, v, name)
			}
		}
	}
}

// The full requests of the corpus must be valid and readable.
func TestFullRequests(t *testing.T) {
	t.Parallel()
	for _, r := range requests {
		op, err := decode(t, r.method, r.full)
		if err != nil {
			t.Errorf("%s: %v", r.method, err)
		}
		if send, ok := op.(*a2a.SendMessage); ok && (len(send.Message.Parts) != 4 || send.Push == nil) {
			t.Errorf("%s: %+v", r.method, send)
		}
		wiretest.Valid(t, schema(t, r.definition), []byte(r.full))
		if tenant := codec.Tenant([]byte(r.full)); tenant != "a" {
			t.Errorf("%s: tenant %q", r.method, tenant)
		}
	}
	if _, err := decode(t, "getTask", `{"id":"x"}`); a2a.CodeOf(err) != a2a.CodeMethodNotFound ||
		errors.Unwrap(err) != nil {
		t.Errorf("unknown method: %v", err)
	}
}
