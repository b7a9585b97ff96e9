package agents_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/agents"
)

func TestLoadReportsEveryFault(t *testing.T) {
	t.Parallel()
	const ok = "name: ok\ndescription: d\nexecutor: {echo: {}}\n"
	for _, tc := range []struct {
		name  string
		files []string
		want  []string // each line of the error, without the directory
	}{
		{"everything at once", []string{"a.yaml", `name: v1
descripton: d
version: 1.0
skills: [{id: a}, {id: a, tags: text}]
provider: {organization: x}
input_modes: [text]
executor:
  exec: {command: wc -w, input: stdin}
limits: {concurrency: 0, deadline: 30, lease_ttl: soon, idle_timeout: 0s, max_attempt: 3}
on_busy: drop
dedupe: true
icon_url: /icon.png
default: yes
direct_reply: maybe
frobnicate: 1
`, "b.yaml", ok + "default: true\n", "c.json",
			"{\"name\": \"ok\",\n \"description\": \"d\",\n \"executor\": {\"http\": {}},\n \"default\": true}"},
			[]string{
				`a.yaml: description is missing; add a line like description: Counts the words of a text.`,
				`a.yaml:1: the name "v1" is used by the server itself; choose another`,
				`a.yaml:2: an agent file has no key "descripton"; did you mean description?`,
				`a.yaml:3: version must be text, and 1.0 without quotes is a number; write "1.0"`,
				`a.yaml:4: tags must be a list of texts, not text; write [a, b]`,
				`a.yaml:4: the skill id "a" is on line 4 already; choose another`,
				`a.yaml:5: provider has no url; write provider: {organization: Example, url: https://example.com}`,
				`a.yaml:6: input_modes: "text" is not a media type; write one like text/plain or */*`,
				`a.yaml:8: command must be a list, because no shell splits it; write ["wc", "-w"]`,
				`a.yaml:8: input must be run or text`,
				`a.yaml:9: concurrency must be a whole number from 1 to 10000`,
				`a.yaml:9: deadline: 30 has no unit; write a duration like 30s, 5m or 1h`,
				`a.yaml:9: lease_ttl must be a duration like 30s, 5m or 1h`,
				`a.yaml:9: idle_timeout must be greater than zero; leave the line out for the server's default`,
				`a.yaml:9: limits has no key "max_attempt"; did you mean max_attempts?`,
				`a.yaml:10: on_busy must be queue or reject`,
				`a.yaml:11: dedupe must be message_id`,
				`a.yaml:12: icon_url: "/icon.png" is not a URL; write one that starts with https:// or http://`,
				`a.yaml:13: default must be true or false, not text`,
				`a.yaml:14: direct_reply must be true or false, not text`,
				`a.yaml:15: an agent file has no key "frobnicate"; its keys are name, $schema, default, card, ` +
					`extended_card, executor, limits, on_busy, on_lost_lease, dedupe, direct_reply, ` +
					`retention, schedules, push, description, version, documentation_url, icon_url, ` +
					`provider, skills, extensions, input_modes, output_modes`,
				`c.json:1: the name "ok" is used by b.yaml:1; choose another`,
				`c.json:3: http has no url; add url: "http://127.0.0.1:9000/run"`,
				`c.json:4: b.yaml:4 is the default agent already; keep default: true in one of the two`,
			}},
		{"no executor", []string{"a.yaml", "name: a\ndescription: d\n"},
			[]string{`a.yaml: executor is missing; add a line like executor: {exec: {command: ["wc", "-w"], input: ` +
				`text, output: text}}`}},
		{"two executors", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {echo: {}, script: {}}\n"},
			[]string{`a.yaml:3: executor must name exactly one of echo, script, exec, http, a2a or pull`}},
		{"executor as a word", []string{"a.yaml", "name: a\ndescription: d\nexecutor: echo\n"},
			[]string{`a.yaml:3: executor must be a mapping; write executor: {echo: {}}`}},
		{"unknown executor", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {lambda: {}}\n"},
			[]string{`a.yaml:3: executor has no key "lambda"; its keys are echo, script, exec, http, a2a, pull`}},
		{"keys for echo", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {echo: {x: 1}}\n"},
			[]string{`a.yaml:3: echo has no keys; write echo: {}`}},
		{"no command", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {exec: {}}\n"},
			[]string{`a.yaml:3: exec has no command; add command: ["wc", "-w"]`}},
		{"empty program", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {exec: {command: [\"\", 1]}}\n"},
			[]string{
				`a.yaml:3: each of command is empty; write a text or leave the line out`,
				`a.yaml:3: each of command must be text, and 1 without quotes is a number; write "1"`}},
		{"bad environment",
			[]string{"a.yaml",
				"name: a\ndescription: d\nexecutor: {exec: {command: [x], env: {A=B: c, D: [], E: 1, E: 2}}}\n"},
			[]string{
				`a.yaml:3: env: "A=B" cannot be the name of a variable`, `a.yaml:3: env: D must be text, not a list`,
				`a.yaml:3: env: E is there already; keep one`}},
		{"bad sizes",
			[]string{"a.yaml", "name: a\ndescription: d\nexecutor:\n  exec:\n    command: [x]\n    max_output: 2GiB\n",
				"b.yaml", "name: b\ndescription: d\nexecutor: {exec: {command: [x], max_output: 1MB}}\n"}, []string{
				`a.yaml:6: max_output must be a size like 512KiB or 64MiB, at most 1024MiB`,
				`b.yaml:3: max_output must be a size like 512KiB or 64MiB, at most 1024MiB`}},
		{"bad http", []string{"a.yaml", `name: a
description: d
executor:
  http:
    url: http://u:p@h/x#f
    cancel_url: h
    headers:
      Content-Type: x
      a b: x
      X-A: "${A"
      x-a: y
      X-B: []
      X-C: "a\nb"
      X-D: $HOME
      Authorization: Bearer x
    bearer_env: my-token
    tls: {cert: c.pem, insecure_skip_verify: true}
    idle_timeout: 5
`}, []string{
			`a.yaml:5: url must not contain a user or password; use headers or bearer_env`,
			`a.yaml:5: url must not contain a fragment; leave out #f`,
			`a.yaml:5: url is http, and tls is for https; change one of the two`,
			`a.yaml:6: cancel_url: "h" is not a URL; write one that starts with https:// or http://`,
			`a.yaml:8: headers: Content-Type is set by the server; leave the line out`,
			`a.yaml:9: headers: "a b" cannot be the name of a header`,
			`a.yaml:10: headers: X-A: write ${NAME} to refer to a variable, and $$ for a $`,
			`a.yaml:11: headers: X-A is there already; keep one`,
			`a.yaml:12: headers: X-B must be text, not a list`,
			`a.yaml:13: headers: X-C must not contain a line break or another control character`,
			`a.yaml:14: headers: X-D: write ${NAME} to refer to a variable, and $$ for a $`,
			`a.yaml:16: bearer_env names the variable that holds the token, like MY_AGENT_TOKEN; ` +
				`it is not the token itself`,
			`a.yaml:17: tls has no insecure_skip_verify; name the certificate of the server's authority, or its own, ` +
				`under ca`,
			`a.yaml:17: tls: cert and key belong together; name both or none`,
			`a.yaml:18: idle_timeout: 5 has no unit; write a duration like 30s, 5m or 1h`,
		}},
		{"two tokens",
			[]string{"a.yaml",
				"name: a\ndescription: d\nexecutor:\n  http:\n    url: https://h\n" +
					"    headers: {Authorization: \"${A}\"}\n    bearer_env: B\n"}, []string{
				`a.yaml:7: bearer_env sets the header Authorization, which headers sets too; keep one`}},
		{"bad a2a", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {a2a: {version: 2.0, url: x}}\n"}, []string{
			`a.yaml:3: version must be 0.3 or 1.0`,
			`a.yaml:3: a2a has no key "url"; its keys are card, allow_origins, version, poll_interval, on_lost_task, ` +
				`headers, bearer_env, tls, connect_timeout`,
			`a.yaml:3: a2a has no card; add card: "http://127.0.0.1:9100/.well-known/agent-card.json"`}},
		{"twice", []string{"a.yaml", ok + "name: b\n"}, []string{`a.yaml:4: name is on line 1 already; keep one`}},
		{"twice in card",
			[]string{"a.yaml", ok + "input_modes: [a/b]\ncard: {description: x, defaultInputModes: [a/b]}\n"}, []string{
				`a.yaml:5: card.description is given at the top of the file too; keep one`,
				`a.yaml:5: card.defaultInputModes is given at the top of the file too; keep one`}},
		{"what the server knows", []string{"a.yaml", ok + "card: {url: http://x, capabilities: {}}\n"}, []string{
			`a.yaml:4: card.url is filled in by the server from its configuration; leave the line out`,
			`a.yaml:4: card.capabilities is filled in by the server from what it can do; ` +
				`leave the line out, and name extensions under extensions`}},
		{"camel case at the top", []string{"a.yaml", ok + "documentationUrl: http://x\n"},
			[]string{`a.yaml:4: an agent file has no key "documentationUrl"; did you mean documentation_url?`}},
		{"backoff", []string{"a.yaml", ok + "limits: {backoff: {base: 2s, max: 1s}}\n"},
			[]string{`a.yaml:4: backoff.max is less than backoff.base; make it at least 2s`}},
		{"not a mapping", []string{"a.yaml", "- a\n"},
			[]string{`a.yaml:1: an agent file must be a mapping of keys to values, not a list`}},
		{"empty", []string{"a.yaml", "# nothing\n"},
			[]string{`a.yaml: the file is empty; it needs at least name, description and executor`}},
		{"two documents", []string{"a.yaml", ok + "---\n" + ok},
			[]string{`a.yaml:5: a second document; write one agent per file`}},
		{"bad YAML", []string{"a.yaml", "name: a\n\tdescription: d\n"},
			[]string{`a.yaml:2: not good YAML: found character '	' that cannot start any token`}},
		{"alias", []string{"a.yaml", "name: &a x\ndescription: *a\n"},
			[]string{`a.yaml:1: Anchor: anchors, aliases, tags and merge keys are not used in agent files; ` +
				`write the value out`}},
		{"bad JSON", []string{"a.json", "{\n\"name\": \"a\",\n}"},
			[]string{`a.json:3: not valid JSON: expected a key`}},
		{"JSON key twice", []string{"a.json", "{\"name\": \"a\",\n\"name\": \"b\"}"},
			[]string{`a.json:2: not valid JSON: duplicate key`}},
		{"bad UTF-8", []string{"a.yaml", "name: \xff\n"}, []string{`a.yaml: not UTF-8 text`}},
		{"too large", []string{"a.yaml", "# " + strings.Repeat("x", 300<<10)},
			[]string{`a.yaml: the file has 307202 bytes; an agent file has at most 262144`}},
		{"nothing there", nil,
			[]string{`: no agent file in this directory; put one there, named *.yaml, *.yml or *.json`}},
	} {
		dir := write(t, tc.files...)
		_, err := agents.Load(dir)
		var faults agents.Faults
		if !errors.As(err, &faults) {
			t.Errorf("%s: error %v, want Faults", tc.name, err)
			continue
		}
		got := strings.Split(strings.ReplaceAll(strings.ReplaceAll(err.Error(), dir+"/", ""), dir, ""), "\n")
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestLoadRefusesNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"v1": false, "tasks": false, "agents": false, "worker": false, "extendedAgentCard": false, "a.b": false,
		"a/b": false, "a:b": false,
		"": false, "-a": false, "a b": false, "ä": false, "a%20b": false, strings.Repeat("a", 65): false,
		"V1": true, "words": true, "a_b-c": true, "0": true, strings.Repeat("a", 64): true,
	} {
		_, err := agents.Load(write(t, "a.yaml", "name: '"+name+"'\ndescription: d\nexecutor: {echo: {}}\n"))
		if (err == nil) != ok {
			t.Errorf("name %q: error %v, want it accepted: %v", name, err, ok)
		}
	}
}

func TestLoadMissingFile(t *testing.T) {
	t.Parallel()
	_, err := agents.Load("/nonexistent/agents.yaml")
	if err == nil || err.Error() != "/nonexistent/agents.yaml: no such file or directory" {
		t.Errorf("got %v", err)
	}
}

// FuzzLoad checks that the loader does not panic, accepts no incomplete agent, and names the file in each
// fault.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{full, research, everything, "a: &a [*a]\n", "{", "? - a\n: b\n", "a:\n  - b\n c: d",
		"%YAML 1.2\n---\n", "name: >-\n  x\n", "<<: {a: 1}", "!!map {a: 1}", "[[[[", "'", "- - - a"} {
		f.Add(s, false)
	}
	f.Add(`{"name":"a","description":"d","executor":{"exec":{"command":["x"]}}}`, true)
	f.Fuzz(func(t *testing.T, text string, isJSON bool) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if isJSON {
			path = strings.TrimSuffix(path, "yaml") + "json"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := agents.Load(path)
		if err != nil {
			var faults agents.Faults
			errors.As(err, &faults)
			for _, line := range faults {
				if line.Path != path || line.Text == "" || line.Line < 0 ||
					line.Line > 2+strings.Count(text, "\n")+strings.Count(text, "\r") {
					t.Fatalf("fault %+v", line)
				}
			}
			return
		}
		a := files[0].Agent
		if a.Name == "" || files[0].Executor == nil || a.Card.Description == "" || a.Card.Version == "" ||
			len(a.Card.Skills) == 0 || len(a.Card.Skills[0].Tags) == 0 || len(a.Card.InputModes) == 0 {
			t.Fatalf("incomplete: %+v", files[0])
		}
	})
}
