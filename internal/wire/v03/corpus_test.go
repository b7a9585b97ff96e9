package v03_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

const fullMessage = `{"kind":"message","messageId":"m","role":"user","contextId":"c","taskId":"t",
	"referenceTaskIds":["r"],"extensions":["e"],"metadata":{"k":1},"parts":[
	{"kind":"text","text":"t","metadata":{}},
	{"kind":"file","file":{"bytes":"QQ==","mimeType":"m/t","name":"n"},"metadata":{}},
	{"kind":"file","file":{"uri":"https://u","mimeType":"m/t","name":"n"},"metadata":{}},
	{"kind":"data","data":{"k":1},"metadata":{}}]}`

const fullPush = `{"id":"p","url":"https://u","token":"t","authentication":{"schemes":["Bearer"],"credentials":"c"}}`

const fullSend = `{"message":` + fullMessage +
	`,"metadata":{},"configuration":{"blocking":true,"historyLength":1,"acceptedOutputModes":["a/b"],` +
	`"pushNotificationConfig":` + fullPush + `}}`

var requests = []struct{ method, definition, full string }{
	{"message/send", "MessageSendParams", fullSend},
	{"message/stream", "MessageSendParams", fullSend},
	{"tasks/get", "TaskQueryParams", `{"id":"x","historyLength":1,"metadata":{}}`},
	{"tasks/cancel", "TaskIdParams", `{"id":"x","metadata":{}}`},
	{"tasks/resubscribe", "TaskIdParams", `{"id":"x","metadata":{}}`},
	{"tasks/pushNotificationConfig/set", "TaskPushNotificationConfig",
		`{"taskId":"x","pushNotificationConfig":` + fullPush + `}`},
	{"tasks/pushNotificationConfig/get", "GetTaskPushNotificationConfigParams",
		`{"id":"x","pushNotificationConfigId":"p","metadata":{}}`},
	{"tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfigParams", `{"id":"x","metadata":{}}`},
	{"tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfigParams",
		`{"id":"x","pushNotificationConfigId":"p","metadata":{}}`},
}

// missing allows that message.kind and the kind of a part are missing (L-03, L-08).
func missing(path string, required, _ bool) string {
	switch {
	case !required, path == "message.kind", strings.HasPrefix(path, "message.parts[") &&
		strings.HasSuffix(path, "].kind"):
		return ""
	case path == "message.parts[2].file.uri":
		return "message.parts[2].file.bytes" // one of the two contents is required
	}
	return path
}

func wrong(path string, n *wiretest.Node, v any) []any {
	list := wiretest.WrongType(n)
	if n.Const != nil || n.Enum != nil {
		list = append(list, "", "other", strings.ToUpper(v.(string)))
	}
	if strings.HasSuffix(path, "].data") {
		return list[:len(list)-1] // data may be an array, because the 0.3 kit sends one
	}
	return list
}

func TestEveryFieldOfEveryRequest(t *testing.T) {
	t.Parallel()
	var root struct {
		Definitions map[string]*wiretest.Node `json:"definitions"`
	}
	if err := json.Unmarshal(wiretest.ReadFile(t, schemas.File), &root); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, r := range requests {
		c := wiretest.Corpus{Full: r.full, Missing: missing, Wrong: wrong, Resolve: func(ref string) *wiretest.Node {
			return root.Definitions[strings.TrimPrefix(ref, "#/definitions/")]
		}}
		for _, m := range c.Cases(t, root.Definitions[r.definition]) {
			total++
			for _, lenient := range []bool{false, true} {
				_, _, err := decode(t, lenient, r.method, m.Params)
				switch {
				case m.Field == "" && err != nil:
					t.Errorf("%s with %s: %v", r.method, m.What, err)
				case m.Field != "":
					if lenient && strings.HasSuffix(m.Field, "].data") && strings.Contains(m.What, " = ") {
						continue // any value is data there: L-07
					}
					wiretest.WantInvalid(t, err, m.Field, r.method, m.What)
				}
			}
		}
	}
	if total < 750 {
		t.Errorf("the corpus has shrunk to %d requests", total)
	}
}

// The full requests of the corpus must be valid without any lenient rule.
func TestFullRequests(t *testing.T) {
	t.Parallel()
	for _, r := range requests {
		for _, lenient := range []bool{false, true} {
			op, rules, err := decode(t, lenient, r.method, r.full)
			if err != nil || len(rules) > 0 {
				t.Errorf("%s: %v, rules %v", r.method, err, rules)
			}
			if send, ok := op.(*a2a.SendMessage); ok && (len(send.Message.Parts) != 4 || send.Push == nil) {
				t.Errorf("%s: %+v", r.method, send)
			}
		}
		wiretest.Valid(t, schema(t, r.definition), []byte(r.full))
	}
}
