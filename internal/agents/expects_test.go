package agents_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
)

func TestExpects(t *testing.T) {
	t.Parallel()
	text := func(s string) a2a.Part { return a2a.Part{Kind: a2a.PartText, Text: s} }
	data := func(s string) a2a.Part { return a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(s)} }
	const yesNo = `{"choices":["yes","no"]}`
	const amount = `{"schema":{"type":"object","properties":{"amount":{"type":"integer"}}}}`
	for _, tt := range []struct {
		expects string
		parts   []a2a.Part
		want    string
	}{
		{`{"text":true}`, []a2a.Part{text("x")}, ""},
		{`{"text":true}`, []a2a.Part{text(" "), data("1")}, "message.parts: the task expects a text"},
		{yesNo, []a2a.Part{text(" yes\n")}, ""},
		{yesNo, []a2a.Part{text("maybe")}, `message.parts: the task expects one of "yes", "no"`},
		{yesNo, nil, `message.parts: the task expects one of "yes", "no"`},
		{amount, []a2a.Part{text("here"), data(`{"amount":5}`)}, ""},
		{amount, []a2a.Part{text("here"), data(`{"amount":"5"}`)},
			"message.parts[1].data.amount: got string, want integer"},
		{amount, []a2a.Part{text("5")},
			"message.parts: the task expects a data part, which fits the schema in its question"},
	} {
		x, err := agents.ParseExpects(a2a.Raw(tt.expects))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := x.Check(&a2a.Message{Parts: tt.parts}); err != nil {
			got = err.Error()
			if a2a.CodeOf(err) != a2a.CodeInvalidParams {
				t.Errorf("%s: %v is not CodeInvalidParams", tt.expects, err)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.expects, got, tt.want)
		}
	}
	for in, want := range map[string]string{
		`{}`:               "wait.expects must have exactly one of text, choices and schema",
		`{"text":false}`:   "wait.expects.text must be true",
		`{"choices":[]}`:   "wait.expects.choices must have 1 to 100 texts",
		`{"choices":[""]}`: "wait.expects.choices[0] must be a text without spaces around it",
		`{"number":true}`:  "wait.expects.number is unknown",
		`{"schema":{"$ref":"file:///etc/passwd"}}`: "wait.expects.schema refers to file:///etc/passwd, which " +
			"a2ad does not fetch; copy it under $defs and refer to #/$defs/NAME",
	} {
		if _, err := agents.ParseExpects(a2a.Raw(in)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}
