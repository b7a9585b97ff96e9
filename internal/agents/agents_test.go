package agents_test

import (
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
)

// write makes a directory of files from name, content pairs and returns its path.
func write(t *testing.T, pairs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(pairs); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, pairs[i]), []byte(pairs[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const full = `
name: words
description: Counts the words of a text.
version: 2.3.4
documentation_url: https://example.com/docs
icon_url: https://example.com/icon.png
provider: {organization: Example, url: https://example.com}
skills:
  - {id: count, name: Count words, description: Counts words, tags: [text], examples: [a b], input_modes: [text/plain], output_modes: [text/plain]}
  - id: other
input_modes: [text/plain, "image/*"]
output_modes: [text/plain]
default: true
executor:
  exec: {command: [wc, -w, ""], input: text, output: text, dir: work, env: {LANG: C, N: 0x10, T: true, E: }, max_output: 2MiB}
limits: {concurrency: 8, max_attempts: 5, backoff: {base: 1s, max: 1m}, lease_ttl: 30s, deadline: 1h, idle_timeout: 5m}
on_busy: reject
on_lost_lease: input-required
dedupe: message_id
direct_reply: true
retention: {completed: 24h, failed: never, log: 1h}
push: off
`

func fullFile(path string) agents.File {
	return agents.File{
		Path: path,
		Agent: a2a.Agent{
			Name: "words", Default: true,
			Card: a2a.Card{
				Name: "words", Description: "Counts the words of a text.", Version: "2.3.4",
				DocumentationURL: "https://example.com/docs", IconURL: "https://example.com/icon.png",
				Provider: &a2a.Provider{Organization: "Example", URL: "https://example.com"},
				Skills: []a2a.Skill{
					{ID: "count", Name: "Count words", Description: "Counts words", Tags: []string{"text"}, Examples: []string{"a b"},
						InputModes: []string{"text/plain"}, OutputModes: []string{"text/plain"}},
					{ID: "other", Name: "other", Description: "Counts the words of a text.", Tags: []string{"words"}},
				},
				InputModes: []string{"text/plain", "image/*"}, OutputModes: []string{"text/plain"},
			},
			Limits: a2a.Limits{Concurrency: 8, MaxAttempts: 5, BackoffBase: time.Second, BackoffMax: time.Minute,
				LeaseTTL: 30 * time.Second, Deadline: time.Hour, IdleTimeout: 5 * time.Minute},
			OnBusy: a2a.OnBusyReject, OnLostLease: a2a.LostLeaseInputRequired, DedupeByID: true, DirectReply: true, PushOff: true,
			Retention: a2a.Retention{Completed: 24 * time.Hour, Failed: -1, Log: time.Hour},
		},
		Executor: agents.Exec{Command: []string{"wc", "-w", ""}, Input: "text", Output: "text", Dir: filepath.Join(filepath.Dir(path), "work"),
			Env: map[string]string{"LANG": "C", "N": "0x10", "T": "true", "E": ""}, MaxOutput: 2 << 20},
	}
}

func TestLoadReadsEveryKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(write(t, "words.yaml", full), "words.yaml")
	files, err := agents.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]agents.File{fullFile(path)}, files); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLoadFillsInWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		executor, in, out string
		want              agents.Spec
	}{
		{"{echo: {}}", "*/*", "text/plain application/json", agents.Echo{}},
		{"\n  script:", "*/*", "text/plain application/json", agents.Script{}},
		{"{exec: {command: [./x]}}", "text/plain application/json", "text/plain application/json",
			agents.Exec{Command: []string{"./x"}, Input: "run", Output: "events"}},
		{"{exec: {command: [wc], input: text}}", "text/plain", "text/plain application/json",
			agents.Exec{Command: []string{"wc"}, Input: "text", Output: "events"}},
		{"{exec: {command: [wc], output: text}}", "text/plain application/json", "text/plain",
			agents.Exec{Command: []string{"wc"}, Input: "run", Output: "text"}},
	} {
		dir := write(t, "a.yml", "name: a-1\ndescription: Does it.\nexecutor: "+tc.executor+"\n")
		files, err := agents.Load(dir)
		if err != nil {
			t.Fatalf("%s: %v", tc.executor, err)
		}
		if e, ok := tc.want.(agents.Exec); ok {
			e.Dir = dir
			tc.want = e
		}
		c := files[0].Agent.Card
		want := a2a.Card{Name: "a-1", Description: "Does it.", Version: "1.0.0", InputModes: strings.Fields(tc.in), OutputModes: strings.Fields(tc.out),
			Skills: []a2a.Skill{{ID: "a-1", Name: "a-1", Description: "Does it.", Tags: []string{"a-1"}}}}
		if diff := cmp.Diff(want, c); diff != "" {
			t.Errorf("%s: card (-want +got):\n%s", tc.executor, diff)
		}
		if diff := cmp.Diff(tc.want, files[0].Executor); diff != "" {
			t.Errorf("%s: executor (-want +got):\n%s", tc.executor, diff)
		}
	}
}

func TestLoadExtendedCard(t *testing.T) {
	t.Parallel()
	files, err := agents.Load(write(t, "a.yaml", `name: a
description: d
skills: [{id: s, security: [{oidc: [x, y], mtls: []}, {apiKey: []}]}]
extensions: [{uri: "urn:x"}]
extended_card:
  name: A for members
  iconUrl: https://example.com/i
  skills: [{id: more, inputSchema: {type: object}}]
  output_modes: [a/b]
executor: {echo: {}}
`))
	if err != nil {
		t.Fatal(err)
	}
	a := files[0].Agent
	public := a2a.Skill{ID: "s", Name: "s", Description: "d", Tags: []string{"a"}, Security: []a2a.Requirement{
		{{Name: "oidc", Scopes: []string{"x", "y"}}, {Name: "mtls"}}, {{Name: "apiKey"}},
	}}
	more := a2a.Skill{ID: "more", Name: "more", Description: "d", Tags: []string{"a"}, InputSchema: a2a.Raw(`{"type":"object"}`)}
	want := a2a.Card{
		Name: "A for members", Description: "d", Version: "1.0.0", IconURL: "https://example.com/i", Skills: []a2a.Skill{public, more},
		InputModes: []string{"*/*"}, OutputModes: []string{"a/b"}, Extensions: []a2a.Extension{{URI: "urn:x"}},
	}
	if diff := cmp.Diff(&want, a.Extended); diff != "" {
		t.Errorf("extended: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]a2a.Skill{public}, a.Card.Skills); diff != "" || a.Card.Name != "a" || len(a.Skills()) != 2 || a.Inputs["more"] == nil {
		t.Errorf("public: %s\n%s", a.Card.Name, diff)
	}
	const head = "name: a\ndescription: d\nexecutor: {echo: {}}\nskills: [{id: s}]\n"
	for text, want := range map[string]string{
		head + "extended_card: {skills: [{id: s}]}\n":                "a.yaml:5: extended_card: the skill id \"s\" is that of a public skill; choose another",
		head + "extended_card: {extensions: []}\n":                   "a.yaml:5: extensions are the agent's, whoever asks; name them at the top of the file",
		head + "extended_card: {url: x}\n":                           "a.yaml:5: card.url is filled in by the server from its configuration; leave the line out",
		head + "extended_card: {skills: [{id: t, security: [x]}]}\n": "a.yaml:5: security must be a list of mappings from schemes to scopes; write [{oidc: [reports]}, {apiKey: []}]",
	} {
		dir := write(t, "a.yaml", text)
		if _, err := agents.Load(dir); err == nil || strings.ReplaceAll(err.Error(), dir+"/", "") != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestLoadDirectory(t *testing.T) {
	t.Parallel()
	agent := func(name string) string {
		return "name: " + name + "\ndescription: d\nexecutor: {echo: {}}\n"
	}
	dir := write(t, "b.yaml", agent("two"), "a.yml", agent("one"), ".hidden.yaml", "junk: [", "README.md", "junk",
		"c.json", `{"name": "three", "description": "d", "executor": {"script": {}}, "default": true, "limits": {"max_attempts": 3}}`)
	if err := os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	files, err := agents.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Agent.Name)
	}
	if got := strings.Join(names, " "); got != "one two three" || !files[2].Agent.Default || files[2].Agent.Limits.MaxAttempts != 3 {
		t.Errorf("got %s, want one two three", got)
	}
}

func TestLoadCardIn10Names(t *testing.T) {
	t.Parallel()
	dir := write(t, "a.yaml", `name: a
card:
  name: The A
  description: d
  version: "1"
  documentationUrl: http://example.com
  defaultInputModes: [a/b]
  defaultOutputModes: [c/d]
  skills: [{id: s, inputModes: [e/f]}]
executor: {echo: {}}
`)
	files, err := agents.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := a2a.Card{Name: "The A", Description: "d", Version: "1", DocumentationURL: "http://example.com", InputModes: []string{"a/b"}, OutputModes: []string{"c/d"},
		Skills: []a2a.Skill{{ID: "s", Name: "s", Description: "d", Tags: []string{"a"}, InputModes: []string{"e/f"}}}}
	if diff := cmp.Diff(want, files[0].Agent.Card); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(files[0].Warnings) != 1 || files[0].Warnings[0].Line != 5 || !strings.Contains(files[0].Warnings[0].Text, "1.2.3") {
		t.Errorf("warnings %v, want one about the version on line 5", files[0].Warnings)
	}
}

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
`, "b.yaml", ok + "default: true\n", "c.json", "{\"name\": \"ok\",\n \"description\": \"d\",\n \"executor\": {\"http\": {}},\n \"default\": true}"}, []string{
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
			`a.yaml:15: an agent file has no key "frobnicate"; its keys are name, $schema, default, card, extended_card, executor, limits, on_busy, on_lost_lease, dedupe, direct_reply, retention, push, description, version, documentation_url, icon_url, provider, skills, extensions, input_modes, output_modes`,
			`c.json:1: the name "ok" is used by b.yaml:1; choose another`,
			`c.json:3: http has no url; add url: "http://127.0.0.1:9000/run"`,
			`c.json:4: b.yaml:4 is the default agent already; keep default: true in one of the two`,
		}},
		{"no executor", []string{"a.yaml", "name: a\ndescription: d\n"}, []string{`a.yaml: executor is missing; add a line like executor: {exec: {command: ["wc", "-w"], input: text, output: text}}`}},
		{"two executors", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {echo: {}, script: {}}\n"}, []string{`a.yaml:3: executor must name exactly one of echo, script, exec, http, a2a or pull`}},
		{"executor as a word", []string{"a.yaml", "name: a\ndescription: d\nexecutor: echo\n"}, []string{`a.yaml:3: executor must be a mapping; write executor: {echo: {}}`}},
		{"unknown executor", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {lambda: {}}\n"}, []string{`a.yaml:3: executor has no key "lambda"; its keys are echo, script, exec, http, a2a, pull`}},
		{"keys for echo", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {echo: {x: 1}}\n"}, []string{`a.yaml:3: echo has no keys; write echo: {}`}},
		{"no command", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {exec: {}}\n"}, []string{`a.yaml:3: exec has no command; add command: ["wc", "-w"]`}},
		{"empty program", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {exec: {command: [\"\", 1]}}\n"}, []string{
			`a.yaml:3: each of command is empty; write a text or leave the line out`, `a.yaml:3: each of command must be text, and 1 without quotes is a number; write "1"`}},
		{"bad environment", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {exec: {command: [x], env: {A=B: c, D: [], E: 1, E: 2}}}\n"}, []string{
			`a.yaml:3: env: "A=B" cannot be the name of a variable`, `a.yaml:3: env: D must be text, not a list`, `a.yaml:3: env: E is there already; keep one`}},
		{"bad sizes", []string{"a.yaml", "name: a\ndescription: d\nexecutor:\n  exec:\n    command: [x]\n    max_output: 2GiB\n", "b.yaml", "name: b\ndescription: d\nexecutor: {exec: {command: [x], max_output: 1MB}}\n"}, []string{
			`a.yaml:6: max_output must be a size like 512KiB or 64MiB, at most 1024MiB`, `b.yaml:3: max_output must be a size like 512KiB or 64MiB, at most 1024MiB`}},
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
			`a.yaml:16: bearer_env names the variable that holds the token, like MY_AGENT_TOKEN; it is not the token itself`,
			`a.yaml:17: tls has no insecure_skip_verify; name the certificate of the server's authority, or its own, under ca`,
			`a.yaml:17: tls: cert and key belong together; name both or none`,
			`a.yaml:18: idle_timeout: 5 has no unit; write a duration like 30s, 5m or 1h`,
		}},
		{"two tokens", []string{"a.yaml", "name: a\ndescription: d\nexecutor:\n  http:\n    url: https://h\n    headers: {Authorization: \"${A}\"}\n    bearer_env: B\n"}, []string{
			`a.yaml:7: bearer_env sets the header Authorization, which headers sets too; keep one`}},
		{"bad a2a", []string{"a.yaml", "name: a\ndescription: d\nexecutor: {a2a: {version: 2.0, url: x}}\n"}, []string{
			`a.yaml:3: version must be 0.3 or 1.0`, `a.yaml:3: a2a has no key "url"; its keys are card, allow_origins, version, poll_interval, on_lost_task, headers, bearer_env, tls, connect_timeout`,
			`a.yaml:3: a2a has no card; add card: "http://127.0.0.1:9100/.well-known/agent-card.json"`}},
		{"twice", []string{"a.yaml", ok + "name: b\n"}, []string{`a.yaml:4: name is on line 1 already; keep one`}},
		{"twice in card", []string{"a.yaml", ok + "input_modes: [a/b]\ncard: {description: x, defaultInputModes: [a/b]}\n"}, []string{
			`a.yaml:5: card.description is given at the top of the file too; keep one`, `a.yaml:5: card.defaultInputModes is given at the top of the file too; keep one`}},
		{"what the server knows", []string{"a.yaml", ok + "card: {url: http://x, capabilities: {}}\n"}, []string{
			`a.yaml:4: card.url is filled in by the server from its configuration; leave the line out`,
			`a.yaml:4: card.capabilities is filled in by the server from what it can do; leave the line out, and name extensions under extensions`}},
		{"camel case at the top", []string{"a.yaml", ok + "documentationUrl: http://x\n"}, []string{`a.yaml:4: an agent file has no key "documentationUrl"; did you mean documentation_url?`}},
		{"backoff", []string{"a.yaml", ok + "limits: {backoff: {base: 2s, max: 1s}}\n"}, []string{`a.yaml:4: backoff.max is less than backoff.base; make it at least 2s`}},
		{"not a mapping", []string{"a.yaml", "- a\n"}, []string{`a.yaml:1: an agent file must be a mapping of keys to values, not a list`}},
		{"empty", []string{"a.yaml", "# nothing\n"}, []string{`a.yaml: the file is empty; it needs at least name, description and executor`}},
		{"two documents", []string{"a.yaml", ok + "---\n" + ok}, []string{`a.yaml:5: a second document; write one agent per file`}},
		{"bad YAML", []string{"a.yaml", "name: a\n\tdescription: d\n"}, []string{`a.yaml:2: not good YAML: found character '	' that cannot start any token`}},
		{"alias", []string{"a.yaml", "name: &a x\ndescription: *a\n"}, []string{`a.yaml:1: Anchor: anchors, aliases, tags and merge keys are not used in agent files; write the value out`}},
		{"bad JSON", []string{"a.json", "{\n\"name\": \"a\",\n}"}, []string{`a.json:3: not valid JSON: expected a key`}},
		{"JSON key twice", []string{"a.json", "{\"name\": \"a\",\n\"name\": \"b\"}"}, []string{`a.json:2: not valid JSON: duplicate key`}},
		{"bad UTF-8", []string{"a.yaml", "name: \xff\n"}, []string{`a.yaml: not UTF-8 text`}},
		{"too large", []string{"a.yaml", "# " + strings.Repeat("x", 300<<10)}, []string{`a.yaml: the file has 307202 bytes; an agent file has at most 262144`}},
		{"nothing there", nil, []string{`: no agent file in this directory; put one there, named *.yaml, *.yml or *.json`}},
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
		"v1": false, "tasks": false, "agents": false, "worker": false, "extendedAgentCard": false, "a.b": false, "a/b": false, "a:b": false,
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

func TestBuiltin(t *testing.T) {
	t.Parallel()
	files := agents.Builtin()
	if len(files) != 2 || files[0].Agent.Name != "echo" || !files[0].Agent.Default || files[1].Agent.Name != "script" || files[1].Agent.Default {
		t.Errorf("got %+v", files)
	}
	for _, f := range files {
		c := f.Agent.Card
		if c.Name == "" || c.Description == "" || c.Version == "" || len(c.Skills) == 0 || len(c.Skills[0].Tags) == 0 || c.InputModes[0] != "*/*" || len(c.OutputModes) == 0 {
			t.Errorf("%s: incomplete card %+v", f.Agent.Name, c)
		}
	}
}

func TestExamplesLoad(t *testing.T) {
	t.Parallel()
	files, err := agents.Load("../../examples/agents")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if len(f.Warnings) > 0 {
			t.Errorf("warnings: %v", f.Warnings)
		}
	}
}

// FuzzLoad holds that the loader neither panics nor accepts an incomplete agent, and
// that each of its faults names the file.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{full, research, everything, "a: &a [*a]\n", "{", "? - a\n: b\n", "a:\n  - b\n c: d", "%YAML 1.2\n---\n", "name: >-\n  x\n", "<<: {a: 1}", "!!map {a: 1}", "[[[[", "'", "- - - a"} {
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
				if line.Path != path || line.Text == "" || line.Line < 0 || line.Line > 2+strings.Count(text, "\n")+strings.Count(text, "\r") {
					t.Fatalf("fault %+v", line)
				}
			}
			return
		}
		a := files[0].Agent
		if a.Name == "" || files[0].Executor == nil || a.Card.Description == "" || a.Card.Version == "" || len(a.Card.Skills) == 0 || len(a.Card.Skills[0].Tags) == 0 || len(a.Card.InputModes) == 0 {
			t.Fatalf("incomplete: %+v", files[0])
		}
	})
}

func TestLoadReadsRemoteExecutors(t *testing.T) {
	t.Parallel()
	const head = "name: a\ndescription: d\nexecutor:\n"
	const remote = `
    headers: {x-team: words, X-Key: "a${KEY}b$$c"}
    bearer_env: TOKEN
    tls: {ca: ca.pem, cert: /c.pem, key: c.key, server_name: words.internal}
    connect_timeout: 5s
`
	for _, tc := range []struct {
		text     string
		want     func(dir string) agents.Spec
		warnings int
	}{
		{"  http:\n    url: https://h/run\n    cancel_url: https://h/stop\n    first_byte_timeout: 30s\n    idle_timeout: 1m" + remote, func(dir string) agents.Spec {
			return agents.HTTP{Remote: remoteIn(dir), URL: "https://h/run", CancelURL: "https://h/stop", FirstByteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
		}, 0},
		{"  a2a:\n    card: https://h/card.json\n    version: 1.0\n    poll_interval: 2s\n    on_lost_task: fail\n    allow_origins: [\"https://b:1\"]" + remote, func(dir string) agents.Spec {
			return agents.A2A{Remote: remoteIn(dir), Card: "https://h/card.json", AllowOrigins: []string{"https://b:1"}, Version: "1.0", PollInterval: 2 * time.Second, OnLostTask: "fail"}
		}, 0},
		{"  pull: {}\n", func(string) agents.Spec { return agents.Pull{} }, 0},
		{"  http: {url: \"http://127.0.0.1:1\", bearer_env: T}\n", func(string) agents.Spec {
			return agents.HTTP{URL: "http://127.0.0.1:1", Remote: agents.Remote{BearerEnv: "T"}}
		}, 0},
		{"  http: {url: \"http://h\", headers: {Authorization: Basic x}}\n", func(string) agents.Spec {
			return agents.HTTP{URL: "http://h", Remote: agents.Remote{Headers: map[string]string{"Authorization": "Basic x"}}}
		}, 2},
	} {
		dir := write(t, "a.yaml", head+tc.text)
		files, err := agents.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want(dir), files[0].Executor); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.text, diff)
		}
		if len(files[0].Warnings) != tc.warnings {
			t.Errorf("%s: warnings %v, want %d", tc.text, files[0].Warnings, tc.warnings)
		}
	}
}

func remoteIn(dir string) agents.Remote {
	return agents.Remote{
		Headers: map[string]string{"X-Team": "words", "X-Key": "a${KEY}b$$c"}, BearerEnv: "TOKEN", ConnectTimeout: 5 * time.Second,
		TLS: agents.TLS{CA: filepath.Join(dir, "ca.pem"), Cert: "/c.pem", Key: filepath.Join(dir, "c.key"), ServerName: "words.internal"},
	}
}

func TestHeaderFillsInVariables(t *testing.T) {
	t.Parallel()
	env := map[string]string{"KEY": "k", "TOKEN": "t", "EMPTY": "", "LINES": "a\nb"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	r := remoteIn("/")
	got, err := r.Header(lookup)
	if want := (http.Header{"X-Team": {"words"}, "X-Key": {"akb$c"}, "Authorization": {"Bearer t"}}); err != nil || !cmp.Equal(want, got) {
		t.Errorf("got %v, %v", got, err)
	}
	names := r.Variables()
	slices.Sort(names)
	if !slices.Equal(names, []string{"KEY", "TOKEN"}) {
		t.Errorf("variables %v", names)
	}
	for name, want := range map[string]string{
		"NONE": "bearer_env: the variable NONE is not set", "EMPTY": "bearer_env: the variable EMPTY is not set",
		"LINES": "bearer_env: the variable LINES contains a line break or another character that a header cannot contain",
	} {
		if _, err := (agents.Remote{BearerEnv: name}).Header(lookup); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestTLSConfigReadsTheFiles(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.StartTLS()
	defer srv.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	dir := write(t, "ca.pem", string(ca), "junk.pem", "junk")
	get := func(keys agents.TLS) error {
		c, err := agents.Remote{TLS: keys}.TLSConfig()
		if err != nil {
			return err
		}
		transport := &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	for name, tc := range map[string]struct {
		keys agents.TLS
		want string // part of the error
	}{
		"trusted":      {agents.TLS{CA: dir + "/ca.pem", ServerName: "example.com"}, ""},
		"unknown":      {agents.TLS{}, "certificate signed by unknown authority"},
		"another name": {agents.TLS{CA: dir + "/ca.pem", ServerName: "example.org"}, "not example.org"},
		"no file":      {agents.TLS{CA: dir + "/none.pem"}, "tls.ca: open "},
		"junk":         {agents.TLS{CA: dir + "/junk.pem"}, "tls.ca: no certificate in "},
		"junk key":     {agents.TLS{Cert: dir + "/ca.pem", Key: dir + "/junk.pem"}, "tls.cert and tls.key: "},
	} {
		err := get(tc.keys)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
