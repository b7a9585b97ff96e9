package workerapi_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.ask(f.at, "", "GET", "/openapi.json", "")
	if got.status != 200 || got.json["openapi"] != "3.1.0" {
		t.Errorf("%d %.100s", got.status, got.body)
	}
}

// TestHandlersAgreeWithTheDocument: the handlers accept exactly the requests that the document
// describes.
func TestHandlersAgreeWithTheDocument(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, cases := range map[string]struct {
		path func() string
		good []string
		bad  []string
	}{
		"ClaimRequest": {func() string { return "/claim" },
			[]string{`{"worker":"w","agents":["words"]}`,
				`{"worker":"w","agents":["words","other"],"max":100,"waitSeconds":0}`},
			[]string{`{"worker":"w"}`, `{"agents":["words"]}`, `{"worker":"","agents":["words"]}`,
				`{"worker":"w","agents":[]}`, `{"worker":"w","agents":["words"],"max":0}`,
				`{"worker":"w","agents":["words"],"max":101}`, `{"worker":"w","agents":["words"],"waitSeconds":61}`,
				`{"worker":"w","agents":["words"],"x":1}`,
				`{"worker":"` + strings.Repeat("w", 129) + `","agents":["words"]}`}},
		"EventsRequest": {func() string { return f.claimed().path + "events" },
			[]string{`{"events":[]}`, events(working, artifact),
				`{"events":[{"checkpoint":null}],"checkpoint":3,"batchId":"b"}`},
			[]string{`{}`, `{"events":3}`, `{"events":[],"batchId":""}`, `{"events":[],"x":1}`, `{"events":[{}]}`,
				`{"events":[{"task":{}}]}`, `{"events":[{"statusUpdate":{}}]}`, `{"events":["x"]}`,
				`{"events":[{"artifactUpdate":{}}]}`, events(strings.TrimSuffix(working, "}") + `,"checkpoint":1}`),
				`{"events":[],"batchId":"` + strings.Repeat("b", 129) + `"}`,
				events(slices.Repeat([]string{working}, 1001)...)}},
		"HeartbeatRequest": {func() string {
			return f.claimed().path + "heartbeat"
		}, []string{`{}`}, []string{`{"x":1}`, `[]`}},
		"FinishRequest": {func() string { return f.claimed().path + "finish" },
			[]string{`{"outcome":"done"}`, `{"outcome":"retry","retryAfterSeconds":604800,"error":""}`,
				`{"outcome":"fail","error":"x"}`, `{"outcome":"release"}`},
			[]string{`{}`, `{"outcome":"x"}`, `{"outcome":"retry","retryAfterSeconds":604801}`,
				`{"outcome":"retry","retryAfterSeconds":0.5}`, `{"outcome":"fail","error":1}`,
				`{"outcome":"done","x":1}`}},
	} {
		s, err := schema("/components/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for i, body := range append(slices.Clone(cases.good), cases.bad...) {
			good := i < len(cases.good)
			var v any
			if err := json.Unmarshal([]byte(body), &v); err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(v); (err == nil) != good {
				t.Errorf("%s: the document and %.100s: %v", name, body, err)
			}
			if got := f.post(cases.path(), body); (got.status == 200) != good {
				t.Errorf("%s: %.100s: got %d %s", name, body, got.status, got.body)
			}
		}
	}
}

// TestDocumentHasTheRoutes: the document has every path and method that the API serves, and no
// others.
func TestDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := map[string]bool{}
	for path, item := range document()["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method == "parameters" {
				continue
			}
			got[method+" "+path] = true
			r := f.ask(f.at, "all", strings.ToUpper(method),
				strings.NewReplacer("{taskId}", "x", "{epoch}", "1", "{name}", "n").Replace(path), `{"x":1}`)
			if r.status == 404 {
				t.Errorf("%s %s: %s", method, path, r.body)
			}
		}
	}
	for _, route := range []string{"post /claim", "post /runs/{taskId}/{epoch}/events",
		"get /runs/{taskId}/{epoch}/steps", "post /tasks/{taskId}/signals/{name}",
		"post /runs/{taskId}/{epoch}/heartbeat", "post /runs/{taskId}/{epoch}/finish", "get /openapi.json"} {
		if !got[route] {
			t.Errorf("the document lacks %s", route)
		}
		delete(got, route)
	}
	if len(got) > 0 {
		t.Errorf("the document has %v", got)
	}
}
