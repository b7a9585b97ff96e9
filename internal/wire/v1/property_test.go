package v1_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/v03"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

func TestOutputIsValid(t *testing.T) {
	t.Parallel()
	task, item, sent := schema(t, "Task"), schema(t, "StreamResponse"), schema(t, "SendMessageResponse")
	push, pushes, card, page := schema(t, "TaskPushNotificationConfig"), schema(t,
		"ListTaskPushNotificationConfigsResponse"), schema(t, "AgentCard"), schema(t, "ListTasksResponse")
	rapid.Check(t, func(t *rapid.T) {
		x := a2atest.Task().Draw(t, "task")
		doc := codec.AppendTask(nil, &x)
		wiretest.Valid(t, task, doc)
		if got := rawjson.Get(doc, "metadata"); !bytes.Equal(got, x.Metadata) {
			t.Fatalf("metadata %q, want %q", got, x.Metadata)
		}
		wiretest.Valid(t, sent, codec.AppendSent(nil, &x))
		wiretest.Valid(t, item, codec.AppendSnapshot(nil, &x))
		e := a2atest.Entry().Draw(t, "entry")
		doc = codec.AppendEvent(nil, &e, false)
		wiretest.Valid(t, item, doc)
		if last := codec.AppendEvent(nil, &e, true); !bytes.Equal(doc, last) {
			t.Fatalf("the last event is written differently: %s and %s", doc, last)
		}
		m := a2atest.Message().Draw(t, "message")
		wiretest.Valid(t, sent, codec.AppendReply(nil, &m))
		p := a2a.Page{Tasks: rapid.SliceOfN(a2atest.Task(), 0, 2).Draw(t, "tasks"),
			NextToken: a2atest.Text().Draw(t, "next"), PageSize: 2, Total: 9}
		artifacts := rapid.Bool().Draw(t, "artifacts")
		doc = codec.AppendPage(nil, &p, artifacts)
		wiretest.Valid(t, page, doc)
		for listed := range rawjson.Elements(rawjson.Get(doc, "tasks")) {
			if has := rawjson.Get(listed, "artifacts") != nil; has != artifacts {
				t.Fatalf("artifacts %v: %s", artifacts, listed)
			}
		}
		cs := rapid.SliceOfN(a2atest.PushConfig(), 0, 3).Draw(t, "push configs")
		wiretest.Valid(t, pushes, codec.AppendPushConfigs(nil, "x", &a2a.PushPage{Configs: cs}))
		for i := range cs {
			wiretest.Valid(t, push, codec.AppendPushConfig(nil, a2atest.Name().Draw(t, "task"), &cs[i]))
		}
		c := a2atest.Card().Draw(t, "card")
		doc = codec.AppendCard(nil, &c)
		wiretest.Valid(t, card, doc)
		if again := codec.AppendCard(nil, &c); !bytes.Equal(doc, again) {
			t.Fatalf("two cards of one: %s and %s", doc, again)
		}
		doc = codec.AppendError(nil,
			a2a.InvalidParams(a2atest.Text().Draw(t, "field"), "%s", a2atest.Text().Draw(t, "text")), "")
		if err := rawjson.Check(doc, 8); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		for detail := range rawjson.Elements(rawjson.Get(doc, "data")) {
			if rawjson.Get(detail, "@type") == nil {
				t.Fatalf("a detail without a type: %s", doc)
			}
		}
	})
}

// A message keeps every byte of its free-form values, also through 0.3. One exception: a part loses empty
// metadata if 0.3 needs the metadata for members that it lacks.
func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	sameRaw := cmp.Comparer(func(a, b a2a.Raw) bool {
		return bytes.Equal(a, b) || rawjson.Empty(a) && rawjson.Empty(b)
	})
	rapid.Check(t, func(t *rapid.T) {
		m := a2atest.Message().Draw(t, "message")
		again := send(t, codec, "SendMessage", codec.AppendReply(nil, &m))
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
		old := v03.Codec{}
		there := send(t, old, "message/send", append(old.AppendReply([]byte(`{"message":`), &m), '}'))
		if diff := cmp.Diff(m, send(t, codec, "SendMessage", codec.AppendReply(nil, &there)), sameRaw); diff != "" {
			t.Fatalf("through 0.3: -want +got\n%s", diff)
		}
	})
}

func send(t *rapid.T, c wire.Codec, method string, params []byte) a2a.Message {
	t.Helper()
	op, err := c.Decode(method, params)
	if err != nil {
		t.Fatalf("%v\n%s", err, params)
	}
	return op.(*a2a.SendMessage).Message
}

func TestPushConfigRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := a2atest.PushConfig().Draw(t, "config")
		c.Version, c.Token, c.Credentials = a2a.PushV10, "", "" // the codec sets the version; secrets are never written
		c.Schemes = c.Schemes[:min(len(c.Schemes), 1)]
		op, err := codec.Decode("CreateTaskPushNotificationConfig", codec.AppendPushConfig(nil, "x", &c))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&a2a.SetPushConfig{TaskID: "x", Config: c}, op, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
	})
}

// After a direct reply the codec writes the message instead of the task, without the task's id.
func TestDirectReplyReplacesTheTask(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := a2atest.Message().Draw(t, "message")
		task := a2atest.Task().Draw(t, "task")
		task.Replied, task.Status.Message = true, &m
		want := m
		want.TaskID, want.ContextID = "", task.ContextID
		reply := codec.AppendReply(nil, &want)
		for what, got := range map[string][]byte{"sent": codec.AppendSent(nil, &task),
			"streamed": codec.AppendSnapshot(nil, &task)} {
			if !bytes.Equal(reply, got) {
				t.Fatalf("%s %s, want %s", what, got, reply)
			}
		}
		if got := codec.AppendTask(nil, &task); bytes.Equal(got, reply) {
			t.Fatalf("a task that is read is a task: %s", got)
		}
	})
}
