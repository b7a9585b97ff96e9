package agents

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/schema"
)

const maxChoices = 100

// Expects says what the answer to a question must look like: a text, one of several texts, or a data part that fits a
// JSON Schema.
type Expects struct {
	choices []string
	schema  *schema.Schema
}

// ParseExpects reads the member expects of a wait. Its errors are for the agent's author.
func ParseExpects(v a2a.Raw) (*Expects, error) {
	x, n := &Expects{}, 0
	for k, v := range rawjson.Members(v) {
		n++
		switch key := string(k); key {
		case "text":
			if yes, ok := rawjson.Bool(v); !ok || !yes {
				return nil, fmt.Errorf("wait.expects.text must be true")
			}
		case "choices":
			for e := range rawjson.Elements(v) {
				text, ok := rawjson.String(e)
				if !ok || strings.TrimSpace(text) != text || text == "" {
					return nil, fmt.Errorf("wait.expects.choices[%d] must be a text without spaces around it",
						len(x.choices))
				}
				x.choices = append(x.choices, text)
			}
			if len(x.choices) == 0 || len(x.choices) > maxChoices {
				return nil, fmt.Errorf("wait.expects.choices must have 1 to %d texts", maxChoices)
			}
		case "schema":
			var err error
			if x.schema, err = schema.Compile(v); err != nil {
				return nil, fmt.Errorf("wait.expects.schema %w", err)
			}
		default:
			return nil, fmt.Errorf("wait.expects.%s is unknown", clip(key))
		}
	}
	if n != 1 {
		return nil, fmt.Errorf("wait.expects must have exactly one of text, choices and schema")
	}
	return x, nil
}

// CheckAnswer returns an error for the client if the message is not what the question expects.
func CheckAnswer(expects a2a.Raw, m *a2a.Message) error {
	x, err := ParseExpects(expects)
	if err != nil {
		return nil //nolint:nilerr // it was read when the agent asked: a later version stored it, and knows more forms
	}
	return x.Check(m)
}

// Check returns an error for the client if the message is no answer. It names the place of the fault.
func (x *Expects) Check(m *a2a.Message) error {
	var text []string
	data := -1
	for i := range m.Parts {
		switch p := &m.Parts[i]; {
		case p.Kind == a2a.PartText:
			text = append(text, p.Text)
		case p.Kind == a2a.PartData && data < 0:
			data = i
		}
	}
	said := strings.TrimSpace(strings.Join(text, " "))
	switch {
	case x.schema != nil && data < 0:
		return a2a.InvalidParams("message.parts", "the task expects a data part, which fits the schema in its question")
	case x.schema != nil:
		if path, mismatch := x.schema.Check(m.Parts[data].Data); mismatch != "" {
			return a2a.InvalidParams(fmt.Sprintf("message.parts[%d].data%s", data, path), "%s", mismatch)
		}
	case len(x.choices) > 0:
		if !slices.Contains(x.choices, said) {
			return a2a.InvalidParams("message.parts", "the task expects one of %s", quoteAll(x.choices))
		}
	case said == "":
		return a2a.InvalidParams("message.parts", "the task expects a text")
	}
	return nil
}

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = strconv.Quote(s)
	}
	return strings.Join(quoted, ", ")
}
