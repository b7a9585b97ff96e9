package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/a2ad/a2ad/internal/client"
)

// odd is free-form JSON that careless code changes: key order, numbers that no float represents, escapes, empty
// values, and text that resembles other types.
const odd = `{"z":1,"a":{"b":[],"A":{}},"big":12345678901234567890,"tiny":1e-400,"huge":1e400,"exp":1E+2,"minus":-0,` +
	`"one":1.0,"frac":0.10,` +
	`"safe":9007199254740993,"long":1e131071,"null":null,"true":true,"empty":"","esc":"\u00e9\/\b\t\"\\",` +
	`"pair":"\ud83d\ude00","raw":"é😀` + "\u202e\u200f\ufffe\u2028\u2029" + `",` +
	`"final":"\"final\":true","html":"<script>&</script>","zalgo":"ą́̂","":"empty key","é":"key"}`

// tame is odd without the numbers that careless code would reject rather than change.
var tame = strings.NewReplacer(`"tiny":1e-400,"huge":1e400,`, "", `"long":1e131071,`, "").Replace(odd)

// Such values are sent wherever free-form values are accepted, and read back in every way.
func TestFreeFormValuesAreUnchanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	for _, value := range []string{odd, tame} {
		c.comesBack(a, b, value)
	}
}

func (c *cluster) comesBack(a, b *replica, value string) {
	c.t.Helper()
	t := c.t
	parts := `[{"kind":"text","text":"x","metadata":` + value + `},{"kind":"data","data":` + value + `,"metadata":` +
		value + `}]`
	message := func(id string) string {
		return `{"kind":"message","messageId":"` + id + `","role":"user","contextId":"c é😀","parts":` + parts +
			`,"metadata":` + value + `}`
	}
	sent := c.post(a, "/agents/echo", `{"jsonrpc":"2.0","id":"x","method":"message/send","params":{"message":`+
		message("m-1 é😀")+`,"configuration":{"blocking":true}}}`)
	var task struct{ ID, ContextID string }
	if err := json.Unmarshal(sent.result, &task); err != nil || task.ContextID != "c é😀" {
		t.Fatalf("%v: %s", err, sent.body)
	}
	streamed := c.post(a, "/agents/echo", `{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"message":`+
		message("m-2")+`}}`)
	// The history holds the message's metadata, a part's metadata, a data part and another part's metadata; the
	// artifact holds all but the first.
	for what, got := range map[string]struct {
		answer httpAnswer
		times  int
	}{
		"send": {sent, 7},
		"get": {c.post(b, "/agents/echo", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"`+
			task.ID+`"}}`), 7},
		"list": {c.post(b, "/agents/echo",
			`{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{"includeArtifacts":true,"historyLength":10}}`),
			14},
		"resubscribe": {c.post(b, "/agents/echo",
			`{"jsonrpc":"2.0","id":1,"method":"tasks/resubscribe","params":{"id":"`+task.ID+`"}}`), 7},
		"stream": {streamed, 7}, // the Task contains the history; the artifact arrives separately
	} {
		if n := bytes.Count(got.answer.body, []byte(value)); n != got.times {
			t.Errorf("%s: the unchanged values occur %d times, want %d: %s", what, n, got.times, got.answer.body)
		}
	}
	if n := bytes.Count(sent.body, []byte(`"messageId":"m-1 é😀"`)); n != 1 {
		t.Errorf("the message id occurs %d times, want once: %s", n, sent.body)
	}
}

func TestRequestIDsAreEchoed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	for _, id := range []string{
		"1", "1.0", "1e2", "-0", `"1"`, `""`, `"é\u00e9\ud83d\ude00😀"`, "9007199254740993",
		"12345678901234567890.000",
		"null", `"` + strings.Repeat("i", 254) + `"`,
	} {
		for method, params := range map[string]string{
			"tasks/get": `{"id":"nope"}`, "tasks/list": `{}`, "nope": `{}`, "message/send": `{}`,
			"message/stream": `{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}`,
		} {
			got := c.post(a, "/", `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`)
			if want := `{"jsonrpc":"2.0","id":` + id + `,`; !bytes.Contains(got.body, []byte(want)) {
				t.Errorf("%s with id %s: %s", method, id, got.body)
			}
		}
	}
	absent := c.post(a, "/", `{"jsonrpc":"2.0","method":"tasks/get","params":{"id":"nope"}}`)
	if absent.id != "null" || absent.code != -32001 {
		t.Errorf("without an id: %s", absent.body)
	}
}

// definitions are the parts of the 0.3.0 schema that validate answers, compiled once.
var definitions = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	text, err := os.ReadFile("../wire/v03/testdata/a2a-0.3.0.schema.json")
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("a2a.json", doc); err != nil {
		return nil, err
	}
	all := make(map[string]*jsonschema.Schema)
	for kind, name := range map[string]string{"task": "Task", "status-update": "TaskStatusUpdateEvent",
		"artifact-update": "TaskArtifactUpdateEvent"} {
		if all[kind], err = compiler.Compile("a2a.json#/definitions/" + name); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// validated is how many answers and events of a test are validated.
const validated = 200

// checkSchema validates what clients received.
func (c *cluster) checkSchema() {
	schemas, err := definitions()
	if err != nil {
		c.t.Errorf("compile the schema: %v", err)
		return
	}
	var docs [][]byte
	for _, s := range c.log.Streams() {
		for _, f := range s.Frames {
			docs = append(docs, f.Result)
		}
	}
	for _, a := range c.log.Answers() {
		docs = append(docs, a.Task)
	}
	docs = slices.DeleteFunc(docs, func(d []byte) bool { return len(d) > 64<<10 })
	step := max(len(docs)/validated, 1)
	for i := 0; i < len(docs); i += step {
		var o struct{ Kind string }
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(docs[i]))
		if err == nil {
			err = json.Unmarshal(docs[i], &o)
		}
		switch schema := schemas[o.Kind]; {
		case err != nil:
		case schema == nil:
			c.t.Errorf("a client received something of kind %q: %s", o.Kind, docs[i])
		default:
			err = schema.Validate(v)
		}
		if err != nil {
			c.t.Errorf("%v: %s", err, docs[i])
			return
		}
	}
}

// Streams are open on a task that waits for its client.
func TestIdleStreamsHoldNoConnection(t *testing.T) {
	t.Parallel()
	const streams = 200
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	asked := send(t, c.client(b, "script"), play(`{"op":"input"}`))
	var wg sync.WaitGroup
	var opened sync.WaitGroup
	ctx := bounded(t)
	for range streams {
		opened.Add(1)
		cl := c.client(a, "script")
		wg.Go(func() {
			began := false
			_, err := collect(cl.Resubscribe(ctx, asked.TaskID, client.StreamOptions{}), func(client.Event) bool {
				if !began {
					began = true
					opened.Done()
				}
				return false
			})
			if err != nil {
				t.Errorf("stream: %v", err)
			}
		})
	}
	opened.Wait()
	// Two replicas with a pool of 8 each.
	if n := one[int](c,
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name LIKE 'a2ad-%'`); n > 2*(8+besidePool) {
		t.Errorf("%d connections with %d idle streams, want those of two replicas at most", n, streams)
	}
	busy := one[int](c,
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'a2ad-a-%'
			AND state <> 'idle'`)
	if busy > 1 { // the poll
		t.Errorf("%d connections are busy with idle streams", busy)
	}
	if got := send(t, c.client(b, "script"), reply(asked.TaskID, "go on")); got.State.String() != "completed" {
		t.Errorf("got %s", got.Raw)
	}
	wg.Wait()
}
