package vocab_test

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor/vocab"
	"github.com/a2ad/a2ad/internal/rawjson"
)

func decoder() *vocab.Decoder {
	return &vocab.Decoder{TaskID: "t", ContextID: "c", Prefix: "1-"}
}

func text(s string) []a2a.Part { return []a2a.Part{{Kind: a2a.PartText, Text: s}} }

func TestAppendRun(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 8e6, time.UTC)
	asked := a2a.Message{ID: "m1", Role: a2a.RoleUser, TaskID: "x", ContextID: "c", Parts: []a2a.Part{
		{Kind: a2a.PartText, Text: "a\n\"b\"", MediaType: "text/plain"},
		{Kind: a2a.PartData, Data: a2a.Raw("{\"n\": 1e131071,\n\t\"n2\":[1.0,  -0]}"),
			Metadata: a2a.Raw(`{"b":1,"a":2}`)},
		{Kind: a2a.PartFile, Text: "dGNr", Filename: "f"},
		{Kind: a2a.PartURL, Text: "https://example.com/"},
	}, Metadata: a2a.Raw(`{"k":12345678901234567890}`), Extensions: []string{"e1", "e2"},
		ReferenceTaskIDs: []string{"r"}, Activated: []string{"https://example.com/e"}}
	answered := a2a.Message{ID: "m2", Role: a2a.RoleAgent, Parts: text("?")}
	run := vocab.Run{
		Task: &a2a.Task{
			ID: a2a.ID{0xab}, Agent: "words", ContextID: "c",
			Status: a2a.Status{State: a2a.StateWorking, Message: &answered, Time: at},
			Artifacts: []a2a.Artifact{{ID: "a", Name: "n", Description: "d", Parts: text("x"), Metadata: a2a.Raw(`{}`),
				Extensions: []string{"e"}}},
			History: []a2a.Message{asked}, Metadata: a2a.Raw(`{"z":null}`),
		},
		Tenant: "acme", Owner: `a"nn`,
		Messages: []a2a.Message{asked, {ID: "m3", Activated: []string{"https://example.com/f", "https://example.com/e"},
			RequestMetadata: a2a.Raw("{\"big\":  9007199254740993}"), Parts: text("y")}}, Epoch: 7, Attempt: 2,
		Deadline: at.Add(time.Hour), Checkpoint: a2a.Raw("[1,\r\n2]"),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	const message = `{"messageId":"m1","contextId":"c","taskId":"x","role":"ROLE_USER","parts":[` +
		`{"text":"a\n\"b\"","mediaType":"text/plain"},` +
		`{"data":{"n": 1e131071, ` + "\t" + `"n2":[1.0,  -0]},"metadata":{"b":1,"a":2}},` +
		`{"raw":"dGNr","filename":"f"},{"url":"https://example.com/"}],` +
		`"metadata":{"k":12345678901234567890},"extensions":["e1","e2"],"referenceTaskIds":["r"]}`
	const want = `{"taskId":"ab000000-0000-0000-0000-000000000000","contextId":"c",` +
		`"contextKey":"0c8ddc19-e13a-8247-a50d-6a5dc3d44c4e","tenant":"acme","owner":"a\"nn","agent":"words",` +
		`"epoch":7,"attempt":2,"deadline":"2026-03-04T06:06:07.008Z",` +
		`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",` +
		`"task":{"id":"ab000000-0000-0000-0000-000000000000","contextId":"c","status":{"state":"TASK_STATE_WORKING",` +
		`"message":{"messageId":"m2","role":"ROLE_AGENT","parts":[{"text":"?"}]},` +
		`"timestamp":"2026-03-04T05:06:07.008Z"},` +
		`"artifacts":[{"artifactId":"a","name":"n","description":"d","parts":[{"text":"x"}],"metadata":{},` +
		`"extensions":["e"]}],` +
		`"history":[` + message + `],"metadata":{"z":null}},"messages":[` + message +
		`,{"messageId":"m3","role":"ROLE_USER","parts":[{"text":"y"}]}],` +
		`"requestMetadata":[null,{"big":  9007199254740993}],"checkpoint":[1,  2],` +
		`"extensions":["https://example.com/e","https://example.com/f"]}`
	got := string(vocab.AppendRun([]byte(">"), &run))
	if diff := cmp.Diff(">"+want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := rawjson.Check([]byte(got[1:]), 64); err != nil {
		t.Error(err)
	}
	empty := string(vocab.AppendRun(nil, &vocab.Run{Task: &a2a.Task{}}))
	if want := `{"taskId":"00000000-0000-0000-0000-000000000000","contextId":"",` +
		`"contextKey":"d5330e19-9df6-8dfc-9739-2c9c3cb56450","tenant":"","owner":"","agent":"","epoch":0,"attempt":0,` +
		`"task":{"id":"00000000-0000-0000-0000-000000000000","contextId":"",` +
		`"status":{"state":"TASK_STATE_UNSPECIFIED"}},"messages":[]}`; empty != want {
		t.Errorf("got %s, want %s", empty, want)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	status := func(s a2a.State) *a2a.StatusUpdate { return &a2a.StatusUpdate{Status: a2a.Status{State: s}} }
	for _, tc := range []struct {
		in   string
		want a2a.Event
	}{
		{`{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING"}}}`, status(a2a.StateWorking)},
		{` {"statusUpdate" : {"taskId":"t","contextId":"c",` +
			`"status":{"state":"input-required","timestamp":"2026-01-01T00:00:00Z",` +
			`"message":null}}} `, status(a2a.StateInputRequired)},
		{`{"statusUpdate":{"status":{"state":"rejected"},"metadata":{"k":1e400}}}`,
			&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateRejected}, Metadata: a2a.Raw(`{"k":1e400}`)}},
		{`{"statusUpdate":{"status":{"state":"rejected"},"metadata":{"z":1.0,"a":2}}}`,
			&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateRejected}, Metadata: a2a.Raw(`{"z":1.0,"a":2}`)}},
		{`{"statusUpdate":{"status":{"state":"TASK_STATE_FAILED","message":{"parts":[{"text":"no"}]}}}}`,
			&a2a.StatusUpdate{Status: a2a.Status{
				State: a2a.StateFailed, Message: &a2a.Message{ID: "1-message-1", Role: a2a.RoleAgent, Parts: text("no"),
					TaskID: "t", ContextID: "c"}}}},
		{`{"message":{"messageId":"m","role":"agent","parts":[{"text":""}],"metadata":{"z":1.0,"a":2},` +
			`"extensions":["e"],"referenceTaskIds":[]}}`, &a2a.Message{
			ID: "m", Role: a2a.RoleAgent, Parts: text(""), TaskID: "t", ContextID: "c",
			Metadata: a2a.Raw(`{"z":1.0,"a":2}`), Extensions: []string{"e"}}},
		{`{"artifactUpdate":{"artifact":{"artifactId":"a","name":"n","description":"d","extensions":["e"],` +
			`"metadata":{"z":2.0,"a":3},"parts":[` +
			`{"text":"t","mediaType":"text/plain","filename":"f","metadata":{"z":3.0,"a":4}},{"raw":"_-8"},` +
			`{"url":"u"},{"data": [1.0, 2] },{"data":null}]},"append":true,"lastChunk":true,` +
			`"metadata":{"z":4.0,"a":5}}}`,
			&a2a.ArtifactUpdate{Append: true, LastChunk: true, Metadata: a2a.Raw(`{"z":4.0,"a":5}`),
				Artifact: a2a.Artifact{ID: "a", Name: "n", Description: "d", Extensions: []string{"e"},
					Metadata: a2a.Raw(`{"z":2.0,"a":3}`), Parts: []a2a.Part{
						{Kind: a2a.PartText, Text: "t", MediaType: "text/plain", Filename: "f",
							Metadata: a2a.Raw(`{"z":3.0,"a":4}`)}, {Kind: a2a.PartFile, Text: "/+8="},
						{Kind: a2a.PartURL, Text: "u"}, {Kind: a2a.PartData,
							Data: a2a.Raw(`[1.0, 2]`)}, {Kind: a2a.PartData,
							Data: a2a.Raw(`null`)}}}}},
		{`{"checkpoint":{"step": 3}}`, &a2a.Checkpoint{Body: a2a.Raw(`{"step": 3}`)}},
		{`{"checkpoint":null}`, &a2a.Checkpoint{Body: a2a.Raw(`null`)}},
		{`{"wait":{"key":"w","tasks":["a","b"],"mode":"any"}}`,
			&a2a.Wait{Key: "w", Tasks: []string{"a", "b"}, Any: true}},
		{`{"usage":{"model":"m","inputTokens":1,"outputTokens":2,"cachedInputTokens":3,"reasoningTokens":4,` +
			`"requests":1000000000}}`,
			&a2a.Usage{Model: "m", Input: 1, Output: 2, Cached: 3, Reasoning: 4, Requests: a2a.MaxUsage}},
		{`{"usage":{"model":null,"inputTokens":0}}`, &a2a.Usage{}},
		{`{"call":{"key":"k","agent":"x","message":{"role":"user","parts":[{"text":"t"}],"metadata":{"a":1},` +
			`"extensions":["e"]},"onParentEnd":"abandon"}}`, &a2a.Call{
			Key: "k", Agent: "x", Abandon: true,
			Input: digest(`{"role":"user","parts":[{"text":"t"}],"metadata":{"a":1},"extensions":["e"]}`),
			Message: a2a.Message{
				Role: a2a.RoleUser, Parts: text("t"), Metadata: a2a.Raw(`{"a":1}`), Extensions: []string{"e"},
			}}},
	} {
		got, err := decoder().Decode([]byte(tc.in))
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
		} else if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.in, diff)
		}
	}
}

func TestDecodeChoosesIDs(t *testing.T) {
	t.Parallel()
	d := decoder()
	var got []string
	for _, in := range []string{
		`{"artifactUpdate":{"artifact":{"parts":[{"text":"a"}]}}}`,
		`{"artifactUpdate":{"artifact":{"parts":[{"text":"b"}]},"append":true}}`,
		`{"artifactUpdate":{"artifact":{"parts":[{"text":"c"}]}}}`,
		`{"artifactUpdate":{"artifact":{"artifactId":"x","parts":[{"text":"d"}]}}}`,
		`{"artifactUpdate":{"artifact":{"artifactId":"","parts":[{"text":"e"}]},"append":true}}`,
	} {
		e, err := d.Decode([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.(*a2a.ArtifactUpdate).Artifact.ID)
	}
	if s := strings.Join(got, " "); s != "1-artifact-1 1-artifact-1 1-artifact-2 x x" {
		t.Errorf("got %s", s)
	}
}

const oneMember = `the event must have exactly one of the members statusUpdate, artifactUpdate, message, ` +
	`checkpoint, step, wait, call and usage`

func digest(s string) []byte {
	d := sha256.Sum256([]byte(s))
	return d[:]
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{
		{`hello`, `unexpected character at byte 0`},
		{`{"checkpoint":1,"checkpoint":2}`, `duplicate key at byte 16`},
		{`[]`, `the event must be an object`},
		{`{}`, oneMember},
		{`{"checkpoint":1,"message":{"parts":[{"text":"x"}]}}`,
			oneMember},
		{`{"task":{}}`, `task is kept by the server; report statusUpdate and artifactUpdate`},
		{`{"artefactUpdate":{}}`,
			`artefactUpdate is unknown; an event is a statusUpdate, artifactUpdate, message, checkpoint, step, ` +
				`wait, call or usage`},
		{`{"step":{"result":1}}`, `step.key is missing`},
		{`{"step":{"key":"k","result":1,"error":2}}`, `step must have a result or an error, not both`},
		{`{"step":{"key":"k","nextAt":"2026-12-24T08:00:00Z"}}`, `step.nextAt is only for a step that failed`},
		{`{"step":{"key":"k","artifact":"a","result":1}}`,
			`step.artifact is only for a step that begins, without a result or an error`},
		{`{"step":{"key":"k","artifact":"a","error":1}}`,
			`step.artifact is only for a step that begins, without a result or an error`},
		{`{"step":{"key":"k","artifact":"a","nextAt":"2026-12-24T08:00:00Z"}}`,
			`step.nextAt is only for a step that failed`},
		{`{"step":{"key":"k","artifact":7}}`, `step.artifact must be a string`},
		{`{"step":{"key":"k","attempts":0}}`, `step.attempts must be a positive integer`},
		{`{"step":{"key":"k","endedAt":"now"}}`, `step.endedAt must be a time such as 2026-12-24T08:00:00Z`},
		{`{"step":{"key":"k","output":1}}`, `step.output is unknown`},
		{`{"wait":{"for":"a while"}}`, `wait.for must be a duration such as 90s or 24h`},
		{`{"wait":{"until":"12345-01-01T00:00:00Z"}}`, `wait.until must be a time such as 2026-12-24T08:00:00Z`},
		{`{"wait":{"expects":1}}`, `wait.expects must be an object`},
		{`{"wait":{"mode":"both"}}`, `wait.mode must be one of all, any`},
		{`{"wait":{"tasks":"a"}}`, `wait.tasks must be an array of strings`},
		{`{"call":{"agent":"a","message":{"parts":[{"text":"x"}]}}}`, `call.key is missing`},
		{`{"call":{"key":"k","message":{"parts":[{"text":"x"}]}}}`, `call.agent is missing`},
		{`{"call":{"key":"k","agent":"a"}}`, `call.message.parts must have at least one part`},
		{`{"call":{"key":"k","agent":"a","message":{"parts":[{"text":1}]}}}`,
			`call.message.parts[0].text must be a string`},
		{`{"call":{"key":"k","agent":"a","message":{"role":"agent","parts":[{"text":"x"}]}}}`,
			`call.message.role must be ROLE_USER`},
		{`{"call":{"key":"k","agent":"a","message":{"messageId":"m","parts":[{"text":"x"}]}}}`,
			`call.message.messageId is unknown`},
		{`{"call":{"key":"k","agent":"a","onParentEnd":"wait","message":{"parts":[{"text":"x"}]}}}`,
			`call.onParentEnd must be one of cancel, abandon`},
		{`{"usage":3}`, `usage must be an object`},
		{`{"usage":{"tokens":3}}`, `usage.tokens is unknown`},
		{`{"usage":{"model":3}}`, `usage.model must be a string`},
		{`{"usage":{"model":"` + strings.Repeat("x", 257) + `"}}`, `usage.model is longer than 256 bytes`},
		{`{"usage":{"model":"a\u0000"}}`, `usage.model must not contain a NUL`},
		{`{"usage":{"inputTokens":-1}}`, `usage.inputTokens must be an integer from 0 to 1000000000`},
		{`{"usage":{"outputTokens":1.0}}`, `usage.outputTokens must be an integer from 0 to 1000000000`},
		{`{"usage":{"cachedInputTokens":1e3}}`, `usage.cachedInputTokens must be an integer from 0 to 1000000000`},
		{`{"usage":{"reasoningTokens":"1"}}`, `usage.reasoningTokens must be an integer from 0 to 1000000000`},
		{`{"usage":{"requests":1000000001}}`, `usage.requests must be an integer from 0 to 1000000000`},
		{`{"usage":{"requests":-0}}`, `usage.requests must be an integer from 0 to 1000000000`},
		{`{"wait":{"message":1}}`, `wait.message must be true or false`},
		{`{"statusUpdate":null}`, `statusUpdate must be an object`},
		{`{"statusUpdate":{}}`, `statusUpdate.status.state is missing`},
		{`{"statusUpdate":{"status":{"state":"TASK_STATE_UNSPECIFIED"}}}`,
			`statusUpdate.status.state "TASK_STATE_UNSPECIFIED" is not a state; one is TASK_STATE_COMPLETED`},
		{`{"statusUpdate":{"status":{"state":"TASK_STATE_CANCELED"}}}`,
			`statusUpdate.status.state "TASK_STATE_CANCELED" is not for an agent to set`},
		{`{"statusUpdate":{"status":{"state":"submitted"}}}`,
			`statusUpdate.status.state "submitted" is not for an agent to set`},
		{`{"artifactUpdate":{"artifact":{"artifactId":"a\u0000","parts":[{"text":"x"}]}}}`,
			`artifactUpdate.artifact.artifactId must not contain a NUL`},
		{`{"statusUpdate":{"status":{"state":3}}}`, `statusUpdate.status.state must be a string`},
		{`{"statusUpdate":{"status":{"state":"working"},"final":true}}`, `statusUpdate.final is unknown`},
		{`{"statusUpdate":{"status":{"state":"working"},"taskId":"other"}}`,
			`statusUpdate.taskId is not the one of this run`},
		{`{"statusUpdate":{"status":{"state":"working"},"metadata":[]}}`, `statusUpdate.metadata must be an object`},
		{`{"statusUpdate":{"status":{"state":"working","message":{"parts":[]}}}}`,
			`statusUpdate.status.message.parts must have at least one part`},
		{`{"statusUpdate":{"status":{"state":"working","message":{"role":"ROLE_USER","parts":[{"text":"x"}]}}}}`,
			`statusUpdate.status.message.role must be ROLE_AGENT`},
		{`{"message":{"parts":[{"text":"x"},{"text":"x","url":"y"}]}}`,
			`message.parts[1] must have exactly one of text, raw, url and data`},
		{`{"message":{"parts":[{"mediaType":"a/b"}]}}`,
			`message.parts[0] must have exactly one of text, raw, url and data`},
		{`{"message":{"parts":[{"raw":"!"}]}}`, `message.parts[0].raw must be base64`},
		{`{"message":{"parts":{}}}`, `message.parts must be an array`},
		{`{"message":{"parts":[{"kind":"text","text":"x"}]}}`, `message.parts[0].kind is unknown`},
		{`{"message":{"parts":[` + strings.Repeat(`{"text":"x"},`, 100) + `{"text":"x"}]}}`,
			`message.parts has more than 100 parts`},
		{`{"message":{"messageId":"` + strings.Repeat("x", 257) + `","parts":[{"text":"x"}]}}`,
			`message.messageId is longer than 256 bytes`},
		{`{"message":{"extensions":["a",1],"parts":[{"text":"x"}]}}`, `message.extensions[1] must be a string`},
		{`{"artifactUpdate":{"artifact":{"artifactId":"a"}}}`,
			`artifactUpdate.artifact.parts must have at least one part`},
		{`{"artifactUpdate":{"artifact":{"parts":[{"text":"x"}]},"append":"yes"}}`,
			`artifactUpdate.append must be true or false`},
	} {
		e, err := decoder().Decode([]byte(tc.in))
		if err == nil || err.Error() != tc.want || e != nil {
			t.Errorf("%.80s: event %v, error %v, want %s", tc.in, e, err, tc.want)
		}
	}
}

// FuzzDecode checks that an accepted event is complete enough to be stored.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING","message":{"parts":[{"data":null}]}}}}`,
		`{"checkpoint":[]}`,
		`{"step":{"key":"k","name":"n","input":{},"result":null,"startedAt":"2026-12-24T08:00:00Z"}}`,
		`{"step":{"key":"k","artifact":"a","startedAt":"2026-12-24T08:00:00Z"}}`,
		`{"wait":{"key":"w","for":"1h","message":true,"status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}`,
		`{"call":{"key":"k","agent":"a","message":{"parts":[{"text":"x"}]},"onParentEnd":"cancel"}}`,
		`{"wait":{"tasks":["k"],"mode":"all"}}`,
		`{"usage":{"model":"m","inputTokens":12,"outputTokens":0,"requests":1000000000}}`, `{"usage":{}}`,
		`{"artifactUpdate":{"artifact":{"parts":[{"raw":"aa"}]},"append":true}}`, `{"message":{"parts":[{"url":"x"}]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decoder().Decode(data)
		if err != nil {
			return
		}
		switch e := e.(type) {
		case *a2a.StatusUpdate:
			if !e.Status.State.Valid() {
				t.Fatalf("state %d", e.Status.State)
			}
		case *a2a.ArtifactUpdate:
			if e.Artifact.ID == "" || len(e.Artifact.Parts) == 0 || e.Artifact.Parts[0].Kind == 0 {
				t.Fatalf("artifact %+v", e)
			}
		case *a2a.Message:
			if e.ID == "" || len(e.Parts) == 0 {
				t.Fatalf("message %+v", e)
			}
		case *a2a.Usage:
			for _, n := range []int64{e.Input, e.Output, e.Cached, e.Reasoning, e.Requests} {
				if n < 0 || n > a2a.MaxUsage || len(e.Model) > 256 {
					t.Fatalf("usage %+v", e)
				}
			}
		case *a2a.Checkpoint:
			if rawjson.Check(e.Body, 64) != nil {
				t.Fatalf("checkpoint %q", e.Body)
			}
		}
	})
}
