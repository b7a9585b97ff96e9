package rpc_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/executor/script"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/worker"
)

func loadAgent(t *testing.T, text string) *a2a.Agent {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := agents.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return &files[0].Agent
}

// recipes is an agent file with every field of a card.
const recipes = `
name: recipes
default: true
executor: {script: {}}
card:
  name: Recipe Agent
  description: Agent that helps users with recipes and cooking.
  version: 1.0.0
  documentationUrl: https://example.com/docs
  iconUrl: https://example.com/icon.png
  provider: {organization: Google, url: https://ai.google.dev}
  defaultInputModes: [text/plain, application/json]
  defaultOutputModes: [text/plain]
  extensions:
    - {uri: "https://example.com/ext/v1", description: An extension., required: true, params: {a: [1, null]}}
  skills:
    - id: bread
      name: Bread
      description: Finds a recipe for bread.
      tags: [cooking, "customer support"]
      examples: [I need a recipe for bread]
      inputModes: [application/json]
      outputModes: [application/json, text/plain]
      inputSchema: {type: object, properties: {flour: {type: string}}, required: [flour]}
      outputSchema: {type: object}
    - {id: other, name: Other, description: Something else., tags: [x]}
`

// TestCardSaysWhatTheFileSays: it does in both versions, because their common fields have the same
// names.
func TestCardSaysWhatTheFileSays(t *testing.T) {
	t.Parallel()
	var want map[string]any
	if err := json.Unmarshal([]byte(`{
		"name": "Recipe Agent", "description": "Agent that helps users with recipes and cooking.", "version": "1.0.0",
		"documentationUrl": "https://example.com/docs", "iconUrl": "https://example.com/icon.png",
		"provider": {"organization": "Google", "url": "https://ai.google.dev"},
		"defaultInputModes": ["text/plain", "application/json"], "defaultOutputModes": ["text/plain"],
		"skills": [
			{"id": "bread", "name": "Bread", "description": "Finds a recipe for bread.",
			 "tags": ["cooking", "customer support"], "examples": ["I need a recipe for bread"],
			 "inputModes": ["application/json"], "outputModes": ["application/json", "text/plain"]},
			{"id": "other", "name": "Other", "description": "Something else.", "tags": ["x"]}
		],
		"extensions": [
			{"uri": "https://example.com/ext/v1", "description": "An extension.", "required": true,
			 "params": {"a": [1, null]}},
			{"uri": "https://a2ad.dev/extensions/resume/v1", "required": false},
			{"uri": "https://a2ad.dev/extensions/skill-schemas/v1", "required": false,
			 "params": {"skillSchemas": {"bread": {
				"inputSchema": {"type": "object", "properties": {"flour": {"type": "string"}}, "required": ["flour"]},
				"outputSchema": {"type": "object"}}}}}
		]}`), &want); err != nil {
		t.Fatal(err)
	}
	server := newBare(t, func(c *rpc.Config) { c.Agents = []*a2a.Agent{loadAgent(t, recipes)} })
	for _, version := range []string{"0.3", "1.0", ""} {
		var card map[string]any
		err := json.Unmarshal([]byte(send(t, server, http.MethodGet, cardPath, "",
			http.Header{"A2a-Version": {version}}).body), &card)
		if err != nil {
			t.Fatal(err)
		}
		declared := card["capabilities"].(map[string]any)["extensions"].([]any)
		for _, e := range declared[1:] {
			delete(e.(map[string]any), "description") // text for people
		}
		card["extensions"] = declared
		for name := range card {
			if want[name] == nil {
				delete(card, name) // added by the server
			}
		}
		equal(t, "card of "+version, want, card)
	}
}

func TestSendChecksTheInput(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := s.rpc.SetAgents([]*a2a.Agent{loadAgent(t, recipes)}); err != nil {
		t.Fatal(err)
	}
	header := http.Header{"A2a-Extensions": {"https://example.com/ext/v1"}}
	for _, d := range dialects {
		c := client{s, t, d}
		send := func(part string) (failure string) {
			resp := c.post(c.send, `{"message":{"messageId":"m","role":"`+c.role+`","parts":[`+part+
				`],"metadata":{"skillId":"bread"}},"configuration":`+c.configuration(false)+`}`, header)
			defer resp.Body.Close()
			var out struct {
				Error struct {
					Code    int
					Message string
				}
			}
			if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
				t.Fatal(err)
			}
			text, _ := json.Marshal(out.Error)
			return string(text)
		}
		text := map[string]string{"0.3": `{"kind":"text","text":"x"}`, "1.0": `{"text":"x"}`}[c.version]
		for part, want := range map[string]string{
			c.part(`{"flour":"rye"}`): `{"Code":0,"Message":""}`,
			c.part(`{"flour":1}`): `{"Code":-32602,` +
				`"Message":"message.parts[0].data.flour: got number, want string"}`,
			c.part(`{}`): `{"Code":-32602,"Message":"message.parts[0].data: missing property 'flour'"}`,
			text: `{"Code":-32005,` +
				`"Message":"message.parts[0]: the agent does not accept text/*; it accepts application/json"}`,
		} {
			if got := send(part); got != want {
				t.Errorf("%s: %s: got %s, want %s", c.version, part, got, want)
			}
		}
	}
}

// TestAgentsChangeUnderStreams: a stream continues when its agent changes, and when it is removed.
func TestAgentsChangeUnderStreams(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	work := script.New(script.Config{})
	set := func(list ...*a2a.Agent) {
		t.Helper()
		if err := s.rpc.SetAgents(list); err != nil {
			t.Fatal(err)
		}
		var workers []worker.Agent
		for _, a := range list {
			workers = append(workers, worker.Agent{Agent: a, Executor: work})
		}
		s.pool.SetAgents(workers)
	}
	etag := func(path string) string {
		return send(t, s.Server, http.MethodGet, path+cardPath, "", nil).header.Get("ETag")
	}
	for _, d := range dialects {
		set(&a2a.Agent{Name: "script", Default: true})
		c := client{s, t, d}
		first := etag("")
		asks := c.follow(c.stream, c.message("", "",
			`{"op":"status","text":"on it"},{"op":"input","text":"more?"}`, false))
		task := id(object(t, asks.next()["task"]))
		asks.until(inputRequired)
		runs := c.follow(c.stream, c.message("", "",
			`{"op":"chunk","id":"a","n":2},{"op":"sleep","ms":300},{"op":"complete"}`, false))
		runs.untilArtifact()

		set(&a2a.Agent{Name: "script", Default: true, Card: a2a.Card{Description: "new"}}, &a2a.Agent{Name: "b"})
		if changed := etag(""); changed == first || changed == "" {
			t.Errorf("the card changed, but its ETag is still %s", changed)
		}
		asks2 := c.follow(c.stream, c.message(task, "",
			`{"op":"artifact","id":"a","text":"x"},{"op":"sleep","ms":200},{"op":"complete"}`, false))

		set(&a2a.Agent{Name: "b", Default: true})
		asks2.until(completed)
		runs.until(completed)
		gone := client{&site{Server: s.Server, path: "/agents/script"}, t, d}
		if got := stateOf(map[string]any{"task": gone.task(gone.get, `{"id":"`+task+`"}`)}); got != completed {
			t.Errorf("a task of a removed agent: got %s", got)
		}
		if _, code := gone.call(gone.send, gone.message("", "", "", true)); code != -32004 {
			t.Errorf("a message to a removed agent: got code %d", code)
		}
		resp := send(t, s.Server, http.MethodGet, "/agents/script"+cardPath, "", nil)
		if resp.status != http.StatusNotFound {
			t.Errorf("the card of a removed agent: got status %d", resp.status)
		}
	}
}

func TestAgentsWithoutADefaultAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	before := send(t, s.Server, http.MethodGet, cardPath, "", nil)
	if err := s.rpc.SetAgents([]*a2a.Agent{{Name: "b"}}); err == nil {
		t.Error("got no error")
	}
	if diff := cmp.Diff(before.body, send(t, s.Server, http.MethodGet, cardPath, "", nil).body); diff != "" {
		t.Errorf("the card has changed:\n%s", diff)
	}
}
