package rpc_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/sse"
)

// speaker is a client of one version over one binding: all that the shared scenario knows of
// it. What it returns is in the words of 1.0, whatever was spoken.
type speaker interface {
	// do carries out an operation. reason tells of its error, if it has one.
	do(t *testing.T, op *operation) (answer any, reason string)
	// follow carries out an operation that is answered by a stream.
	follow(t *testing.T, op *operation) feed
}

// feed is an open stream.
type feed interface {
	// next returns an item and its id, or nil behind the last one.
	next(t *testing.T) (item map[string]any, id string)
}

// operation is what a speaker is asked to do, by the name that 1.0 has for it. What is empty
// is not said.
type operation struct {
	name                  string
	task, context, script string
	history               string
	token, size           string // of a page
	config                string // id of a webhook
	refs                  string // id of a task that the message refers to
	apiKey                string // credential of who asks
	lastID, key           string // Last-Event-ID, Idempotency-Key
	extension             string // that the request asks for
	noParts               bool
	hook                  bool // with a webhook in the configuration
}

// TestEveryBindingSaysTheSame runs one script over every version and binding: what comes back
// is the same but for the words of the version.
func TestEveryBindingSaysTheSame(t *testing.T) {
	t.Parallel()
	names, speakers := everySpeaker(t, func(*rpc.Config) {})
	first := (&scenario{t: t, speaker: speakers[names[0]]}).run()
	for _, name := range names[1:] {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(first, (&scenario{t: t, speaker: speakers[name]}).run()); diff != "" {
				t.Errorf("-%s +%s\n%s", names[0], name, diff)
			}
		})
	}
}

// everySpeaker opens a site and returns a client of every version and binding.
func everySpeaker(t *testing.T, change func(*rpc.Config)) (names []string, speakers map[string]speaker) {
	t.Helper()
	s, conn, _ := openGRPC(t, change)
	return []string{"1.0 JSON-RPC", "0.3 JSON-RPC", "1.0 REST", "0.3 REST", "0.3 REST, proto", "1.0 gRPC", "0.3 gRPC"}, map[string]speaker{
		"1.0 JSON-RPC":    overRPC{s, dialects[1]},
		"0.3 JSON-RPC":    overRPC{s, dialects[0]},
		"1.0 REST":        overREST{s, "", wordsV1},
		"0.3 REST":        overREST{s, "/v1", wordsSchema},
		"0.3 REST, proto": overREST{s, "/v1", wordsProto},
		"1.0 gRPC":        overGRPC{conn, service1, wordsV1},
		"0.3 gRPC":        overGRPC{conn, service03, wordsProto},
	}
}

// TestPushOffIsSaidOverEveryBinding: an agent without webhooks refuses all that has to do with
// them, and makes no task for a message that comes with one.
func TestPushOffIsSaidOverEveryBinding(t *testing.T) {
	t.Parallel()
	names, speakers := everySpeaker(t, func(c *rpc.Config) { c.Agents[0].PushOff = true })
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			ctx := "context of " + name
			answer, reason := speakers[name].do(t, &operation{name: "SendMessage", context: ctx, script: `{"op":"complete"}`})
			if reason != "" {
				t.Fatal(reason)
			}
			task := id(object(t, answer))
			for _, op := range []operation{
				{name: "SendMessage", context: ctx, script: `{"op":"complete"}`, hook: true},
				{name: "CreateTaskPushNotificationConfig", task: task},
				{name: "GetTaskPushNotificationConfig", task: task, config: "one"},
				{name: "ListTaskPushNotificationConfigs", task: task},
				{name: "DeleteTaskPushNotificationConfig", task: task, config: "one"},
			} {
				if answer, reason := speakers[name].do(t, &op); reason != "PUSH_NOTIFICATION_NOT_SUPPORTED" {
					t.Errorf("%s: %v, %q", op.name, answer, reason)
				}
			}
			page, _ := speakers[name].do(t, &operation{name: "ListTasks", context: ctx, size: "10"})
			if tasks := object(t, page)["tasks"].([]any); len(tasks) != 1 {
				t.Errorf("there are %d tasks, want 1", len(tasks))
			}
		})
	}
}

// TestEveryPairOfBindings: what one client has made every other one reads, follows and goes on with, and all see the same.
func TestEveryPairOfBindings(t *testing.T) {
	t.Parallel()
	names, speakers := everySpeaker(t, func(*rpc.Config) {})
	must := func(t *testing.T, who string, op operation) any {
		t.Helper()
		answer, reason := speakers[who].do(t, &op)
		if reason != "" {
			t.Fatalf("%s %s: %s", who, op.name, reason)
		}
		return answer
	}
	rest := func(t *testing.T, f feed) (items []any, ids []string) {
		t.Helper()
		for item, id := f.next(t); item != nil; item, id = f.next(t) {
			items, ids = append(items, item), append(ids, id)
		}
		return items, ids
	}
	for _, maker := range names {
		made := must(t, maker, operation{name: "SendMessage", script: `{"op":"status","text":"on it"},{"op":"chunk","id":"a","n":2},{"op":"input","text":"more?"}`})
		task := id(object(t, made))
		for _, user := range names {
			t.Run(maker+" then "+user, func(t *testing.T) {
				before := must(t, maker, operation{name: "GetTask", task: task})
				equal(t, "the task as another reads it", rounded(t, before), rounded(t, must(t, user, operation{name: "GetTask", task: task})))
				followers := map[string]feed{}
				for _, name := range names {
					followers[name] = speakers[name].follow(t, &operation{name: "SubscribeToTask", task: task})
					first, _ := followers[name].next(t)
					equal(t, "what a stream of "+name+" starts with", rounded(t, before), rounded(t, first["task"]))
				}
				turn, ids := rest(t, speakers[user].follow(t, &operation{name: "SendStreamingMessage", task: task, script: `{"op":"chunk","id":"a","n":1},{"op":"status","text":"and"},{"op":"input","text":"more?"}`}))
				for _, name := range names {
					followers[name].next(t) // the message is there: the sender's stream has it in its first Task
					for i := 1; i < len(turn); i++ {
						item, id := followers[name].next(t)
						equal(t, "an event as "+name+" sees it", turn[i], any(item))
						equal(t, "its id", ids[i], id)
					}
				}
			})
		}
		must(t, names[0], operation{name: "CancelTask", task: task})
	}
}

// rounded returns an answer with the one number of the messages that is no double as gRPC sends and stores it.
func rounded(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, bytes.ReplaceAll(text, []byte("9007199254740993"), []byte("9007199254740992")))
}

// scenario plays the script with one speaker and writes down what it is told.
type scenario struct {
	speaker
	t     *testing.T
	lines []string
	ids   []string // as they came up
	ctx   string   // of its tasks: others of the site are none of its own
}

// note writes a line, in which ids are told apart by when they came up first.
func (s *scenario) note(what string, v any) {
	s.t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		s.t.Fatal(err)
	}
	named := uuids.ReplaceAllStringFunc(what+" "+strings.ReplaceAll(string(text), s.ctx, "ctx"), func(id string) string {
		if !slices.Contains(s.ids, id) {
			s.ids = append(s.ids, id)
		}
		return "#" + strconv.Itoa(slices.Index(s.ids, id))
	})
	s.lines = append(s.lines, strings.Split(named, "\n")...)
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// must does what has to go well.
func (s *scenario) must(op operation) any {
	s.t.Helper()
	answer, reason := s.do(s.t, &op)
	if reason != "" {
		s.t.Fatalf("%s: %s", op.name, reason)
	}
	s.note(op.name, answer)
	return answer
}

// fails does what must not go well.
func (s *scenario) fails(op operation) {
	s.t.Helper()
	answer, reason := s.do(s.t, &op)
	if reason == "" {
		s.t.Errorf("%s %+v: %v", op.name, op, answer)
	}
	s.note(op.name+" fails", reason)
}

// read reads a stream to its end and returns the ids of its items.
func (s *scenario) read(what string, f feed) (ids []string) {
	s.t.Helper()
	for item, id := f.next(s.t); item != nil; item, id = f.next(s.t) {
		seq, _, ok := strings.Cut(id, "-")
		if !ok {
			s.t.Errorf("an item with the id %q", id)
		}
		s.note(what+" "+seq, item)
		ids = append(ids, id)
	}
	return ids
}

func (s *scenario) run() []string {
	s.ctx = "context of " + s.t.Name()
	ctx := s.ctx
	first := object(s.t, s.must(operation{name: "SendMessage", context: ctx, script: `{"op":"status","text":"on it"},{"op":"chunk","id":"a","n":3},{"op":"input","text":"more?"}`}))
	task := id(first)
	s.must(operation{name: "GetTask", task: task})
	s.must(operation{name: "GetTask", task: task, history: "1"})

	ids := s.read("turn", s.follow(s.t, &operation{name: "SendStreamingMessage", task: task, script: `{"op":"status"},{"op":"artifact","id":"b","text":"x"},{"op":"chunk","id":"a","n":2},{"op":"complete","text":"done"}`}))
	done := s.must(operation{name: "GetTask", task: task})
	resumed := s.follow(s.t, &operation{name: "SubscribeToTask", task: task, lastID: ids[1]})
	if s.streamsStartWithTask() {
		if item, _ := resumed.next(s.t); item["task"] == nil {
			s.t.Errorf("a resumed stream of 1.0 starts with %v", item)
		}
	}
	if again := s.read("resumed", resumed); !slices.Equal(again, ids[2:]) {
		s.t.Errorf("resumed behind %s: %v, want %v", ids[1], again, ids[2:])
	}

	live := s.follow(s.t, &operation{name: "SendStreamingMessage", context: ctx, script: `{"op":"chunk","id":"a","n":1},{"op":"hang"}`})
	item, _ := live.next(s.t)
	s.note("live", item)
	hung := id(object(s.t, item["task"]))
	for item["artifactUpdate"] == nil {
		item, _ = live.next(s.t)
	}
	other := s.follow(s.t, &operation{name: "SubscribeToTask", task: hung})
	item, _ = other.next(s.t)
	s.note("other", item)
	s.must(operation{name: "CancelTask", task: hung})
	s.read("live", live)
	s.read("other", other)

	// A direct reply makes no task: the list below has none of it.
	reply := object(s.t, s.must(operation{name: "SendMessage", context: ctx, script: `{"op":"reply","text":"hi"}`}))
	if reply["role"] != "ROLE_AGENT" || reply["contextId"] != ctx || reply["taskId"] != nil {
		s.t.Errorf("a direct reply: %v", reply)
	}
	if ids := s.read("reply", s.follow(s.t, &operation{name: "SendStreamingMessage", context: ctx, script: `{"op":"reply","text":"hi"}`})); len(ids) != 1 {
		s.t.Errorf("the stream of a direct reply has %d items", len(ids))
	}

	page, _ := s.do(s.t, &operation{name: "ListTasks", context: ctx, size: "1"})
	token := object(s.t, page)["nextPageToken"].(string)
	page = s.must(operation{name: "ListTasks", context: ctx, size: "1", token: token})
	if diff := cmp.Diff(done, object(s.t, page)["tasks"].([]any)[0]); diff != "" {
		s.t.Errorf("the task, and as it is listed: %s", diff)
	}

	s.must(operation{name: "CreateTaskPushNotificationConfig", task: task})
	s.must(operation{name: "CreateTaskPushNotificationConfig", task: task, config: "one"})
	s.must(operation{name: "GetTaskPushNotificationConfig", task: task, config: "one"})
	s.must(operation{name: "ListTaskPushNotificationConfigs", task: task})
	for range 2 {
		s.must(operation{name: "DeleteTaskPushNotificationConfig", task: task, config: "one"})
	}
	s.fails(operation{name: "GetTaskPushNotificationConfig", task: task, config: "one"})

	keyed := operation{name: "SendMessage", key: "k " + s.t.Name(), script: `{"op":"complete"}`}
	if once, again := s.must(keyed), s.must(keyed); !cmp.Equal(once, again) {
		s.t.Errorf("a repeated request: %s", cmp.Diff(once, again))
	}
	keyed.script = `{"op":"complete","text":"other"}`
	s.fails(keyed)

	const unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
	for _, name := range []string{"GetTask", "CancelTask", "SubscribeToTask", "ListTaskPushNotificationConfigs", "CreateTaskPushNotificationConfig"} {
		s.fails(operation{name: name, task: unknown})
		s.fails(operation{name: name, task: "no id/at:all"})
	}
	s.fails(operation{name: "CancelTask", task: task})
	s.fails(operation{name: "GetTask", task: task, history: "-1"})
	s.fails(operation{name: "SendMessage", task: task, script: `{"op":"complete"}`})
	s.fails(operation{name: "SendStreamingMessage", task: unknown, script: `{"op":"complete"}`})
	s.fails(operation{name: "SendMessage", task: task, context: "another"})
	s.fails(operation{name: "SendMessage", noParts: true})
	s.fails(operation{name: "SendStreamingMessage", noParts: true})
	return s.lines
}

// streamsStartWithTask reports whether a resumed stream does, as those of 1.0 do.
func (s *scenario) streamsStartWithTask() bool {
	modern, ok := s.speaker.(interface{ modern() bool })
	return ok && modern.modern()
}

// words are those of one way to write things.
type words uint8

const (
	wordsV1 words = iota
	wordsSchema
	wordsProto
)

// message returns the body of a send.
func (w words) message(op *operation) string {
	part := `{"script":[` + op.script + `],"n":9007199254740993,"null":null}`
	m := `{"messageId":"m",` + [...]string{
		`"role":"ROLE_USER","parts":[{"data":` + part + `},{"raw":"/w==","filename":"f","mediaType":"a/b"}]`,
		`"role":"user","parts":[{"kind":"data","data":` + part + `},{"kind":"file","file":{"bytes":"/w==","name":"f","mimeType":"a/b"}}]`,
		`"role":"ROLE_USER","content":[{"data":{"data":` + part + `}},{"file":{"fileWithBytes":"L3c9PQ==","name":"f","mimeType":"a/b"}}]`,
	}[w]
	if op.noParts {
		m = `{"messageId":"m",` + [...]string{`"role":"ROLE_USER","parts":[]`, `"role":"user","parts":[]`, `"role":"ROLE_USER"`}[w]
	}
	if op.task != "" {
		m += `,"taskId":"` + op.task + `"`
	}
	if op.context != "" {
		m += `,"contextId":"` + op.context + `"`
	}
	if op.refs != "" {
		m += `,"referenceTaskIds":["` + op.refs + `"]`
	}
	if op.hook {
		m += `},"configuration":{` + [...]string{
			`"taskPushNotificationConfig":{"url":"https://h/x"}`, `"pushNotificationConfig":{"url":"https://h/x"}`, `"pushNotification":{"url":"https://h/x"}`,
		}[w]
	}
	return `{"message":` + m + `},"metadata":{"k":1}}`
}

// plain returns an answer in the words of 1.0, without times.
func (w words) plain(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = w.plain(v[i])
		}
	case map[string]any:
		for _, name := range []string{"kind", "timestamp", "final", "pageSize", "page_size", "total_size", "next_page_token"} {
			delete(v, name)
		}
		for name, member := range v {
			if name != "data" {
				v[name] = w.plain(member)
			}
		}
		w.part(v)
		if content, ok := v["content"]; ok && w == wordsProto {
			v["parts"] = content
			delete(v, "content")
		}
		for _, name := range []string{"state", "role"} {
			switch word, _ := v[name].(string); {
			case modernWords[word] != "":
				v[name] = modernWords[word]
			case word == "TASK_STATE_CANCELLED":
				v[name] = "TASK_STATE_CANCELED"
			}
		}
		for _, flag := range []string{"append", "lastChunk"} {
			if v[flag] == false {
				delete(v, flag)
			}
		}
	}
	return v
}

// part rewrites the content of a part.
func (w words) part(v map[string]any) {
	if wrapped, ok := v["data"].(map[string]any); ok && w == wordsProto {
		v["data"] = wrapped["data"]
	}
	file, ok := v["file"].(map[string]any)
	if !ok {
		return
	}
	delete(v, "file")
	for theirs, ours := range map[string]string{"bytes": "raw", "fileWithBytes": "raw", "uri": "url", "fileWithUri": "url", "mimeType": "mediaType", "name": "filename"} {
		if content, ok := file[theirs].(string); ok {
			if theirs == "fileWithBytes" {
				inner, _ := base64.StdEncoding.DecodeString(content)
				content = string(inner)
			}
			v[ours] = content
		}
	}
}

// answer returns a task without a wrapper, and webhooks in the form of 1.0.
func (w words) answer(t *testing.T, name string, result []byte) any {
	t.Helper()
	if name == "DeleteTaskPushNotificationConfig" {
		return "deleted"
	}
	v := w.plain(parse(t, result))
	switch name {
	case "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig":
		return webhook(object(t, v))
	case "ListTaskPushNotificationConfigs":
		list, bare := v.([]any)
		if !bare {
			list = object(t, v)["configs"].([]any)
		}
		for i := range list {
			list[i] = webhook(object(t, list[i]))
		}
		return list
	}
	for _, member := range []string{"task", "message"} {
		if wrapped, ok := object(t, v)[member]; ok {
			return wrapped
		}
	}
	return v
}

func webhook(v map[string]any) map[string]any {
	if name, ok := v["name"].(string); ok { // tasks/{id}/…
		v["taskId"] = strings.Split(name, "/")[1]
	}
	if inner, ok := v["pushNotificationConfig"].(map[string]any); ok {
		inner["taskId"] = v["taskId"]
		v = inner
	}
	if a, ok := v["authentication"].(map[string]any); ok && a["schemes"] != nil {
		v["authentication"] = map[string]any{"scheme": a["schemes"].([]any)[0]}
	}
	return v
}

// item returns an item of a stream in its wrapper.
func (w words) item(t *testing.T, result []byte) map[string]any {
	t.Helper()
	item := object(t, parse(t, result))
	kind, bare := item["kind"].(string)
	w.plain(item)
	if bare { // 0.3 over JSON-RPC does not wrap
		item = map[string]any{map[string]string{"task": "task", "message": "message", "status-update": "statusUpdate", "artifact-update": "artifactUpdate"}[kind]: item}
	}
	return item
}

func (op *operation) header() http.Header {
	h := http.Header{}
	if op.lastID != "" {
		h.Set("Last-Event-ID", op.lastID)
	}
	if op.key != "" {
		h.Set("Idempotency-Key", op.key)
	}
	if op.apiKey != "" {
		h.Set("X-API-Key", op.apiKey)
	}
	if op.extension != "" {
		h.Set("A2A-Extensions", op.extension)
	}
	return h
}

// events of HTTP.
type httpFeed struct {
	words
	reader *sse.Reader
	name   string // of the operation
	member string // in which a result is; empty: it is bare
}

func newFeed(t *testing.T, resp *http.Response, w words, name, member string) feed {
	t.Helper()
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s %s", kind, body)
	}
	return &httpFeed{w, sse.NewReader(resp.Body, sse.ReaderOptions{}), name, member}
}

func (f *httpFeed) next(t *testing.T) (map[string]any, string) {
	t.Helper()
	ev, err := f.reader.Next()
	if errors.Is(err, io.EOF) {
		return nil, ""
	}
	if err != nil {
		t.Fatal(err)
	}
	f.valid(t, f.name, f.member != "", ev.Data)
	result := ev.Data
	if f.member != "" {
		result = rawjson.Get(ev.Data, f.member)
	}
	return f.item(t, bytes.Clone(result)), ev.ID
}

// overRPC speaks JSON-RPC.
type overRPC struct {
	*site
	dialect
}

func (s overRPC) modern() bool { return s.version == "1.0" }

func (s overRPC) words() words {
	if s.modern() {
		return wordsV1
	}
	return wordsSchema
}

func (s overRPC) request(op *operation) (method, params string) {
	task, config := string(rawjson.AppendString(nil, op.task)), op.config
	switch op.name {
	case "SendMessage":
		return s.send, s.words().message(op)
	case "SendStreamingMessage":
		return s.stream, s.words().message(op)
	case "GetTask":
		if op.history != "" {
			return s.get, `{"id":` + task + `,"historyLength":` + op.history + `}`
		}
		return s.get, `{"id":` + task + `}`
	case "ListTasks":
		return s.list, `{"contextId":"` + op.context + `","pageSize":` + op.size + `,"pageToken":"` + op.token + `","includeArtifacts":true}`
	case "CancelTask":
		return s.cancel, `{"id":` + task + `}`
	case "SubscribeToTask":
		return s.subscribe, `{"id":` + task + `}`
	case "CreateTaskPushNotificationConfig":
		return s.pushSet, s.pushConfig(op.task, `"url":"https://h/x","id":"`+config+`"`, "Bearer")
	case "GetTaskPushNotificationConfig":
		return s.pushGet, s.pushParams(op.task, config)
	case "ListTaskPushNotificationConfigs":
		return s.pushList, s.pushParams(op.task, "")
	}
	return s.pushDelete, s.pushParams(op.task, config)
}

func (s overRPC) do(t *testing.T, op *operation) (any, string) {
	t.Helper()
	method, params := s.request(op)
	resp := client{s.site, t, s.dialect}.post(method, params, op.header())
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	s.words().valid(t, op.name, true, body)
	if failure := rawjson.Get(body, "error"); failure != nil {
		data := rawjson.Get(failure, "data")
		for first := range rawjson.Elements(data) {
			data = first
			break
		}
		word, _ := rawjson.String(rawjson.Get(data, "reason"))
		return nil, word
	}
	return s.words().answer(t, op.name, rawjson.Get(body, "result")), ""
}

func (s overRPC) follow(t *testing.T, op *operation) feed {
	t.Helper()
	method, params := s.request(op)
	resp := client{s.site, t, s.dialect}.post(method, params, op.header())
	t.Cleanup(func() { resp.Body.Close() })
	return newFeed(t, resp, s.words(), op.name, "result")
}

// overREST speaks HTTP+JSON.
type overREST struct {
	*site
	prefix string
	words  words
}

func (s overREST) modern() bool { return s.words == wordsV1 }

func (s overREST) request(op *operation) (method, path, body string) {
	task := "/tasks/" + url.PathEscape(op.task)
	pushes := task + "/pushNotificationConfigs"
	switch op.name {
	case "SendMessage":
		return "POST", "/message:send", s.words.message(op)
	case "SendStreamingMessage":
		return "POST", "/message:stream", s.words.message(op)
	case "GetTask":
		if op.history != "" {
			return "GET", task + "?history_length=" + op.history, ""
		}
		return "GET", task, ""
	case "ListTasks":
		q := url.Values{"contextId": {op.context}, "pageSize": {op.size}, "pageToken": {op.token}, "includeArtifacts": {"true"}}
		return "GET", "/tasks?" + q.Encode(), ""
	case "CancelTask":
		return "POST", task + ":cancel", ""
	case "SubscribeToTask":
		if op.lastID != "" {
			return "GET", task + ":subscribe", ""
		}
		return "POST", task + ":subscribe", ""
	case "CreateTaskPushNotificationConfig":
		config := `{"url":"https://h/x","id":"` + op.config + `","authentication":{"schemes":["Bearer"]}}`
		return "POST", pushes, [...]string{
			`{"url":"https://h/x","id":"` + op.config + `","authentication":{"scheme":"Bearer"}}`,
			`{"taskId":` + string(rawjson.AppendString(nil, op.task)) + `,"pushNotificationConfig":` + config + `}`,
			`{"config":{"pushNotificationConfig":` + config + `}}`,
		}[s.words]
	case "GetTaskPushNotificationConfig":
		return "GET", pushes + "/" + url.PathEscape(op.config), ""
	case "ListTaskPushNotificationConfigs":
		return "GET", pushes, ""
	}
	return "DELETE", pushes + "/" + url.PathEscape(op.config), ""
}

// dialect returns in which words the answer comes: of 0.3, only who sends the schema's gets them.
func (s overREST) dialect(body string) words {
	if s.words == wordsSchema && body == "" {
		return wordsProto
	}
	return s.words
}

func (s overREST) send(t *testing.T, op *operation) (*http.Response, words) {
	t.Helper()
	method, path, body := s.request(op)
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/agents/script"+s.prefix+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = op.header()
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.modern() {
		req.Header.Set("A2A-Version", "1.0")
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp, s.dialect(body)
}

func (s overREST) do(t *testing.T, op *operation) (any, string) {
	t.Helper()
	resp, w := s.send(t, op)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, reason(string(body))
	}
	w.valid(t, op.name, false, body)
	return w.answer(t, op.name, body), ""
}

func (s overREST) follow(t *testing.T, op *operation) feed {
	t.Helper()
	resp, w := s.send(t, op)
	t.Cleanup(func() { resp.Body.Close() })
	return newFeed(t, resp, w, op.name, "")
}
