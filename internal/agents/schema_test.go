package agents_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
)

// research is the skill of the card sample that has schemas.
const research = `name: research
description: Researches topics.
skills:
  - id: research_topic
    name: Research Topic
    description: Research a topic and return detailed findings with sources
    inputSchema:
      type: object
      properties:
        topic: {type: string}
        depth: {type: string, enum: [brief, detailed, comprehensive]}
        list: {type: array, uniqueItems: true, maxItems: 200000, items: {anyOf: [{type: integer}, {type: "null"}]}}
        "a b": {type: boolean}
        n: {type: number, maximum: 10}
        tree: {$ref: "#/$defs/tree"}
      required: [topic]
      $defs:
        tree: {type: object, properties: {next: {$ref: "#/$defs/tree"}}, additionalProperties: false}
    output_schema: {type: object, properties: {summary: {type: string}, score: {type: number, minimum: -1.5e3}}}
executor: {echo: {}}
`

func TestSchemasKeepTheirBytes(t *testing.T) {
	t.Parallel()
	files, err := agents.Load(write(t, "a.yaml", research))
	if err != nil {
		t.Fatal(err)
	}
	s := files[0].Agent.Card.Skills[0]
	if got, want := string(s.OutputSchema), `{"type":"object",`+
		`"properties":{"summary":{"type":"string"},"score":{"type":"number","minimum":-1.5e3}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !strings.HasPrefix(string(s.InputSchema), `{"type":"object","properties":{"topic":{"type":"string"},"depth":`) {
		t.Errorf("got %s", s.InputSchema)
	}
}

func TestCheckReportsTheMismatchAndItsPath(t *testing.T) {
	t.Parallel()
	files, err := agents.Load(write(t, "a.yaml", research))
	if err != nil {
		t.Fatal(err)
	}
	schema := files[0].Agent.Inputs["research_topic"]
	for _, tc := range []struct{ value, path, mismatch string }{
		{`{"topic":"x","depth":"brief","list":[1,2,null],"a b":true,"tree":{"next":{}}}`, "", ""},
		{`{"topic":"\u0000\ud800","n":1e-400}`, "", ""},
		{`1`, "", "got number, want object"},
		{`{}`, "", "missing property 'topic'"},
		{`{"topic":1,"depth":"x"}`, ".depth", "value must be one of 'brief', 'detailed', 'comprehensive'"},
		{`{"topic":1,"a b":1}`, `["a b"]`, "got number, want boolean"},
		{`{"topic":"x","list":[1,"x"]}`, ".list[1]", "fits none of the alternatives (anyOf)"},
		{`{"topic":"x","list":[1,1.0]}`, ".list", "items at 0 and 1 are equal"},
		{`{"topic":"x","n":1e400}`, ".n", ""},
		{`{"topic":"x","n":1e401}`, "", "holds a number of too many digits to be checked"},
		{`{"topic":"x","n":1e999999999999999999999}`, "", "holds a number of too many digits to be checked"},
		{`{"topic":"x","n":` + strings.Repeat("1", 401) + `}`, "", "holds a number of too many digits to be checked"},
		{`{"topic":"x","tree":{"next":{"next":{"nest":1}}}}`, ".tree.next.next",
			"additional properties 'nest' not allowed"},
		{`{"topic":"x","list":[` + strings.Repeat("0,", 100_000) + `0]}`, "",
			"holds more than 100000 values, too many to be checked"},
	} {
		path, mismatch := schema.Check(a2a.Raw(tc.value))
		if path != tc.path || tc.mismatch != mismatch && (tc.mismatch != "" || path == "") {
			t.Errorf("%.60s: got %q, %q, want %q, %q", tc.value, path, mismatch, tc.path, tc.mismatch)
		}
	}
}

// The cost of a check must be bounded by the size of the value that the client sends.
func TestCostOfACheckIsBounded(t *testing.T) {
	t.Parallel()
	files, err := agents.Load(write(t, "a.yaml", research))
	if err != nil {
		t.Fatal(err)
	}
	schema := files[0].Agent.Inputs["research_topic"]
	for name, value := range map[string]string{
		"numbers": `{"topic":"x","list":[` + strings.Repeat(`1e399,`, 50_000) + `0]}`,
		"wrong":   `{"topic":"x","list":[` + strings.Repeat(`{},`, 90_000) + `0]}`,
		"names":   `{"topic":{"` + strings.Repeat("x", 1<<20) + `":1}}`,
	} {
		start := time.Now()
		if _, mismatch := schema.Check(a2a.Raw(value)); mismatch == "" || len(mismatch) > 500 {
			t.Errorf("%s: mismatch %.100q of %d bytes", name, mismatch, len(mismatch))
		}
		// A cost that is not bounded takes hours.
		if took := time.Since(start); took > 5*time.Minute {
			t.Errorf("%s took %s", name, took)
		}
	}
}

func TestSchemaFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ schema, want string }{
		{"[]", `a.yaml:5: input_schema must be a JSON Schema, which is a mapping, not a list; ` +
			`write {type: object, properties: {…}}`},
		{"\n      type: object\n      properties:\n        a: {type: txt}",
			`a.yaml:8: input_schema is not a JSON Schema: .properties.a.type: fits none of the alternatives (anyOf)`},
		{"\n      type: object\n      required: a",
			`a.yaml:7: input_schema is not a JSON Schema: .required: got string, want array`},
		{"{$ref: other.json}",
			`a.yaml:5: input_schema refers to other.json, which a2ad does not fetch; ` +
				`copy it under $defs and refer to #/$defs/NAME`},
		{"{properties: {a: {$ref: 'https://example.com/s.json#/$defs/x'}}}",
			`a.yaml:5: input_schema refers to https://example.com/s.json, which a2ad does not fetch; ` +
				`copy it under $defs and refer to #/$defs/NAME`},
		{"{$ref: 'file:///etc/passwd'}",
			`a.yaml:5: input_schema refers to file:///etc/passwd, which a2ad does not fetch; ` +
				`copy it under $defs and refer to #/$defs/NAME`},
		{"{$schema: 'https://example.com/draft', type: object}",
			`a.yaml:5: input_schema refers to https://example.com/draft, which a2ad does not fetch; ` +
				`copy it under $defs and refer to #/$defs/NAME`},
		{"{$ref: '#/$defs/none'}",
			`a.yaml:5: input_schema is not a usable JSON Schema: json-pointer in "#/$defs/none" not found`},
		{"{pattern: '(?=x)'}",
			"a.yaml:5: input_schema is not a JSON Schema: .pattern: '(?=x)' is not valid regex: " +
				"error parsing regexp: invalid or unsupported Perl syntax: `(?=`"},
		{"{maximum: 0x10}",
			`a.yaml:5: input_schema: 0x10 is not a number in JSON; write it in decimal, or in quotes if it is text`},
		{"{type: object, type: array}", `a.yaml:5: input_schema: type is there already; keep one`},
	} {
		dir := write(t, "a.yaml",
			"name: a\ndescription: d\nskills:\n  - id: s\n    inputSchema: "+tc.schema+"\nexecutor: {echo: {}}\n")
		_, err := agents.Load(dir)
		if err == nil {
			t.Errorf("%s: no error", tc.schema)
			continue
		}
		if diff := cmp.Diff(tc.want, strings.ReplaceAll(err.Error(), dir+"/", "")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.schema, diff)
		}
	}
}

func TestExtensions(t *testing.T) {
	t.Parallel()
	const head = "name: a\ndescription: d\nexecutor: {echo: {}}\n"
	files, err := agents.Load(write(t, "a.yaml",
		head+"extensions:\n  - {uri: 'https://example.com/x/v1', description: d, required: true, "+
			"params: {a: [1, null, \"b\"], c: True}}\n  - uri: urn:b\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []a2a.Extension{{URI: "https://example.com/x/v1", Description: "d", Required: true,
		Params: a2a.Raw(`{"a":[1,null,"b"],"c":true}`)}, {URI: "urn:b"}}
	if diff := cmp.Diff(want, files[0].Agent.Card.Extensions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	dir := write(t, "a.yaml", head+`extensions:
  - {description: d}
  - {uri: "https://a2ad.dev/extensions/resume/v1"}
  - {uri: "a b"}
  - {uri: c, params: []}
  - {uri: c, parms: {}}
`)
	_, err = agents.Load(dir)
	wantFaults := `a.yaml:5: an extension has no uri; add one, like uri: https://example.com/ext/v1
a.yaml:6: https://a2ad.dev/extensions/resume/v1 is declared by the server; leave it out
a.yaml:7: uri: "a b" cannot be in a header, where commas and blanks separate URIs
a.yaml:8: params must be a mapping of keys to values, not a list
a.yaml:9: an extension has no key "parms"; did you mean params?
a.yaml:9: c is there already; keep one`
	if diff := cmp.Diff(wantFaults, strings.ReplaceAll(err.Error(), dir+"/", "")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
