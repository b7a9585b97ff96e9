package interop

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"testing"

	a2aold "github.com/a2aproject/a2a-go/a2a"
	oldclient "github.com/a2aproject/a2a-go/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The official Go clients over gRPC, which they find by the cards. The agent that plays scripts is the default one,
// because 0.3 cannot name another.

var plaintext = grpc.WithTransportCredentials(insecure.NewCredentials())

func newGRPCAddress(t *testing.T, flags ...string) *address {
	t.Helper()
	return newAddress(t, append([]string{"--default-agent", "script", "--grpc-listen", "127.0.0.1:0"}, flags...)...)
}

func dialGRPC(t *testing.T, at *address, opts ...oldclient.FactoryOption) *peer {
	t.Helper()
	transports := []a2aold.TransportProtocol{a2aold.TransportProtocolGRPC}
	prefer := oldclient.WithConfig(oldclient.Config{PreferredTransports: transports})
	return dialAt(t, at.url(), "/", append([]oldclient.FactoryOption{prefer, oldclient.WithGRPCTransport(plaintext)},
		opts...)...)
}

func dialNewGRPC(t *testing.T, at *address, agent string) *newPeer {
	t.Helper()
	ctx := testContext(t)
	card, err := agentcard.NewResolver(httpClient(t)).Resolve(ctx, at.url()+agent)
	if err != nil {
		t.Fatalf("resolve the card: %v", err)
	}
	c, err := a2aclient.NewFromCard(ctx, card, a2agrpc.WithGRPCTransport(plaintext),
		a2aclient.WithConfig(a2aclient.Config{PreferredTransports: []a2a.TransportProtocol{a2a.TransportProtocolGRPC}}))
	if err != nil {
		t.Fatalf("make a client from the card: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Destroy(); err != nil {
			t.Errorf("destroy the client: %v", err)
		}
	})
	return &newPeer{c, t}
}

func TestNewClientOverGRPC(t *testing.T) {
	t.Parallel()
	at := newGRPCAddress(t)
	p := dialNewGRPC(t, at, "/")
	ctx := testContext(t)

	asked := p.send(newScript("", chunks("a", 3), op{"op": "input", "text": "more?"}))
	if asked.Status.State != a2a.TaskStateInputRequired {
		t.Fatalf("the task is %s", asked.Status.State)
	}
	sameJSON(t, "the task", asked, p.get(asked.ID))

	push := &a2a.PushConfig{URL: "https://example.com/hook", ID: "p"}
	if _, err := p.CreateTaskPushConfig(ctx, &a2a.PushConfig{TaskID: asked.ID, ID: push.ID,
		URL: push.URL}); err != nil {
		t.Errorf("set a webhook: %v", err)
	}
	if list, err := p.ListTaskPushConfigs(ctx, &a2a.ListTaskPushConfigRequest{TaskID: asked.ID}); err != nil ||
		len(list) != 1 || list[0].URL != push.URL {
		t.Errorf("list webhooks: %+v, %v", list, err)
	}
	if err := p.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: asked.ID, ID: "p"}); err != nil {
		t.Errorf("delete a webhook: %v", err)
	}

	done := newFold(t, p.SendStreamingMessage(ctx,
		newScript(asked.ID, op{"op": "status", "text": "on it"}, chunks("a", 2), op{"op": "complete", "text": "done"})))
	sameJSON(t, "the stream put together", p.get(asked.ID), done)
	list, err := p.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: asked.ContextID, IncludeArtifacts: true})
	if err != nil || list.TotalSize != 1 || list.NextPageToken != "" {
		t.Fatalf("list %+v, %v", list, err)
	}
	sameJSON(t, "the task in the list", done, list.Tasks[0])
	if err := firstNewError(p.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: done.ID})); !errors.Is(err,
		a2a.ErrUnsupportedOperation) {
		t.Errorf("subscription to a finished task: %v", err)
	}

	g := newGate(t)
	req := newScript("", chunks("a", 3), g.op(), chunks("a", 2), op{"op": "complete"})
	req.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
	made := p.send(req)
	opened := false
	done = newFold(t, func(yield func(a2a.Event, error) bool) {
		for event, err := range p.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: made.ID}) {
			if !opened {
				opened = true
				g.open()
			}
			if !yield(event, err) {
				return
			}
		}
	})
	sameJSON(t, "the subscription put together", p.get(made.ID), done)

	// The card of another agent names it by a tenant, which the client repeats.
	echo := dialNewGRPC(t, at, "/agents/echo")
	said := echo.send(&a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("hello"))})
	if said.Status.State != a2a.TaskStateCompleted || len(said.Artifacts) != 1 {
		t.Errorf("the agent echo made %+v", said)
	}
	if _, err := p.GetTask(ctx, &a2a.GetTaskRequest{ID: said.ID}); !errors.Is(err, a2a.ErrTaskNotFound) {
		t.Errorf("a task of another agent: %v", err)
	}

	checkNewErrors(t, p, done.ID)
}

func checkNewErrors(t *testing.T, p *newPeer, ended a2a.TaskID) {
	t.Helper()
	unknown := a2a.NewTaskID()
	for name, row := range map[string]struct {
		want error
		call func(context.Context) error
	}{
		"get of an unknown task": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			_, err := p.GetTask(ctx, &a2a.GetTaskRequest{ID: unknown})
			return err
		}},
		"cancel of a finished task": {a2a.ErrTaskNotCancelable, func(ctx context.Context) error {
			_, err := p.CancelTask(ctx, &a2a.CancelTaskRequest{ID: ended})
			return err
		}},
		"message to a finished task": {a2a.ErrUnsupportedOperation, func(ctx context.Context) error {
			_, err := p.SendMessage(ctx, newScript(ended, op{"op": "complete"}))
			return err
		}},
		"stream of a message to a finished task": {a2a.ErrUnsupportedOperation, func(ctx context.Context) error {
			return firstNewError(p.SendStreamingMessage(ctx, newScript(ended, op{"op": "complete"})))
		}},
		"message without parts": {a2a.ErrInvalidParams, func(ctx context.Context) error {
			_, err := p.SendMessage(ctx, &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser)})
			return err
		}},
	} {
		if err := row.call(testContext(t)); !errors.Is(err, row.want) {
			t.Errorf("%s: got %v, want %v", name, err, row.want)
		}
	}
}

func TestOldClientOverGRPC(t *testing.T) {
	t.Parallel()
	at, g := newGRPCAddress(t), newGate(t)
	p := dialGRPC(t, at)
	ctx := testContext(t)

	s := p.stream(script(chunks("a", 10), g.op(), chunks("b", 20)))
	s.untilChunk("a", true)
	back := p.resubscribe(s.seen[0].TaskInfo().TaskID)
	checkSame(t, "what a second client comes to", back.first(), fold(t, s.seen))
	g.open()
	s.rest()
	checkWhole(t, p, s.seen)
	back.rest()
	checkWhole(t, p, back.seen)

	asked := p.send(script(op{"op": "input", "text": "more?"}))
	if _, err := p.SetTaskPushConfig(ctx, &a2aold.TaskPushConfig{TaskID: asked.ID,
		Config: a2aold.PushConfig{ID: "p", URL: "https://example.com/hook"}}); err != nil {
		t.Errorf("set a webhook: %v", err)
	}
	if c, err := p.GetTaskPushConfig(ctx, &a2aold.GetTaskPushConfigParams{TaskID: asked.ID,
		ConfigID: "p"}); err != nil ||
		c.Config.URL != "https://example.com/hook" || c.TaskID != asked.ID {
		t.Errorf("get a webhook: %+v, %v", c, err)
	}
	if list, err := p.ListTaskPushConfig(ctx, &a2aold.ListTaskPushConfigParams{TaskID: asked.ID}); err != nil ||
		len(list) != 1 {
		t.Errorf("list webhooks: %+v, %v", list, err)
	}
	if err := p.DeleteTaskPushConfig(ctx, &a2aold.DeleteTaskPushConfigParams{TaskID: asked.ID,
		ConfigID: "p"}); err != nil {
		t.Errorf("delete a webhook: %v", err)
	}
	if gone, err := p.CancelTask(ctx, &a2aold.TaskIDParams{ID: asked.ID}); err != nil ||
		gone.Status.State != a2aold.TaskStateCanceled {
		t.Errorf("cancel: %+v, %v", gone, err)
	}
	if _, err := p.CancelTask(ctx, &a2aold.TaskIDParams{ID: asked.ID}); !errors.Is(err, a2aold.ErrTaskNotCancelable) {
		t.Errorf("the second cancel: %v", err)
	}
	if _, err := p.GetTask(ctx, &a2aold.TaskQueryParams{ID: a2aold.NewTaskID()}); !errors.Is(err,
		a2aold.ErrTaskNotFound) {
		t.Errorf("an unknown task: %v", err)
	}
	if _, err := p.SendMessage(ctx,
		&a2aold.MessageSendParams{Message: a2aold.NewMessage(a2aold.MessageRoleUser)}); !errors.Is(err,
		a2aold.ErrInvalidParams) {
		t.Errorf("a message without parts: %v", err)
	}
}

// Parts sent over gRPC come back unchanged over gRPC and over JSON-RPC.
func TestPartsOverGRPC(t *testing.T) {
	t.Parallel()
	at := newGRPCAddress(t, "--default-agent", "echo")
	meta := map[string]any{"trace": map[string]any{"id": "⟨é⟩", "n": 1.5, "none": nil, "list": []any{true, "x"}}}
	m := a2aold.NewMessage(a2aold.MessageRoleUser,
		a2aold.TextPart{Text: "zero \x00, a line\nbreak, \u2028, <&>, 🙂", Metadata: meta},
		a2aold.TextPart{Text: ""},
		a2aold.DataPart{Data: map[string]any{"a": []any{1.0, "two", nil, map[string]any{}}, "": "no name"},
			Metadata: meta},
		a2aold.FilePart{File: a2aold.FileBytes{
			FileMeta: a2aold.FileMeta{Name: "naïve.bin", MimeType: "application/octet-stream"},
			Bytes:    base64.StdEncoding.EncodeToString([]byte{0, 255, 254, 62, 63}),
		}, Metadata: meta},
		a2aold.FilePart{File: a2aold.FileURI{URI: "https://example.com/a%20b?c=d&e",
			FileMeta: a2aold.FileMeta{MimeType: "text/plain"}}},
	)
	m.Metadata, m.Extensions = meta, []string{"https://example.com/ext/v1"}
	p := dialGRPC(t, at)
	task := p.send(m)
	m.TaskID, m.ContextID = task.ID, task.ContextID
	for name, reader := range map[string]*peer{"gRPC": p, "JSON-RPC": dialAt(t, at.url(), "/")} {
		got := reader.get(task.ID)
		checkSame(t, "the message over "+name, got.History, []*a2aold.Message{m})
		checkSame(t, "the artifact over "+name, got.Artifacts[0].Parts, m.Parts)
	}

	young := dialNewGRPC(t, at, "/")
	parts := a2a.ContentParts{a2a.NewTextPart("t"), a2a.NewRawPart([]byte("test")),
		a2a.NewDataPart(map[string]any{"k": []any{1.0, nil, "x"}}), a2a.NewFileURLPart("https://u", "a/b")}
	parts[1].MediaType, parts[1].Filename = "a/b", "f"
	said := young.send(&a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, parts...)})
	sameJSON(t, "the parts of 1.0", parts, young.get(said.ID).Artifacts[0].Parts)
}

// The old client resumes with the id from a trailer, or from the marker of a2ad's extension.
func TestOldClientResumesOverGRPC(t *testing.T) {
	t.Parallel()
	at := newGRPCAddress(t)
	const uri = "https://a2ad.dev/extensions/resume/v1"
	p := dialGRPC(t, at, headers(map[string]string{"X-A2A-Extensions": uri}))
	all := p.stream(script(chunks("a", 5))).rest()
	task := all[0].TaskInfo().TaskID
	chunk, ok := all[3].(*a2aold.TaskArtifactUpdateEvent)
	if !ok {
		t.Fatalf("the fourth event is %T", all[3])
	}
	mark, _ := chunk.Metadata[uri].(map[string]any)
	id, _ := mark["eventId"].(string)
	again := dialGRPC(t, at, headers(map[string]string{"X-A2A-Extensions": uri, "Last-Event-ID": id}))
	checkSame(t, "what follows "+id, again.resubscribe(task).rest(), slices.Clone(all[4:]))
}
