package v03_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

// The corpus of S-15: a full request of each method is walked along the 0.3.0 schema,
// and every member it finds is left out, nulled, given each wrong type and each wrong
// constant, one at a time.

const fullMessage = `{"kind":"message","messageId":"m","role":"user","contextId":"c","taskId":"t","referenceTaskIds":["r"],"extensions":["e"],"metadata":{"k":1},"parts":[
	{"kind":"text","text":"t","metadata":{}},{"kind":"file","file":{"bytes":"QQ==","mimeType":"m/t","name":"n"},"metadata":{}},
	{"kind":"file","file":{"uri":"https://u","mimeType":"m/t","name":"n"},"metadata":{}},{"kind":"data","data":{"k":1},"metadata":{}}]}`

const fullPush = `{"id":"p","url":"https://u","token":"t","authentication":{"schemes":["Bearer"],"credentials":"c"}}`

const fullSend = `{"message":` + fullMessage + `,"metadata":{},"configuration":{"blocking":true,"historyLength":1,"acceptedOutputModes":["a/b"],"pushNotificationConfig":` + fullPush + `}}`

var requests = []struct{ method, definition, full string }{
	{"message/send", "MessageSendParams", fullSend},
	{"message/stream", "MessageSendParams", fullSend},
	{"tasks/get", "TaskQueryParams", `{"id":"x","historyLength":1,"metadata":{}}`},
	{"tasks/cancel", "TaskIdParams", `{"id":"x","metadata":{}}`},
	{"tasks/resubscribe", "TaskIdParams", `{"id":"x","metadata":{}}`},
	{"tasks/pushNotificationConfig/set", "TaskPushNotificationConfig", `{"taskId":"x","pushNotificationConfig":` + fullPush + `}`},
	{"tasks/pushNotificationConfig/get", "GetTaskPushNotificationConfigParams", `{"id":"x","pushNotificationConfigId":"p","metadata":{}}`},
	{"tasks/pushNotificationConfig/list", "ListTaskPushNotificationConfigParams", `{"id":"x","metadata":{}}`},
	{"tasks/pushNotificationConfig/delete", "DeleteTaskPushNotificationConfigParams", `{"id":"x","pushNotificationConfigId":"p","metadata":{}}`},
}

// inferred are the required members that may be missing all the same: L-03 and L-08.
func inferred(path string) bool {
	return path == "message.kind" || strings.HasPrefix(path, "message.parts[") && strings.HasSuffix(path, "].kind")
}

func TestEveryFieldOfEveryRequest(t *testing.T) {
	t.Parallel()
	var root struct {
		Definitions map[string]*node `json:"definitions"`
	}
	if err := json.Unmarshal(readFile(t, "testdata/a2a-0.3.0.schema.json"), &root); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, r := range requests {
		c := &corpus{defs: root.Definitions, full: []byte(r.full)}
		var doc any
		if err := json.Unmarshal(c.full, &doc); err != nil {
			t.Fatal(err)
		}
		c.object(t, root.Definitions[r.definition], doc.(map[string]any), nil)
		for _, m := range c.cases {
			total++
			for _, lenient := range []bool{false, true} {
				_, _, err := decode(t, lenient, r.method, m.params)
				switch {
				case m.field == "" && err != nil:
					t.Errorf("%s with %s: %v", r.method, m.what, err)
				case m.field != "":
					if lenient && strings.HasSuffix(m.field, "].data") && strings.Contains(m.what, " = ") {
						continue // any value is data there: L-07
					}
					wantInvalid(t, err, m.field, r.method, m.what)
				}
			}
		}
	}
	if total < 750 {
		t.Errorf("the corpus has shrunk to %d requests", total)
	}
}

// node is as much of JSON Schema as the requests of the protocol use.
type node struct {
	Ref        string           `json:"$ref"`
	Type       any              `json:"type"`
	Const      any              `json:"const"`
	Enum       []string         `json:"enum"`
	Properties map[string]*node `json:"properties"`
	Required   []string         `json:"required"`
	Items      *node            `json:"items"`
	AnyOf      []*node          `json:"anyOf"`
}

type mutation struct{ what, params, field string }

type corpus struct {
	defs  map[string]*node
	full  []byte
	cases []mutation
}

// resolve follows references, and of alternatives takes the one that value is of.
func (c *corpus) resolve(n *node, value any) *node {
	for n.Ref != "" {
		n = c.defs[strings.TrimPrefix(n.Ref, "#/definitions/")]
	}
	for _, alternative := range n.AnyOf {
		alternative = c.resolve(alternative, value)
		object, _ := value.(map[string]any)
		fits := func(member string) bool {
			v, ok := object[member]
			p := alternative.Properties[member]
			return ok && (p.Const == nil || p.Const == v)
		}
		if !slices.ContainsFunc(alternative.Required, func(m string) bool { return !fits(m) }) {
			return alternative
		}
	}
	return n
}

func (c *corpus) object(t *testing.T, n *node, value map[string]any, path []any) {
	for name, p := range n.Properties {
		v, ok := value[name]
		if !ok {
			t.Errorf("the full request lacks %s", name)
			continue
		}
		at := append(slices.Clone(path), name)
		p = c.resolve(p, v)
		required := slices.Contains(n.Required, name)
		field := pathOf(at)
		if field == "message.parts[2].file.uri" {
			field = "message.parts[2].file.bytes" // one of the two is missing
		}
		if !required || inferred(field) {
			field = ""
		}
		c.add("without "+pathOf(at), field, at, nil, true)
		c.add("null for "+pathOf(at), field, at, nil, false)
		c.value(t, p, v, at)
	}
	c.add("an unknown member in "+pathOf(path), "", append(slices.Clone(path), "unknown"), []any{1}, false)
}

func (c *corpus) value(t *testing.T, n *node, v any, at []any) {
	wrong := map[any][]any{
		"string": {1, true, map[string]any{}, []any{}}, "boolean": {"true", 0, map[string]any{}, []any{}}, "integer": {"1", 1.5, true, map[string]any{}, []any{}},
		"object": {"x", 1, true, []any{}}, "array": {"x", 1, true, map[string]any{}},
	}[n.Type]
	if wrong == nil {
		t.Errorf("%s: the schema has the type %v", pathOf(at), n.Type)
	}
	if n.Const != nil || n.Enum != nil {
		wrong = append(wrong, "", "other", strings.ToUpper(v.(string)))
	}
	for _, w := range wrong {
		field := pathOf(at)
		if _, list := w.([]any); list && strings.HasSuffix(field, "].data") {
			field = "" // an array may be data: TCK03 sends one
		}
		text, _ := json.Marshal(w)
		c.add(pathOf(at)+" = "+string(text), field, at, w, false)
	}
	switch v := v.(type) {
	case map[string]any:
		c.object(t, n, v, at)
	case []any:
		for i, e := range v {
			element := append(slices.Clone(at), i)
			c.add("null for "+pathOf(element), pathOf(element), element, nil, false)
			c.value(t, c.resolve(n.Items, e), e, element)
		}
	}
}

// add makes a copy of the full request with one change.
func (c *corpus) add(what, field string, at []any, v any, remove bool) {
	var doc any
	_ = json.Unmarshal(c.full, &doc) // parsed before
	holder := doc
	for _, step := range at[:len(at)-1] {
		holder = child(holder, step)
	}
	switch last := at[len(at)-1].(type) {
	case int:
		holder.([]any)[last] = v
	case string:
		if holder.(map[string]any)[last] = v; remove {
			delete(holder.(map[string]any), last)
		}
	}
	params, _ := json.Marshal(doc)
	c.cases = append(c.cases, mutation{what, string(params), field})
}

func child(v any, step any) any {
	if i, ok := step.(int); ok {
		return v.([]any)[i]
	}
	return v.(map[string]any)[step.(string)]
}

func pathOf(at []any) string {
	var b strings.Builder
	for i, step := range at {
		switch step := step.(type) {
		case int:
			b.WriteString("[" + strconv.Itoa(step) + "]")
		case string:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

// TestFullRequests: the requests that the corpus starts from are read, and none of
// them needs a lenient rule.
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
		valid(t, schema(t, r.definition), []byte(r.full))
	}
}
