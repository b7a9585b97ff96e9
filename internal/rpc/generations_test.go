package rpc_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// eachPair runs a scenario for every pair of a version that makes a task and one that uses it.
func eachPair(t *testing.T, scenario func(t *testing.T, maker, user client)) {
	t.Parallel()
	s := newSite(t)
	for _, maker := range dialects {
		for _, user := range dialects {
			t.Run(maker.version+" then "+user.version, func(t *testing.T) {
				scenario(t, client{s, t, maker}, client{s, t, user})
			})
		}
	}
}

const (
	inputRequired = "TASK_STATE_INPUT_REQUIRED"
	completed     = "TASK_STATE_COMPLETED"
	canceled      = "TASK_STATE_CANCELED"
)

func id(task map[string]any) string { return task["id"].(string) }

func ref(task map[string]any) string { return `{"id":"` + id(task) + `"}` }

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -want +got\n%s", what, diff)
	}
}

// fold applies the items of a stream to the task it starts with, as a client does. It does not
// change the items.
func fold(t *testing.T, items []map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	copied := parse(t, text).([]any)
	task := object(t, object(t, copied[0])["task"])
	for _, v := range copied[1:] {
		item := object(t, v)
		if u, ok := item["artifactUpdate"].(map[string]any); ok {
			foldArtifact(task, object(t, u["artifact"]), u["append"] == true)
		}
		if u, ok := item["statusUpdate"].(map[string]any); ok {
			if m := object(t, task["status"])["message"]; m != nil {
				history, _ := task["history"].([]any)
				task["history"] = append(history, m)
			}
			task["status"] = u["status"]
		}
	}
	return task
}

func foldArtifact(task, a map[string]any, more bool) {
	list, _ := task["artifacts"].([]any)
	i := slices.IndexFunc(list, func(other any) bool { return other.(map[string]any)["artifactId"] == a["artifactId"] })
	switch {
	case i < 0:
		list = append(list, a)
	case more:
		was := list[i].(map[string]any)
		was["parts"] = append(was["parts"].([]any), a["parts"].([]any)...)
	default:
		list[i] = a
	}
	task["artifacts"] = list
}

// TestOneTaskTwoVersions: one version can read, follow and continue a task that another one made.
// Both show the same task at every point.
func TestOneTaskTwoVersions(t *testing.T) {
	eachPair(t, func(t *testing.T, maker, user client) {
		made := maker.task(maker.send, maker.message("", "ctx-"+maker.version+user.version,
			`{"op":"status","text":"on it"},{"op":"chunk","id":"a","n":3},{"op":"input","text":"more?"}`, true))
		if made["contextId"] != "ctx-"+maker.version+user.version ||
			object(t, made["status"])["state"] != inputRequired {
			t.Fatalf("made %v", made)
		}
		equal(t, "the task as the user reads it", made, user.task(user.get, ref(made)))
		equal(t, "the task as the maker reads it", made, maker.task(maker.get, ref(made)))

		// Both versions have a stream open while the task waits for input.
		streams := []*events{user.follow(user.subscribe, ref(made)), user.follow(user.subscribe, ref(made)),
			maker.follow(maker.subscribe, ref(made))}
		heads := make([]map[string]any, len(streams))
		for i, s := range streams {
			heads[i] = s.next()
			equal(t, "the first item of a stream", map[string]any{"task": made}, heads[i])
		}
		done := user.task(user.send, user.message(id(made), "",
			`{"op":"status","text":"again"},{"op":"artifact","id":"b","text":"x"},`+
				`{"op":"chunk","id":"a","n":2},{"op":"complete","text":"done"}`, true))
		if object(t, done["status"])["state"] != completed {
			t.Fatalf("done %v", done)
		}
		for i, s := range streams {
			items := s.until("")
			folded := fold(t, append([]map[string]any{heads[i]}, items...))
			equal(t, "artifacts of the folded stream", done["artifacts"], folded["artifacts"])
			equal(t, "status of the folded stream", done["status"], folded["status"])
		}
		if !slices.EqualFunc(streams[0].raw[1:], streams[1].raw[1:], bytes.Equal) {
			t.Errorf("two streams of one version differ:\n%s\n%s", bytes.Join(streams[0].raw, nl),
				bytes.Join(streams[1].raw, nl))
		}
		equal(t, "event ids in the two versions", streams[0].ids, streams[2].ids)
		equal(t, "the finished task as the maker reads it", done, maker.task(maker.get, ref(made)))
		text := string(streams[0].raw[len(streams[0].raw)-1])
		if strings.Contains(text, `"final":true`) != (user.version == "0.3") {
			t.Errorf("the last event of %s: %s", user.version, text)
		}
		for _, c := range []client{maker, user} {
			finished(t, c, done)
		}
	})
}

var nl = []byte{'\n'}

// finished checks what a version shows of a task that has ended.
func finished(t *testing.T, c client, task map[string]any) {
	t.Helper()
	codes := map[string]map[string]int64{
		"0.3": {c.send: -32602, c.stream: -32602, c.cancel: -32002},
		"1.0": {c.send: -32004, c.stream: -32004, c.cancel: -32002, c.subscribe: -32004},
	}[c.version]
	for method, want := range codes {
		params := ref(task)
		if method == c.send || method == c.stream {
			params = c.message(id(task), "", `{"op":"complete"}`, true)
		}
		if _, code := c.call(method, params); code != want {
			t.Errorf("%s %s of a finished task: %d, want %d", c.version, method, code, want)
		}
	}
	if c.version == "0.3" {
		items := c.follow(c.subscribe, ref(task)).until("")
		if len(items) != 2 || stateOf(items[1]) != completed {
			t.Errorf("resubscribed to a finished task: %v", items)
		}
	}
}

// TestCancelByTheOther: one version cancels the task of another one, whose stream reports it.
func TestCancelByTheOther(t *testing.T) {
	eachPair(t, func(t *testing.T, maker, user client) {
		s := maker.follow(maker.stream, maker.message("", "", `{"op":"chunk","id":"a","n":1},{"op":"hang"}`, true))
		made := object(t, s.next()["task"])
		s.untilArtifact()
		gone := user.task(user.cancel, ref(made))
		if object(t, gone["status"])["state"] != canceled {
			t.Errorf("canceled: %v", gone)
		}
		if items := s.until(""); len(items) == 0 || stateOf(items[len(items)-1]) != canceled {
			t.Errorf("the maker's stream ended with %v", items)
		}
		for _, c := range []client{maker, user} {
			_, code := c.call(c.cancel, ref(made))
			if want := map[string]int64{"0.3": -32002, "1.0": 0}[c.version]; code != want {
				t.Errorf("%s: the second cancel: %d, want %d", c.version, code, want)
			}
			equal(t, "the canceled task", object(t, gone["status"])["state"],
				object(t, c.task(c.get, ref(made))["status"])["state"])
		}
	})
}

// TestResumeByTheOther: one version can resume the stream of another one after each event. 0.3 gets
// only the events after it. 1.0 first gets the Task as of that event. The result is the same task.
func TestResumeByTheOther(t *testing.T) {
	eachPair(t, func(t *testing.T, maker, user client) {
		s := maker.follow(maker.stream, maker.message("", "",
			`{"op":"status","text":"on it"},{"op":"chunk","id":"a","n":3},{"op":"status"},`+
				`{"op":"artifact","id":"b","text":"x"},{"op":"complete","text":"done"}`, true))
		all := s.until("")
		made := object(t, all[0]["task"])
		done := user.task(user.get, ref(made))
		for r := range s.ids[:len(s.ids)-1] {
			resumed := user.follow(user.subscribe, ref(made), http.Header{"Last-Event-ID": {s.ids[r]}})
			items := resumed.until("")
			ids := s.ids[r+1:]
			if user.version == "1.0" {
				ids = s.ids[r:]
				equal(t, "the folded stream after "+s.ids[r], done, fold(t, items))
				items = items[1:]
			}
			equal(t, "ids after "+s.ids[r], ids, resumed.ids)
			equal(t, "items after "+s.ids[r], all[r+1:], items)
		}
		// After the last event there is nothing to send. An id of another log is a gap.
		last := http.Header{"Last-Event-ID": {s.ids[len(s.ids)-1]}}
		if user.version == "1.0" {
			if _, code := user.call(user.subscribe, ref(made), last); code != -32004 {
				t.Errorf("after the last event: got code %d", code)
			}
		} else if items := user.follow(user.subscribe, ref(made), last).until(""); len(items) != 2 {
			t.Errorf("after the last event: got %v", items)
		}
		foreign := user.follow(user.subscribe, ref(made),
			http.Header{"Last-Event-ID": {"3-00000000"}, "A2a-Extensions": {"https://a2ad.dev/extensions/resume/v1"}})
		first := object(t, foreign.next()["task"])
		equal(t, "the mark of a gap", map[string]any{
			"https://a2ad.dev/extensions/resume/v1": map[string]any{"gap": true}}, first["metadata"])
		delete(first, "metadata")
		equal(t, "the task after a gap", done, first)
		if rest := foreign.until(""); len(rest) != map[string]int{"0.3": 1, "1.0": 0}[user.version] {
			t.Errorf("after the gap: got %v", rest)
		}
	})
}

// TestStreamHasTheWholeTurn: the stream of a message to a waiting task has every event of the turn,
// even if the agent finishes before the stream begins.
func TestStreamHasTheWholeTurn(t *testing.T) {
	eachPair(t, func(t *testing.T, maker, user client) {
		made := maker.task(maker.send, maker.message("", "", `{"op":"input"}`, true))
		for range 5 {
			items := user.follow(user.stream, user.message(id(made), "",
				`{"op":"chunk","id":"a","n":2},{"op":"input","text":"more?"}`, true)).until("")
			var got []string
			for _, item := range items {
				for member := range item {
					got = append(got, member+" "+strings.TrimPrefix(stateOf(item), "TASK_STATE_"))
				}
			}
			equal(t, "the turn", []string{"task SUBMITTED", "statusUpdate WORKING", "artifactUpdate ",
				"artifactUpdate ", "statusUpdate INPUT_REQUIRED"}, got)
			history := object(t, items[0]["task"])["history"].([]any)
			if last := object(t, history[len(history)-1]); last["messageId"] != "m-"+user.version {
				t.Errorf("the first item of the stream ends with the message %v", last["messageId"])
			}
		}
	})
}

// TestListByTheOther: both versions list the same tasks, page by page.
func TestListByTheOther(t *testing.T) {
	eachPair(t, func(t *testing.T, maker, user client) {
		ctx := "list-" + maker.version + user.version
		var made []any
		for range 3 {
			made = append([]any{maker.task(maker.send,
				maker.message("", ctx, `{"op":"artifact","id":"a","text":"x"},{"op":"complete"}`, true))}, made...)
		}
		var listed []any
		for token := ""; ; {
			result, code := user.call(user.list,
				`{"contextId":"`+ctx+`","pageSize":2,"includeArtifacts":true,"pageToken":"`+token+`"}`)
			page := object(t, parse(t, result))
			if code != 0 || parseInt(t, page["totalSize"]) != 3 || parseInt(t, page["pageSize"]) != 2 {
				t.Fatalf("error %d, page %v", code, page)
			}
			listed = append(listed, modern(page["tasks"]).([]any)...)
			if token = page["nextPageToken"].(string); token == "" {
				break
			}
		}
		equal(t, "the list", made, listed)
		result, _ := user.call(user.list, `{"contextId":"`+ctx+`","status":"`+user.working+`"}`)
		if page := object(t, parse(t, result)); len(page["tasks"].([]any)) != 0 || page["nextPageToken"] != "" {
			t.Errorf("got tasks, want none: %s", result)
		}
	})
}

func parseInt(t *testing.T, v any) int {
	t.Helper()
	n, err := strconv.Atoi(v.(interface{ String() string }).String())
	if err != nil {
		t.Error(err)
	}
	return n
}

// TestWebhookOfTheOther: one version can read, list and delete a webhook that another one set.
func TestWebhookOfTheOther(t *testing.T) {
	eachPair(t, func(t *testing.T, maker, user client) {
		task := id(maker.task(maker.send, maker.message("", "", `{"op":"input"}`, true)))
		body := map[string]string{
			"0.3": `{"taskId":"` + task + `","pushNotificationConfig":` +
				`{"url":"https://h/x","id":"default","authentication":{"schemes":["Bearer"]}}}`,
			"1.0": `{"taskId":"` + task + `","url":"https://h/x","id":"default","authentication":{"scheme":"Bearer"}}`,
		}
		list := map[string]string{"0.3": `[` + body["0.3"] + `]`,
			"1.0": `{"configs":[` + body["1.0"] + `],"nextPageToken":""}`}
		for range 2 { // without an id, the second call replaces the same webhook
			result, code := maker.call(maker.pushSet,
				maker.pushConfig(task, `"url":"https://h/x","token":"t"`, "Bearer"))
			if string(result) != body[maker.version] {
				t.Errorf("set: %s, %d", result, code)
			}
		}
		if result, code := user.call(user.pushGet,
			user.pushParams(task, "default")); string(result) != body[user.version] {
			t.Errorf("get: %s, %d", result, code)
		}
		if result, code := user.call(user.pushList, user.pushParams(task, "")); string(result) != list[user.version] {
			t.Errorf("list: %s, %d", result, code)
		}
		for range 2 { // deleting an unknown webhook succeeds
			want := map[string]string{"0.3": "null", "1.0": "{}"}[user.version]
			result, code := user.call(user.pushDelete, user.pushParams(task, "default"))
			if string(result) != want || code != 0 {
				t.Errorf("delete: %s, %d", result, code)
			}
		}
		for method, params := range map[string]string{maker.pushGet: maker.pushParams(task, "default"),
			maker.pushList: maker.pushParams(strings.Replace(task, "-", "_", 1), "")} {
			if _, code := maker.call(method, params); code != -32001 {
				t.Errorf("%s of an unknown webhook: got %d", method, code)
			}
		}
	})
}

// TestKeyBelongsToOneVersion: an Idempotency-Key repeats a request of the same version. With the
// other version it is a different request.
func TestKeyBelongsToOneVersion(t *testing.T) {
	eachPair(t, func(t *testing.T, maker, user client) {
		key := http.Header{"Idempotency-Key": {"k-" + maker.version + user.version}}
		params := maker.message("", "", `{"op":"chunk","id":"a","n":2},{"op":"complete"}`, true)
		made := maker.task(maker.send, params, key)
		equal(t, "the repeated request", made, maker.task(maker.send, params, key))
		items := maker.follow(maker.stream, params, key).until("")
		equal(t, "the repeated request, streamed", made, object(t, items[0]["task"]))
		if len(items) != map[string]int{"0.3": 2, "1.0": 1}[maker.version] {
			t.Errorf("the stream of a finished task: %v", items)
		}
		if user.version != maker.version {
			if _, code := user.call(user.send, user.message("", "", `{"op":"complete"}`, true), key); code != -32602 {
				t.Errorf("the same key in the other version: %d", code)
			}
		}
	})
}

// TestBytesThroughTheOther: free-form values keep their numbers and the order of their names in
// both versions.
func TestBytesThroughTheOther(t *testing.T) {
	eachPair(t, func(t *testing.T, maker, user client) {
		const data = `{"z":1.0,"a":9007199254740993,"script":[{"op":"complete"}],"big":1e400,"e":"\u0000"}`
		params := `{"message":{"messageId":"m","role":"` + maker.role + `","parts":[` + maker.part(data) +
			`],"metadata":` + data + `}}`
		made := maker.task(maker.send, params)
		result, _ := user.call(user.get, ref(made))
		if n := bytes.Count(result, []byte(data)); n != 2 {
			t.Errorf("got the data %d times in %s", n, result)
		}
	})
}
