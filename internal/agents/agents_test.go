package agents_test

import (
	"os"
	"path/filepath"
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
  - {id: count, name: Count words, description: Counts words, tags: [text], examples: [a b],
     input_modes: [text/plain], output_modes: [text/plain]}
  - id: other
input_modes: [text/plain, "image/*"]
output_modes: [text/plain]
default: true
executor:
  exec: {command: [wc, -w, ""], input: text, output: text, dir: work,
         env: {LANG: C, N: 0x10, T: true, E: }, max_output: 2MiB}
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
					{ID: "count", Name: "Count words", Description: "Counts words", Tags: []string{"text"},
						Examples:   []string{"a b"},
						InputModes: []string{"text/plain"}, OutputModes: []string{"text/plain"}},
					{ID: "other", Name: "other", Description: "Counts the words of a text.", Tags: []string{"words"}},
				},
				InputModes: []string{"text/plain", "image/*"}, OutputModes: []string{"text/plain"},
			},
			Limits: a2a.Limits{Concurrency: 8, MaxAttempts: 5, BackoffBase: time.Second, BackoffMax: time.Minute,
				LeaseTTL: 30 * time.Second, Deadline: time.Hour, IdleTimeout: 5 * time.Minute},
			OnBusy: a2a.OnBusyReject, OnLostLease: a2a.LostLeaseInputRequired, DedupeByID: true, DirectReply: true,
			PushOff:   true,
			Retention: a2a.Retention{Completed: 24 * time.Hour, Failed: -1, Log: time.Hour},
		},
		Executor: agents.Exec{Command: []string{"wc", "-w", ""}, Input: "text", Output: "text",
			Dir: filepath.Join(filepath.Dir(path), "work"),
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
		want := a2a.Card{Name: "a-1", Description: "Does it.", Version: "1.0.0", InputModes: strings.Fields(tc.in),
			OutputModes: strings.Fields(tc.out),
			Skills:      []a2a.Skill{{ID: "a-1", Name: "a-1", Description: "Does it.", Tags: []string{"a-1"}}}}
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
	more := a2a.Skill{ID: "more", Name: "more", Description: "d", Tags: []string{"a"},
		InputSchema: a2a.Raw(`{"type":"object"}`)}
	want := a2a.Card{
		Name: "A for members", Description: "d", Version: "1.0.0", IconURL: "https://example.com/i",
		Skills:     []a2a.Skill{public, more},
		InputModes: []string{"*/*"}, OutputModes: []string{"a/b"}, Extensions: []a2a.Extension{{URI: "urn:x"}},
	}
	if diff := cmp.Diff(&want, a.Extended); diff != "" {
		t.Errorf("extended: -want +got\n%s", diff)
	}
	if diff := cmp.Diff([]a2a.Skill{public}, a.Card.Skills); diff != "" || a.Card.Name != "a" || len(a.Skills()) != 2 ||
		a.Inputs["more"] == nil {
		t.Errorf("public: %s\n%s", a.Card.Name, diff)
	}
	const head = "name: a\ndescription: d\nexecutor: {echo: {}}\nskills: [{id: s}]\n"
	for text, want := range map[string]string{
		"{skills: [{id: s}]}": `extended_card: the skill id "s" is that of a public skill; choose another`,
		"{extensions: []}":    "extensions are the same for all callers; name them at the top of the file",
		"{url: x}":            "card.url is filled in by the server from its configuration; leave the line out",
		"{skills: [{id: t, security: [x]}]}": "security must be a list of mappings from schemes to scopes; " +
			"write [{oidc: [reports]}, {apiKey: []}]",
	} {
		dir := write(t, "a.yaml", head+"extended_card: "+text+"\n")
		_, err := agents.Load(dir)
		if err == nil || strings.ReplaceAll(err.Error(), dir+"/", "") != "a.yaml:5: "+want {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
}

func TestLoadDirectory(t *testing.T) {
	t.Parallel()
	agent := func(name string) string {
		return "name: " + name + "\ndescription: d\nexecutor: {echo: {}}\n"
	}
	dir := write(t, "b.yaml", agent("two"), "a.yml", agent("one"), ".hidden.yaml", "junk: [", "README.md", "junk",
		"c.json", `{"name": "three", "description": "d", "executor": {"script": {}}, "default": true,
			"limits": {"max_attempts": 3}}`)
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
	if got := strings.Join(names, " "); got != "one two three" || !files[2].Agent.Default ||
		files[2].Agent.Limits.MaxAttempts != 3 {
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
	want := a2a.Card{Name: "The A", Description: "d", Version: "1", DocumentationURL: "http://example.com",
		InputModes: []string{"a/b"}, OutputModes: []string{"c/d"},
		Skills: []a2a.Skill{{ID: "s", Name: "s", Description: "d", Tags: []string{"a"}, InputModes: []string{"e/f"}}}}
	if diff := cmp.Diff(want, files[0].Agent.Card); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(files[0].Warnings) != 1 || files[0].Warnings[0].Line != 5 ||
		!strings.Contains(files[0].Warnings[0].Text, "1.2.3") {
		t.Errorf("warnings %v, want one about the version on line 5", files[0].Warnings)
	}
}

func TestBuiltin(t *testing.T) {
	t.Parallel()
	files := agents.Builtin()
	if len(files) != 2 || files[0].Agent.Name != "echo" || !files[0].Agent.Default || files[1].Agent.Name != "script" ||
		files[1].Agent.Default {
		t.Errorf("got %+v", files)
	}
	for _, f := range files {
		c := f.Agent.Card
		if c.Name == "" || c.Description == "" || c.Version == "" || len(c.Skills) == 0 || len(c.Skills[0].Tags) == 0 ||
			c.InputModes[0] != "*/*" || len(c.OutputModes) == 0 {
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
