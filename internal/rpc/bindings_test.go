package rpc_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/rpc"
)

// speaker is a client of one version over one binding. The shared scenario knows nothing else of
// it. All results are in the words of 1.0, whatever the binding.
type speaker interface {
	// do carries out an operation. reason is the reason of its error, or "".
	do(t *testing.T, op *operation) (answer any, reason string)
	// follow carries out an operation whose answer is a stream.
	follow(t *testing.T, op *operation) feed
}

// feed is an open stream.
type feed interface {
	// next returns an item and its id, or nil after the last item.
	next(t *testing.T) (item map[string]any, id string)
}

// operation is a request to a speaker, under its name in 1.0. The request leaves out empty fields.
type operation struct {
	name                  string
	task, context, script string
	history               string
	token, size           string // page of a list
	config                string // webhook
	refs                  string // the message refers to this task
	apiKey                string // credential of the caller
	lastID, key           string // Last-Event-ID, Idempotency-Key
	extension             string // requested by the caller
	noParts               bool
	hook                  bool // the configuration contains a webhook
}

// TestBindingsAnswerAlike runs one script over every version and binding. The answers are the same,
// except for the words of the version.
func TestBindingsAnswerAlike(t *testing.T) {
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
	return []string{"1.0 JSON-RPC", "0.3 JSON-RPC", "1.0 REST", "0.3 REST", "0.3 REST, proto", "1.0 gRPC",
			"0.3 gRPC"}, map[string]speaker{
			"1.0 JSON-RPC":    overRPC{s, dialects[1]},
			"0.3 JSON-RPC":    overRPC{s, dialects[0]},
			"1.0 REST":        overREST{s, "", wordsV1},
			"0.3 REST":        overREST{s, "/v1", wordsSchema},
			"0.3 REST, proto": overREST{s, "/v1", wordsProto},
			"1.0 gRPC":        overGRPC{conn, service1, wordsV1},
			"0.3 gRPC":        overGRPC{conn, service03, wordsProto},
		}
}

// TestPushOffIsRefusedByEveryBinding: an agent without webhooks refuses all webhook operations, and
// makes no task for a message that contains a webhook.
func TestPushOffIsRefusedByEveryBinding(t *testing.T) {
	t.Parallel()
	names, speakers := everySpeaker(t, func(c *rpc.Config) { c.Agents[0].PushOff = true })
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			ctx := "context of " + name
			answer, reason := speakers[name].do(t,
				&operation{name: "SendMessage", context: ctx, script: `{"op":"complete"}`})
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
				t.Errorf("got %d tasks, want 1", len(tasks))
			}
		})
	}
}

// TestEveryPairOfBindings: any client can read, follow and continue a task that another client
// made, and all see the same.
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
		made := must(t, maker, operation{name: "SendMessage",
			script: `{"op":"status","text":"on it"},{"op":"chunk","id":"a","n":2},{"op":"input","text":"more?"}`})
		task := id(object(t, made))
		for _, user := range names {
			t.Run(maker+" then "+user, func(t *testing.T) {
				before := must(t, maker, operation{name: "GetTask", task: task})
				equal(t, "the task as another reads it", rounded(t, before),
					rounded(t, must(t, user, operation{name: "GetTask", task: task})))
				followers := map[string]feed{}
				for _, name := range names {
					followers[name] = speakers[name].follow(t, &operation{name: "SubscribeToTask", task: task})
					first, _ := followers[name].next(t)
					equal(t, "what a stream of "+name+" starts with", rounded(t, before), rounded(t, first["task"]))
				}
				turn, ids := rest(t, speakers[user].follow(t, &operation{
					name: "SendStreamingMessage", task: task,
					script: `{"op":"chunk","id":"a","n":1},{"op":"status","text":"and"},{"op":"input","text":"more?"}`,
				}))
				for _, name := range names {
					followers[name].next(t) // the message is stored: the sender's stream has it in its first Task
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

// rounded rounds the one number of the messages that is no double, as gRPC does.
func rounded(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, bytes.ReplaceAll(text, []byte("9007199254740993"), []byte("9007199254740992")))
}

// scenario plays the script with one speaker and records the answers.
type scenario struct {
	speaker
	t     *testing.T
	lines []string
	ids   []string // in the order of their first appearance
	ctx   string   // of its tasks, because the site has tasks of other scenarios
}

// note records a line. Ids become numbers, in the order of their first appearance.
func (s *scenario) note(what string, v any) {
	s.t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		s.t.Fatal(err)
	}
	named := uuids.ReplaceAllStringFunc(what+" "+strings.ReplaceAll(string(text), s.ctx, "ctx"),
		func(id string) string {
			if !slices.Contains(s.ids, id) {
				s.ids = append(s.ids, id)
			}
			return "#" + strconv.Itoa(slices.Index(s.ids, id))
		})
	s.lines = append(s.lines, strings.Split(named, "\n")...)
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// must runs an operation that must succeed.
func (s *scenario) must(op operation) any {
	s.t.Helper()
	answer, reason := s.do(s.t, &op)
	if reason != "" {
		s.t.Fatalf("%s: %s", op.name, reason)
	}
	s.note(op.name, answer)
	return answer
}

// fails runs an operation that must fail.
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
			s.t.Errorf("got an item with the id %q", id)
		}
		s.note(what+" "+seq, item)
		ids = append(ids, id)
	}
	return ids
}

func (s *scenario) run() []string {
	s.ctx = "context of " + s.t.Name()
	ctx := s.ctx
	first := object(s.t, s.must(operation{name: "SendMessage", context: ctx,
		script: `{"op":"status","text":"on it"},{"op":"chunk","id":"a","n":3},{"op":"input","text":"more?"}`}))
	task := id(first)
	s.must(operation{name: "GetTask", task: task})
	s.must(operation{name: "GetTask", task: task, history: "1"})

	ids := s.read("turn", s.follow(s.t, &operation{name: "SendStreamingMessage", task: task,
		script: `{"op":"status"},{"op":"artifact","id":"b","text":"x"},` +
			`{"op":"chunk","id":"a","n":2},{"op":"complete","text":"done"}`}))
	done := s.must(operation{name: "GetTask", task: task})
	resumed := s.follow(s.t, &operation{name: "SubscribeToTask", task: task, lastID: ids[1]})
	if s.streamsStartWithTask() {
		if item, _ := resumed.next(s.t); item["task"] == nil {
			s.t.Errorf("a resumed stream of 1.0 starts with %v", item)
		}
	}
	if again := s.read("resumed", resumed); !slices.Equal(again, ids[2:]) {
		s.t.Errorf("resumed after %s: got %v, want %v", ids[1], again, ids[2:])
	}

	live := s.follow(s.t, &operation{name: "SendStreamingMessage", context: ctx,
		script: `{"op":"chunk","id":"a","n":1},{"op":"hang"}`})
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

	// A direct reply makes no task, so the list below does not contain it.
	reply := object(s.t, s.must(operation{name: "SendMessage", context: ctx, script: `{"op":"reply","text":"hi"}`}))
	if reply["role"] != "ROLE_AGENT" || reply["contextId"] != ctx || reply["taskId"] != nil {
		s.t.Errorf("a direct reply: %v", reply)
	}
	if ids := s.read("reply", s.follow(s.t,
		&operation{name: "SendStreamingMessage", context: ctx, script: `{"op":"reply","text":"hi"}`})); len(ids) != 1 {
		s.t.Errorf("the stream of a direct reply has %d items", len(ids))
	}

	page, _ := s.do(s.t, &operation{name: "ListTasks", context: ctx, size: "1"})
	token := object(s.t, page)["nextPageToken"].(string)
	page = s.must(operation{name: "ListTasks", context: ctx, size: "1", token: token})
	if diff := cmp.Diff(done, object(s.t, page)["tasks"].([]any)[0]); diff != "" {
		s.t.Errorf("the task differs from the list: %s", diff)
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
	for _, name := range []string{"GetTask", "CancelTask", "SubscribeToTask", "ListTaskPushNotificationConfigs",
		"CreateTaskPushNotificationConfig"} {
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

// streamsStartWithTask reports whether a resumed stream starts with the Task, as in 1.0.
func (s *scenario) streamsStartWithTask() bool {
	modern, ok := s.speaker.(interface{ modern() bool })
	return ok && modern.modern()
}
