package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"slices"
	"testing"

	a2aold "github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
)

// The official Go client of A2A 1.0, together with that of 0.3 on the same server and the same tasks.

// newPeer is a client of 1.0 of the agent that plays scripts.
type newPeer struct {
	*a2aclient.Client
	t *testing.T
}

func dialNew(t *testing.T) *newPeer {
	t.Helper()
	return dialNewWith(t, httpClient(t), overJSONRPC)
}

// transport restricts a client to one binding and one version.
type transport func(h *http.Client) a2aclient.FactoryOption

func overJSONRPC(h *http.Client) a2aclient.FactoryOption { return a2aclient.WithJSONRPCTransport(h) }

func overREST(h *http.Client) a2aclient.FactoryOption { return a2aclient.WithRESTTransport(h) }

func overOldREST(h *http.Client) a2aclient.FactoryOption {
	return a2av0.WithRESTTransport(a2av0.RESTTransportConfig{Client: h})
}

// eachBinding runs a test for the official client over every binding of 1.0 that it supports.
func eachBinding(t *testing.T, test func(t *testing.T, binding transport)) {
	t.Parallel()
	for name, binding := range map[string]transport{"JSON-RPC": overJSONRPC, "REST": overREST} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, binding)
		})
	}
}

func dialNewWith(t *testing.T, h *http.Client, binding transport) *newPeer {
	t.Helper()
	ctx := testContext(t)
	card, err := agentcard.NewResolver(h).Resolve(ctx, "http://"+sharedReplica(t).api+scriptAgent)
	if err != nil {
		t.Fatalf("resolve the card: %v", err)
	}
	if i := card.SupportedInterfaces[0]; i.ProtocolVersion != "1.0" ||
		i.ProtocolBinding != a2a.TransportProtocolJSONRPC {
		t.Errorf("the card prefers %+v", i)
	}
	c, err := a2aclient.NewFromCard(ctx, card, a2aclient.WithDefaultsDisabled(), binding(h))
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

// newScript returns a message to the agent script, to an existing task if task is not empty.
func newScript(task a2a.TaskID, ops ...op) *a2a.SendMessageRequest {
	m := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewDataPart(scriptData(ops)))
	m.TaskID = task
	return &a2a.SendMessageRequest{Message: m}
}

func (p *newPeer) send(req *a2a.SendMessageRequest) *a2a.Task {
	p.t.Helper()
	result, err := p.SendMessage(testContext(p.t), req)
	if err != nil {
		p.t.Fatalf("send: %v", err)
	}
	task, ok := result.(*a2a.Task)
	if !ok {
		p.t.Fatalf("the answer to a message is %T, want a task", result)
	}
	return task
}

func (p *newPeer) get(id a2a.TaskID) *a2a.Task {
	p.t.Helper()
	task, err := p.GetTask(testContext(p.t), &a2a.GetTaskRequest{ID: id})
	if err != nil {
		p.t.Fatalf("get: %v", err)
	}
	return task
}

// newFold returns what a client of 1.0 knows of a task whose stream it has read to the end.
func newFold(t *testing.T, stream iter.Seq2[a2a.Event, error]) *a2a.Task {
	t.Helper()
	var task *a2a.Task
	for event, err := range stream {
		switch event := event.(type) {
		case *a2a.Task:
			if task != nil {
				t.Fatal("a second Task in a stream")
			}
			task = event
		case nil:
			t.Fatal(err)
		case *a2a.TaskStatusUpdateEvent:
			if old := task.Status.Message; old != nil {
				task.History = append(task.History, old)
			}
			task.Status = event.Status
		case *a2a.TaskArtifactUpdateEvent:
			i := slices.IndexFunc(task.Artifacts, func(a *a2a.Artifact) bool { return a.ID == event.Artifact.ID })
			switch {
			case i < 0:
				task.Artifacts = append(task.Artifacts, event.Artifact)
			case event.Append:
				task.Artifacts[i].Parts = append(task.Artifacts[i].Parts, event.Artifact.Parts...)
			default:
				task.Artifacts[i] = event.Artifact
			}
		default:
			t.Fatalf("%T, %v", event, err)
		}
	}
	return task
}

// sameJSON compares the JSON of two values.
func sameJSON(t *testing.T, what string, want, got any) {
	t.Helper()
	a, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("%s is\n%s\nwant\n%s", what, b, a)
	}
}

func TestNewClientAnswersQuestions(t *testing.T) { eachBinding(t, newClientAnswersQuestions) }

func newClientAnswersQuestions(t *testing.T, binding transport) {
	p := dialNewWith(t, httpClient(t), binding)
	asked := p.send(newScript("", chunks("a", 3), op{"op": "input", "text": "more?"}))
	if asked.Status.State != a2a.TaskStateInputRequired {
		t.Fatalf("the task is %s", asked.Status.State)
	}
	sameJSON(t, "the task", asked, p.get(asked.ID))
	done := newFold(t, p.SendStreamingMessage(testContext(t),
		newScript(asked.ID, op{"op": "status", "text": "on it"}, chunks("a", 2), op{"op": "complete", "text": "done"})))
	if done.Status.State != a2a.TaskStateCompleted {
		t.Errorf("the task ended %s", done.Status.State)
	}
	sameJSON(t, "the stream put together", p.get(asked.ID), done)
	list, err := p.ListTasks(testContext(t), &a2a.ListTasksRequest{ContextID: asked.ContextID, IncludeArtifacts: true})
	if err != nil || list.TotalSize != 1 || list.NextPageToken != "" {
		t.Fatalf("list %+v, %v", list, err)
	}
	sameJSON(t, "the task in the list", done, list.Tasks[0])
}

func TestNewClientSubscribes(t *testing.T) { eachBinding(t, newClientSubscribes) }

func newClientSubscribes(t *testing.T, binding transport) {
	p, g := dialNewWith(t, httpClient(t), binding), newGate(t)
	req := newScript("", chunks("a", 3), g.op(), chunks("a", 2), op{"op": "complete"})
	req.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
	made := p.send(req)
	opened := false
	done := newFold(t, func(yield func(a2a.Event, error) bool) {
		for event, err := range p.SubscribeToTask(testContext(t), &a2a.SubscribeToTaskRequest{ID: made.ID}) {
			if !opened { // the task waits there, so that the subscription finds it running
				opened = true
				g.open()
			}
			if !yield(event, err) {
				return
			}
		}
	})
	sameJSON(t, "the stream put together", p.get(made.ID), done)
	if err := firstNewError(p.SubscribeToTask(testContext(t),
		&a2a.SubscribeToTaskRequest{ID: made.ID})); !errors.Is(err, a2a.ErrUnsupportedOperation) {
		t.Errorf("subscription to a finished task: %v", err)
	}
}

// A resumed stream of 1.0 starts with the Task as of the last seen event, so that the client needs nothing of what it
// saw before.
func TestNewClientResumes(t *testing.T) { eachBinding(t, newClientResumes) }

func newClientResumes(t *testing.T, binding transport) {
	h, g := httpClient(t), newGate(t)
	ids := &eventIDs{next: h.Transport}
	h.Transport = ids
	p := dialNewWith(t, h, binding)
	var task a2a.TaskID
	seen := 0
	for event, err := range p.SendStreamingMessage(testContext(t),
		newScript("", chunks("a", 5), g.op(), chunks("b", 2), op{"op": "complete"})) {
		if err != nil {
			t.Fatal(err)
		}
		task = event.TaskInfo().TaskID
		if seen++; seen == 4 { // the Task, working, two chunks
			break
		}
	}
	g.open()
	ctx := a2aclient.AttachServiceParams(testContext(t), a2aclient.ServiceParams{"Last-Event-ID": {ids.of(seen)}})
	done := newFold(t, p.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: task}))
	if n := len(done.Artifacts[0].Parts); n != 5 || done.Status.State != a2a.TaskStateCompleted {
		t.Errorf("%s with %d pieces of the first artifact", done.Status.State, n)
	}
	sameJSON(t, "the resumed stream put together", p.get(task), done)
}

func firstNewError(stream iter.Seq2[a2a.Event, error]) error {
	for _, err := range stream {
		return err
	}
	return nil
}

func TestNewClientRecognizesErrors(t *testing.T) { eachBinding(t, newClientRecognizesErrors) }

func newClientRecognizesErrors(t *testing.T, binding transport) {
	p := dialNewWith(t, httpClient(t), binding)
	ended, unknown, negative := p.send(newScript("", op{"op": "complete"})), a2a.NewTaskID(), -1
	for name, row := range map[string]struct {
		want error
		call func(context.Context) error
	}{
		"get of an unknown task": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			_, err := p.GetTask(ctx, &a2a.GetTaskRequest{ID: unknown})
			return err
		}},
		"get with a negative history": {a2a.ErrInvalidParams, func(ctx context.Context) error {
			_, err := p.GetTask(ctx, &a2a.GetTaskRequest{ID: ended.ID, HistoryLength: &negative})
			return err
		}},
		"cancel of a finished task": {a2a.ErrTaskNotCancelable, func(ctx context.Context) error {
			_, err := p.CancelTask(ctx, &a2a.CancelTaskRequest{ID: ended.ID})
			return err
		}},
		"message to a finished task": {a2a.ErrUnsupportedOperation, func(ctx context.Context) error {
			_, err := p.SendMessage(ctx, newScript(ended.ID, op{"op": "complete"}))
			return err
		}},
		"stream of a message to a finished task": {a2a.ErrUnsupportedOperation, func(ctx context.Context) error {
			return firstNewError(p.SendStreamingMessage(ctx, newScript(ended.ID, op{"op": "complete"})))
		}},
		"subscription to an unknown task": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			return firstNewError(p.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: unknown}))
		}},
		"message without parts": {a2a.ErrInvalidParams, func(ctx context.Context) error {
			_, err := p.SendMessage(ctx, &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser)})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := row.call(testContext(t)); !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
}

// Each client continues, reads and cancels what the other one created.
func TestOldAndNewClientOnOneTask(t *testing.T) {
	t.Parallel()
	young, old := dialNew(t), dial(t, scriptAgent)

	made := old.send(script(chunks("a", 2), op{"op": "input", "text": "more?"}))
	done := young.send(newScript(a2a.TaskID(made.ID), op{"op": "artifact", "id": "b", "text": "x"},
		op{"op": "complete"}))
	again := old.get(made.ID)
	if again.Status.State != a2aold.TaskStateCompleted || len(again.Artifacts) != 2 || len(done.Artifacts) != 2 ||
		len(again.History) != len(done.History) {
		t.Errorf("0.3 reads %+v, 1.0 reads %+v", again, done)
	}

	hanging := newScript("", chunks("a", 1), op{"op": "hang"})
	hanging.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
	hung := young.send(hanging)
	s := old.resubscribe(a2aold.TaskID(hung.ID))
	s.first()
	if gone, err := young.CancelTask(testContext(t), &a2a.CancelTaskRequest{ID: hung.ID}); err != nil ||
		gone.Status.State != a2a.TaskStateCanceled {
		t.Fatalf("cancel: %+v, %v", gone, err)
	}
	s.untilState(a2aold.TaskStateCanceled)

	waiting := old.send(script(op{"op": "input"}))
	if _, err := old.CancelTask(testContext(t), &a2aold.TaskIDParams{ID: waiting.ID}); err != nil {
		t.Fatal(err)
	}
	if gone, err := young.CancelTask(testContext(t), &a2a.CancelTaskRequest{ID: a2a.TaskID(waiting.ID)}); err != nil ||
		gone.Status.State != a2a.TaskStateCanceled {
		t.Errorf("the second cancel, in 1.0: %+v, %v", gone, err)
	}
}
