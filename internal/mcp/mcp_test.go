package mcp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// The tests of cmd/a2ad call the tools on a real server. The tests here are about what that server does not produce.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFilesBecomeResources(t *testing.T) {
	t.Parallel()
	res := render("a", client.Result{
		TaskID: "t1", State: a2a.StateCompleted,
		Parts: []a2a.Part{{Kind: a2a.PartText, Text: "Two"}, {Kind: a2a.PartText, Text: "lines"}},
		Artifacts: []client.Artifact{{ID: "x y", Name: "report", Parts: []a2a.Part{
			{Kind: a2a.PartText, Text: "see "}, {Kind: a2a.PartText, Text: "this"},
			{Kind: a2a.PartFile, Text: "aGk=", MediaType: "text/plain", Filename: "a b.txt"},
			{Kind: a2a.PartFile, Text: "/w==", MediaType: "image/png", Filename: "i.png"},
			{Kind: a2a.PartFile, Text: "", MediaType: "application/zip"},
			{Kind: a2a.PartFile, Text: "!", Filename: "broken"},
			{Kind: a2a.PartURL, Text: "https://x.example/f", MediaType: "text/csv"},
			{Kind: a2a.PartData, Data: a2a.Raw(`{"n":1.0}`)},
		}}},
	}, "A note.")
	got, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	resource := func(place, contents string) string {
		const base = "a2ad:///tasks/t1/artifacts/x%20y/"
		return `{"type":"resource","resource":{"uri":"` + base + place + `",` + contents + `}},`
	}
	want := `{"content":[{"type":"text","text":"see this"},` +
		resource(`2/a%20b.txt`, `"mimeType":"text/plain","text":"hi"`) +
		resource(`3/i.png`, `"mimeType":"image/png","blob":"/w=="`) +
		resource(`4`, `"mimeType":"application/zip","blob":""`) +
		`{"type":"text","text":"The file \"broken\" is not valid base64."},` +
		`{"type":"resource_link","mimeType":"text/csv","uri":"https://x.example/f","name":"https://x.example/f"},` +
		`{"type":"text","text":"{\"n\":1.0}"},` +
		`{"type":"text","text":"Two\nlines"},{"type":"text","text":"Task t1 of agent a is completed."},` +
		`{"type":"text","text":"A note."}],` +
		`"structuredContent":{"agent":"a","taskId":"t1","state":"completed","message":"Two\nlines",` +
		`"artifacts":[{"artifactId":"x y","name":"report","text":"see this","data":[{"n":1.0}]}]}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestSummarySaysWhatToDoNext(t *testing.T) {
	t.Parallel()
	for state, want := range map[a2a.State]string{
		a2a.StateWorking: "follow_task", a2a.StateInputRequired: "answer_task", a2a.StateAuthRequired: "has signed in",
	} {
		if got := summary("a", client.Result{TaskID: "t1", State: state}); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", state, got, want)
		}
	}
}

// A form of MCP has only fields of simple types.
func TestOnlyFlatSchemasAreForms(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"string","format":"date"},"b":{"type":"boolean"}}}`: true,
		`{"type":"object","properties":{"a":{"type":"object"}}}`:                                        false,
		`{"type":"object","properties":{"a":{"type":["string","null"]}}}`:                               false,
		`{"type":"object","properties":{"a":{"type":"string","format":"ipv4"}}}`:                        false,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}}}`:                                     false,
		`{"type":"object"}`:    false,
		`{"type":"array"}`:     false,
		`{"enum":[{"a":"b"}]}`: false,
		`true`:                 false,
	} {
		if got := flat([]byte(schema)); got != want {
			t.Errorf("%s: %v, want %v", schema, got, want)
		}
	}
}

func TestTheCardDecidesWhatTheToolTakes(t *testing.T) {
	t.Parallel()
	card := func(skills, schemas string) client.Card {
		extension := `{"uri":"` + schemaExtension + `","params":{"skillSchemas":` + schemas + `}}`
		return client.Card{Name: "A", Description: "Does.", Raw: []byte(
			`{"capabilities":{"extensions":[{"uri":"other"},` + extension + `]},"skills":` + skills + `}`)}
	}
	for _, tt := range []struct {
		name, skills, schemas string
		good, bad             []string
	}{
		{"no schema", `[{"id":"s","name":"S"}]`, `{}`,
			[]string{`{"data":3}`, `{"message":"x"}`}, []string{`{"skill":"s"}`}},
		{"one skill", `[{"id":"s","name":"S"}]`, `{"s":{"inputSchema":{"type":"string"}}}`,
			[]string{`{"data":"x"}`}, []string{`{"data":3}`, `{"skill":"s"}`}},
		// Its references would lead elsewhere in the schema of the tool, so the server alone checks it.
		{"one skill with references", `[{"id":"s","name":"S"}]`,
			`{"s":{"inputSchema":{"$ref":"#/$defs/d","$defs":{"d":{"type":"string"}}}}}`, []string{`{"data":3}`}, nil},
		{"two skills", `[{"id":"s","name":"S"},{"id":"t","name":"T"}]`, `{"s":{"inputSchema":{"type":"string"}}}`,
			[]string{`{"data":3,"skill":"s"}`, `{"data":3}`}, []string{`{"skill":"t"}`, `{"skill":"u"}`}},
	} {
		a, err := newAgent("x", &client.Client{}, card(tt.skills, tt.schemas), time.Second)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		for _, args := range tt.good {
			if _, err := a.arguments.read(json.RawMessage(args)); err != nil {
				t.Errorf("%s: %s: %v", tt.name, args, err)
			}
		}
		for _, args := range tt.bad {
			if _, err := a.arguments.read(json.RawMessage(args)); err == nil {
				t.Errorf("%s: %s is accepted", tt.name, args)
			}
		}
		want := strings.Count(tt.schemas, "inputSchema")
		if got := strings.Count(a.tool.Description, "must fit this JSON Schema"); got != want {
			t.Errorf("%s: %s", tt.name, a.tool.Description)
		}
	}
}

// A card may change while clients are connected, and may be unreadable for a time.
func TestRefreshFollowsTheCards(t *testing.T) {
	t.Parallel()
	var card atomic.Value // string; empty: none
	card.Store(`{"name":"One","description":"Does one thing."}`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if text := card.Load().(string); text != "" {
			_, _ = io.WriteString(w, text)
		} else {
			http.NotFound(w, nil)
		}
	}))
	defer server.Close()
	s, err := Open(t.Context(), Config{URL: server.URL, Agents: []string{"x"}, HTTP: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	near, far := sdk.NewInMemoryTransports()
	if _, err := s.mcp.Connect(t.Context(), near, nil); err != nil {
		t.Fatal(err)
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(), far, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, step := range []struct{ card, title, fault string }{
		{`{"name":"One","description":"Does one thing."}`, "One", ""},
		{`{"name":"Two","description":"Does another."}`, "Two", ""},
		{"", "Two", `agent "x" not found at ` + server.URL},
	} {
		card.Store(step.card)
		if err := s.Refresh(t.Context()); step.fault == "" && err != nil ||
			step.fault != "" && (err == nil || !strings.Contains(err.Error(), step.fault)) {
			t.Errorf("refresh: %v, want %q", err, step.fault)
		}
		for tool, err := range c.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if tool.Name == "send_to_x" && tool.Title != step.title {
				t.Errorf("the tool is %q, want %q", tool.Title, step.title)
			}
		}
	}
}

// An agent may send text letter by letter. The client hears the first at once, and then all of it in order.
func TestChunksAreReportedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		p := &progress{send: func(m string) { got = append(got, m) }}
		chunk := func(s string) {
			p.event(client.Event{Result: client.Result{Kind: client.KindArtifact}, Artifact: client.Artifact{
				Parts: []a2a.Part{{Kind: a2a.PartText, Text: s}}}}, false)
		}
		for _, s := range []string{"a", "b", "c"} {
			chunk(s)
		}
		time.Sleep(progressInterval)
		synctest.Wait()
		chunk("d")
		p.event(client.Event{Result: client.Result{Kind: client.KindStatus, State: a2a.StateWorking,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: "said"}}}}, false)
		chunk("e")
		p.close()
		time.Sleep(time.Second)
		if want := []string{"a", "bc", "d", "said", "e"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// The state of a repeated call comes from the client.
func TestForgedRoundTripsAreRefused(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"nonsense":     "is not one of a2ad",
		"{}":           "is not one of a2ad",
		"":             "is not one of a2ad",
		`{"task":"t"}`: "has no answer to the question of task t",
	} {
		c := &call{req: &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{
			RequestState: state, InputResponses: sdk.InputResponseMap{"other": &sdk.ElicitResult{Action: "accept"}},
		}}}
		if _, ok, err := c.roundTrip(); ok || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", state, err, want)
		}
	}
}
