package go10

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// testLimit allows for a busy machine: normally each wait takes moments.
const testLimit = 5 * time.Minute

type op map[string]any

// peer is a client over one binding, with helpers for tests.
type peer struct {
	*a2aclient.Client
	t       *testing.T
	ctx     context.Context //nolint:containedctx // with the time limit of one subtest
	binding a2a.TransportProtocol
}

// eachBinding runs a test over every binding that the client supports.
func eachBinding(t *testing.T, test func(*peer)) {
	t.Helper()
	t.Parallel()
	url := os.Getenv("INTEROP_URL")
	if url == "" {
		t.Fatal("INTEROP_URL must name a server whose default agent is script: " +
			"TestOldestClients of internal/interop starts one")
	}
	plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
	for name, transport := range map[a2a.TransportProtocol]a2aclient.FactoryOption{
		a2a.TransportProtocolJSONRPC:  a2aclient.WithJSONRPCTransport(&http.Client{}),
		a2a.TransportProtocolHTTPJSON: a2aclient.WithRESTTransport(&http.Client{}),
		a2a.TransportProtocolGRPC:     a2agrpc.WithGRPCTransport(plaintext),
	} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), testLimit)
			t.Cleanup(cancel)
			card, err := agentcard.DefaultResolver.Resolve(ctx, url)
			if err != nil {
				t.Fatalf("resolve the card: %v", err)
			}
			client, err := a2aclient.NewFromCard(ctx, card, a2aclient.WithDefaultsDisabled(), transport)
			if err != nil {
				t.Fatalf("make a client from the card: %v", err)
			}
			t.Cleanup(func() {
				if err := client.Destroy(); err != nil {
					t.Errorf("destroy the client: %v", err)
				}
			})
			test(&peer{client, t, ctx, name})
		})
	}
}

func script(ops ...op) *a2a.SendMessageRequest {
	list := make([]any, len(ops))
	for i, o := range ops {
		list[i] = map[string]any(o)
	}
	return &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser,
		a2a.NewDataPart(map[string]any{"script": list}))}
}

func (p *peer) send(req *a2a.SendMessageRequest, want a2a.TaskState) *a2a.Task {
	p.t.Helper()
	result, err := p.SendMessage(p.ctx, req)
	if err != nil {
		p.t.Fatalf("send: %v", err)
	}
	task, ok := result.(*a2a.Task)
	if !ok || task.Status.State != want {
		p.t.Fatalf("the answer is %+v, want a task that is %s", result, want)
	}
	return task
}

// states returns the states in a stream, and calls each for every event.
func (p *peer) states(stream iter.Seq2[a2a.Event, error], each func(a2a.Event)) (states []a2a.TaskState) {
	p.t.Helper()
	for event, err := range stream {
		switch event := event.(type) {
		case *a2a.Task:
			states = append(states, event.Status.State)
		case *a2a.TaskStatusUpdateEvent:
			states = append(states, event.Status.State)
		case nil:
			p.t.Fatalf("stream: %v", err)
		}
		each(event)
	}
	return states
}

func TestTaskIsSentStreamedReadAndListed(t *testing.T) {
	eachBinding(t, func(p *peer) {
		sent := p.send(script(op{"op": "chunk", "id": "a", "n": 3}), a2a.TaskStateCompleted)
		read, err := p.GetTask(p.ctx, &a2a.GetTaskRequest{ID: sent.ID})
		if err != nil || len(read.Artifacts) != 1 || len(read.Artifacts[0].Parts) != 3 {
			p.t.Errorf("the task is %+v, %v", read, err)
		}
		list, err := p.ListTasks(p.ctx, &a2a.ListTasksRequest{ContextID: sent.ContextID})
		if err != nil || len(list.Tasks) != 1 || list.Tasks[0].ID != sent.ID {
			p.t.Errorf("the list is %+v, %v", list, err)
		}
		pieces := 0
		states := p.states(p.SendStreamingMessage(p.ctx, script(op{"op": "chunk", "id": "a", "n": 5})),
			func(event a2a.Event) {
				if _, ok := event.(*a2a.TaskArtifactUpdateEvent); ok {
					pieces++
				}
			})
		if pieces != 5 || states[len(states)-1] != a2a.TaskStateCompleted {
			p.t.Errorf("the stream had %d pieces and %v", pieces, states)
		}
	})
}

func TestTaskContinuesWithItsInput(t *testing.T) {
	eachBinding(t, func(p *peer) {
		asked := p.send(script(op{"op": "input", "text": "which?"}, op{"op": "complete"}), a2a.TaskStateInputRequired)
		answer := &a2a.SendMessageRequest{Message: a2a.NewMessageForTask(a2a.MessageRoleUser, asked,
			a2a.NewTextPart("that one"))}
		if done := p.send(answer, a2a.TaskStateCompleted); done.ID != asked.ID {
			p.t.Errorf("the answer went to task %s, want %s", done.ID, asked.ID)
		}
	})
}

// Over HTTP+JSON the official clients 2.0.0 to 2.3.1 send both requests with the body null.
func TestTaskIsSubscribedToAndCanceled(t *testing.T) {
	eachBinding(t, func(p *peer) {
		var id a2a.TaskID
		for event, err := range p.SendStreamingMessage(p.ctx,
			script(op{"op": "chunk", "id": "a", "n": 1}, op{"op": "hang"})) {
			if err != nil {
				p.t.Fatalf("stream: %v", err)
			}
			id = event.TaskInfo().TaskID
			break
		}
		canceled := false
		states := p.states(p.SubscribeToTask(p.ctx, &a2a.SubscribeToTaskRequest{ID: id}), func(a2a.Event) {
			if canceled {
				return
			}
			canceled = true
			if task, err := p.CancelTask(p.ctx, &a2a.CancelTaskRequest{ID: id}); err != nil ||
				task.Status.State != a2a.TaskStateCanceled {
				p.t.Errorf("cancel: %+v, %v", task, err)
			}
		})
		if !canceled || states[len(states)-1] != a2a.TaskStateCanceled {
			p.t.Errorf("the stream shows %v", states)
		}
	})
}

// The client cannot read the errors of JSON-RPC, whose data is a list in 1.0.
func TestErrors(t *testing.T) {
	eachBinding(t, func(p *peer) {
		check := func(what string, err, want error) {
			p.t.Helper()
			if p.binding == a2a.TransportProtocolJSONRPC {
				if err == nil ||
					!strings.Contains(err.Error(), "cannot unmarshal array into Go struct field Error.error.data") {
					p.t.Errorf("%s: %v, which is not this client's known failure", what, err)
				}
			} else if !errors.Is(err, want) {
				p.t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		_, err := p.GetTask(p.ctx, &a2a.GetTaskRequest{ID: a2a.NewTaskID()})
		check("an unknown task", err, a2a.ErrTaskNotFound)
		ended := p.send(script(op{"op": "complete"}), a2a.TaskStateCompleted)
		_, err = p.CancelTask(p.ctx, &a2a.CancelTaskRequest{ID: ended.ID})
		check("cancel of a finished task", err, a2a.ErrTaskNotCancelable)
	})
}

// Over JSON-RPC and HTTP+JSON the client puts the webhook into a member config, which 1.0 does not have.
func TestWebhooks(t *testing.T) {
	eachBinding(t, func(p *peer) {
		asked := p.send(script(op{"op": "input"}), a2a.TaskStateInputRequired)
		hook := a2a.PushConfig{ID: "one", URL: "http://127.0.0.1:1/x"}
		_, err := p.CreateTaskPushConfig(p.ctx, &a2a.CreateTaskPushConfigRequest{TaskID: asked.ID, Config: hook})
		if p.binding != a2a.TransportProtocolGRPC {
			if err == nil || p.binding == a2a.TransportProtocolHTTPJSON &&
				!strings.Contains(err.Error(), "url: is required") {
				p.t.Errorf("set a webhook: %v, which is not this client's known failure", err)
			}
			return
		}
		if err != nil {
			p.t.Errorf("set a webhook: %v", err)
		}
		got, err := p.GetTaskPushConfig(p.ctx, &a2a.GetTaskPushConfigRequest{TaskID: asked.ID, ID: "one"})
		if err != nil || got.Config.URL != hook.URL {
			p.t.Errorf("get a webhook: %+v, %v", got, err)
		}
	})
}
