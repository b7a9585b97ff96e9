package go03

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2aclient"
	"github.com/a2aproject/a2a-go/a2aclient/agentcard"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// testLimit allows for a busy machine: normally each wait takes moments.
const testLimit = 5 * time.Minute

type op map[string]any

// peer is a client over one binding, with helpers for tests.
type peer struct {
	*a2aclient.Client
	t   *testing.T
	ctx context.Context //nolint:containedctx // with the time limit of one subtest
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
		a2a.TransportProtocolJSONRPC: a2aclient.WithJSONRPCTransport(&http.Client{}),
		a2a.TransportProtocolGRPC:    a2aclient.WithGRPCTransport(plaintext),
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
			test(&peer{client, t, ctx})
		})
	}
}

func script(ops ...op) *a2a.MessageSendParams {
	list := make([]any, len(ops))
	for i, o := range ops {
		list[i] = map[string]any(o)
	}
	return &a2a.MessageSendParams{Message: a2a.NewMessage(a2a.MessageRoleUser,
		a2a.DataPart{Data: map[string]any{"script": list}})}
}

func (p *peer) send(params *a2a.MessageSendParams, want a2a.TaskState) *a2a.Task {
	p.t.Helper()
	result, err := p.SendMessage(p.ctx, params)
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

func TestTaskIsSentStreamedAndRead(t *testing.T) {
	eachBinding(t, func(p *peer) {
		sent := p.send(script(op{"op": "chunk", "id": "a", "n": 3}), a2a.TaskStateCompleted)
		read, err := p.GetTask(p.ctx, &a2a.TaskQueryParams{ID: sent.ID})
		if err != nil || len(read.Artifacts) != 1 || len(read.Artifacts[0].Parts) != 3 {
			p.t.Errorf("the task is %+v, %v", read, err)
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
		answer := &a2a.MessageSendParams{Message: a2a.NewMessageForTask(a2a.MessageRoleUser, asked,
			a2a.TextPart{Text: "that one"})}
		if done := p.send(answer, a2a.TaskStateCompleted); done.ID != asked.ID {
			p.t.Errorf("the answer went to task %s, want %s", done.ID, asked.ID)
		}
	})
}

func TestTaskIsResubscribedAndCanceled(t *testing.T) {
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
		states := p.states(p.ResubscribeToTask(p.ctx, &a2a.TaskIDParams{ID: id}), func(a2a.Event) {
			if canceled {
				return
			}
			canceled = true
			if task, err := p.CancelTask(p.ctx, &a2a.TaskIDParams{ID: id}); err != nil ||
				task.Status.State != a2a.TaskStateCanceled {
				p.t.Errorf("cancel: %+v, %v", task, err)
			}
		})
		if !canceled || states[len(states)-1] != a2a.TaskStateCanceled {
			p.t.Errorf("the stream shows %v", states)
		}
		if _, err := p.CancelTask(p.ctx, &a2a.TaskIDParams{ID: id}); err == nil {
			p.t.Error("a canceled task was canceled again")
		}
	})
}

func TestErrorsAndWebhooks(t *testing.T) {
	eachBinding(t, func(p *peer) {
		// The client has no typed errors over gRPC.
		if _, err := p.GetTask(p.ctx, &a2a.TaskQueryParams{ID: a2a.NewTaskID()}); err == nil {
			p.t.Error("an unknown task was read")
		}
		if _, err := p.SendMessage(p.ctx,
			&a2a.MessageSendParams{Message: a2a.NewMessage(a2a.MessageRoleUser)}); err == nil ||
			errors.Is(err, context.DeadlineExceeded) {
			p.t.Errorf("a message without parts: %v", err)
		}
		asked := p.send(script(op{"op": "input"}), a2a.TaskStateInputRequired)
		hook := a2a.PushConfig{ID: "one", URL: "http://127.0.0.1:1/x"}
		if _, err := p.SetTaskPushConfig(p.ctx, &a2a.TaskPushConfig{TaskID: asked.ID, Config: hook}); err != nil {
			p.t.Errorf("set a webhook: %v", err)
		}
		got, err := p.GetTaskPushConfig(p.ctx, &a2a.GetTaskPushConfigParams{TaskID: asked.ID, ConfigID: "one"})
		if err != nil || got.Config.URL != hook.URL {
			p.t.Errorf("get a webhook: %+v, %v", got, err)
		}
	})
}
