package v03_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/v03"
	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

func TestOutputIsValid(t *testing.T) {
	t.Parallel()
	task, entry, message := schema(t, "Task"), schema(t,
		"SendStreamingMessageSuccessResponse/properties/result"), schema(t, "Message")
	push, pushes := schema(t, "TaskPushNotificationConfig"), schema(t,
		"ListTaskPushNotificationConfigSuccessResponse/properties/result")
	card, failure := schema(t, "AgentCard"), schema(t, "JSONRPCError")
	rapid.Check(t, func(t *rapid.T) {
		x := a2atest.Task().Draw(t, "task")
		doc := codec.AppendTask(nil, &x)
		wiretest.Valid(t, task, doc)
		if got := rawjson.Get(doc, "metadata"); !bytes.Equal(got, x.Metadata) {
			t.Fatalf("metadata %q, want %q", got, x.Metadata)
		}
		e := a2atest.Entry().Draw(t, "entry")
		last := rapid.Bool().Draw(t, "last")
		doc = codec.AppendEvent(nil, &e, last)
		wiretest.Valid(t, entry, doc)
		if _, status := e.Event.(*a2a.StatusUpdate); status {
			if final, _ := rawjson.Bool(rawjson.Get(doc, "final")); final != last {
				t.Fatalf("final %v, want %v", final, last)
			}
		}
		m := a2atest.Message().Draw(t, "message")
		wiretest.Valid(t, message, codec.AppendReply(nil, &m))
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
		wiretest.Valid(t, failure,
			codec.AppendError(nil,
				a2a.InvalidParams(a2atest.Text().Draw(t, "field"), "%s", a2atest.Text().Draw(t, "text")), ""))
	})
}

func TestPageIsValid(t *testing.T) {
	t.Parallel()
	task := schema(t, "Task")
	rapid.Check(t, func(t *rapid.T) {
		p := a2a.Page{Tasks: rapid.SliceOfN(a2atest.Task(), 0, 2).Draw(t, "tasks"),
			NextToken: a2atest.Text().Draw(t, "next"), PageSize: 2, Total: 9}
		artifacts := rapid.Bool().Draw(t, "artifacts")
		doc := codec.AppendPage(nil, &p, artifacts)
		if err := rawjson.Check(doc, 64); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		n := 0
		for item := range rawjson.Elements(rawjson.Get(doc, "tasks")) {
			wiretest.Valid(t, task, item)
			if has := rawjson.Get(item, "artifacts") != nil; has != artifacts {
				t.Fatalf("artifacts %v: %s", artifacts, item)
			}
			n++
		}
		if n != len(p.Tasks) {
			t.Fatalf("%d tasks, want %d", n, len(p.Tasks))
		}
	})
}

// sameRaw compares values by their bytes, but treats an empty object as absent. If a part's metadata was used
// for a2ad's own members, the two cannot be distinguished.
var sameRaw = cmp.Comparer(func(a, b a2a.Raw) bool { return bytes.Equal(a, b) || rawjson.Empty(a) && rawjson.Empty(b) })

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := a2atest.Message().Draw(t, "message")
		params := append(codec.AppendReply([]byte(`{"message":`), &m), '}')
		for _, lenient := range []bool{false, true} {
			c := v03.Codec{Lenient: lenient, OnLenient: func(rule string) {
				t.Fatalf("our own output needs %s: %s", rule, params)
			}}
			op, err := c.Decode("message/send", params)
			if err != nil {
				t.Fatalf("%v\n%s", err, params)
			}
			if diff := cmp.Diff(m, op.(*a2a.SendMessage).Message, sameRaw); diff != "" {
				t.Fatalf("-want +got\n%s\n%s", diff, params)
			}
		}
	})
}

func TestPushConfigRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := a2atest.PushConfig().Draw(t, "config")
		c.Version, c.Token, c.Credentials = a2a.PushV03, "", "" // the codec sets the version; secrets are never written
		op, err := codec.Decode("tasks/pushNotificationConfig/set", codec.AppendPushConfig(nil, "x", &c))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&a2a.SetPushConfig{TaskID: "x", Config: c}, op, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
	})
}

func TestBase64(t *testing.T) {
	t.Parallel()
	part := func(text string) (string, error) {
		op, err := codec.Decode("message/send",
			[]byte(`{"message":{"messageId":"m","role":"user","parts":[{"file":{"bytes":"`+text+`"}}]}}`))
		if err != nil {
			return "", err
		}
		return op.(*a2a.SendMessage).Message.Parts[0].Text, nil
	}
	for in, want := range map[string]string{
		"": "", "QQ==": "QQ==", "QQ": "QQ==", "QUI=": "QUI=", "QUI": "QUI=", "QUJD": "QUJD", "-_8": "+/8=",
		"-_8=": "+/8=", "+/8": "+/8=",
		"QR==": "QQ==", "QUJ=": "QUI=", // the unused bits are not zero
	} {
		if got, err := part(in); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"Q", "=", "==", "Q===", "QQ=", "QUJD====", "QQ==QQ==", "-/8=", "Q Q=", `Q\nQ=`, "QÜI=",
		"QUJDQ", `\u0000`, "QUI=="} {
		if got, err := part(in); a2a.CodeOf(err) != a2a.CodeInvalidParams {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
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
