package agents_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/a2ad/a2ad/internal/agents"
)

func formSchema(t *testing.T) (*jsonschema.Schema, map[string]any) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(agents.FormSchema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("https://schema.invalid/agent", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("https://schema.invalid/agent")
	if err != nil {
		t.Fatal(err)
	}
	return s, doc.(map[string]any)
}

func fits(t *testing.T, s *jsonschema.Schema, path string, data []byte) error {
	t.Helper()
	text, err := agents.JSON(path, data)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v\n%s", path, err, text)
	}
	return s.Validate(v)
}

// everything contains each mapping of the form at least once.
const everything = `
$schema: agent.schema.json
name: a
description: d
provider: {organization: o, url: "https://example.com"}
skills: [{id: s}]
extensions: [{uri: "urn:x"}]
card: {version: 1.2.3}
extended_card: {version: 1.2.4}
limits: {backoff: {base: 1s}}
retention: {log: 1h}
schedules: [{name: s, cron: "@daily", owner: o, message: {parts: [{text: x}]}}]
executor:
  echo: {}
  script: {}
  exec: {command: [x]}
  http: {url: "https://example.com", tls: {ca: x}}
  a2a: {card: "https://example.com", tls: {ca: x}}
  pull: {}
`

// Every mapping of the form must have the same keys in the schema and in the decoder.
func TestSchemaHasTheKeysOfTheDecoder(t *testing.T) {
	t.Parallel()
	_, root := formSchema(t)
	definitions := root["definitions"].(map[string]any)
	want := map[string][]string{}
	add := func(name string, v any) {
		if properties, ok := v.(map[string]any)["properties"].(map[string]any); ok {
			want[name] = slices.Sorted(maps.Keys(properties))
			if v.(map[string]any)["additionalProperties"] != false {
				t.Errorf("%s accepts unknown keys", name)
			}
		}
	}
	add("an agent file", root)
	for name, v := range definitions {
		if article := map[string]string{
			"skill": "a skill", "extension": "an extension", "schedule": "a schedule", "part": "a part",
		}[name]; article != "" {
			name = article
		}
		add(name, v)
	}
	for name, v := range definitions["executor"].(map[string]any)["properties"].(map[string]any) {
		if v.(map[string]any)["$ref"] == nil {
			want[name] = nil // has no keys
		}
	}
	got, faults := agents.Keys("everything.yaml", []byte(everything))
	if len(faults) != 0 && (len(faults) != 1 || faults[0].Line != 14) { // several executors
		t.Fatalf("faults %v", faults)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-schema +decoder:\n%s", diff)
	}
}

func TestSchemaAcceptsWhatTheDecoderAccepts(t *testing.T) {
	t.Parallel()
	s, _ := formSchema(t)
	texts := map[string]string{"full.yaml": strings.ReplaceAll(full, "0x10", "16"), "research.yaml": research}
	for _, executor := range []string{
		"{echo: }", "{script: {}}", "{pull: }", "{a2a: {card: 'http://x', version: 1.0}}",
		"{a2a: {card: 'HTTP://x', version: '0.3', poll_interval: 1.5s}}",
		"{exec: {command: [x, ''], max_output: 4096}}",
		"{http: {url: 'https://x', headers: {A: 1, B: \"${C}\"}, tls: {cert: a, key: b}, connect_timeout: 1h30m}}",
	} {
		texts["executor "+executor+
			".yaml"] = "name: a\ncard: {description: d, defaultInputModes: ['a/b; c=d']}\nexecutor: " + executor + "\n"
	}
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, faults := agents.Keys(path, data); len(faults) == 0 {
			texts[path] = string(data)
		}
	}
	if len(texts) < 12 {
		t.Errorf("only %d files are agents", len(texts))
	}
	for path, text := range texts {
		if _, faults := agents.Keys(path, []byte(text)); len(faults) > 0 {
			t.Errorf("%s: %v", path, faults)
		}
		if err := fits(t, s, path, []byte(text)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestSchemaRefusesWhatTheDecoderRefuses(t *testing.T) {
	t.Parallel()
	s, _ := formSchema(t)
	const head = "name: a\ndescription: d\n"
	const ok = head + "executor: {echo: {}}\n"
	for i, text := range []string{
		"description: d\nexecutor: {echo: {}}\n", "name: a\nexecutor: {echo: {}}\n", head,
		"name: v1\ndescription: d\nexecutor: {echo: {}}\n", "name: a/b\ndescription: d\nexecutor: {echo: {}}\n",
		ok + "frobnicate: 1\n", ok + "on_busy: drop\n", ok + "on_lost_lease: stop\n", ok + "dedupe: true\n",
		ok + "default: 1\n", ok + "push: maybe\n", ok + "retention: 30\n", ok + "retention: {working: 1h}\n",
		ok + "version: 1.0\n",
		ok + "limits: {deadline: 30}\n", ok + "limits: {deadline: soon}\n", ok + "limits: {concurrency: 0}\n",
		ok + "limits: {concurrency: 10001}\n", ok + "limits: {max_attempt: 1}\n",
		ok + "limits: {backoff: {bse: 1s}}\n", ok + "skills: []\n", ok + "skills: [{name: x}]\n",
		ok + "skills: [{id: a, tags: b}]\n", ok + "skills: [{id: a, inputSchema: []}]\n",
		ok + "provider: {organization: x}\n", ok + "input_modes: [text]\n", ok + "input_modes: []\n",
		ok + "icon_url: /x\n", ok + "card: {url: 'http://x'}\n", ok + "extensions: [{uri: 'a b'}]\n",
		head + "executor: {}\n", head + "executor: echo\n", head + "executor: {echo: {}, script: {}}\n",
		head + "executor: {echo: {x: 1}}\n", head + "executor: {exec: {}}\n",
		head + "executor: {exec: {command: wc}}\n", head + "executor: {exec: {command: []}}\n",
		head + "executor: {exec: {command: [x], input: stdin}}\n",
		head + "executor: {exec: {command: [x], max_output: 1MB}}\n",
		head + "executor: {http: {}}\n", head + "executor: {http: {url: x}}\n",
		head + "executor: {http: {url: 'http://x', bearer_env: a-b}}\n",
		head + "executor: {http: {url: 'https://x', tls: {cert: x}}}\n",
		head + "executor: {http: {url: 'http://x', headers: {A: []}}}\n", head + "executor: {a2a: {}}\n",
		head + "executor: {a2a: {card: 'http://x', version: 2.0}}\n",
	} {
		path := fmt.Sprintf("%d.yaml", i)
		if _, faults := agents.Keys(path, []byte(text)); len(faults) == 0 {
			t.Errorf("the decoder accepts\n%s", text)
		}
		if fits(t, s, path, []byte(text)) == nil {
			t.Errorf("the schema accepts\n%s", text)
		}
	}
}
