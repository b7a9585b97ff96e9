package interop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/a2a"
)

func TestOldClientRecognizesErrors(t *testing.T) {
	t.Parallel()
	p, other := dial(t, echoAgent), dial(t, scriptAgent)
	ended, unknown := p.send(message("hello")), a2a.NewTaskID()
	negative := -1
	push := a2a.PushConfig{URL: "https://example.com/hook"}

	for name, row := range map[string]struct {
		want error
		call func(context.Context) error
	}{
		"get of an unknown task": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			_, err := p.GetTask(ctx, &a2a.TaskQueryParams{ID: unknown})
			return err
		}},
		"get of what is no id": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			_, err := p.GetTask(ctx, &a2a.TaskQueryParams{ID: "no such thing"})
			return err
		}},
		"get of a task of another agent": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			_, err := other.GetTask(ctx, &a2a.TaskQueryParams{ID: ended.ID})
			return err
		}},
		"get with a negative history": {a2a.ErrInvalidParams, func(ctx context.Context) error {
			_, err := p.GetTask(ctx, &a2a.TaskQueryParams{ID: ended.ID, HistoryLength: &negative})
			return err
		}},
		"cancel of an unknown task": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			_, err := p.CancelTask(ctx, &a2a.TaskIDParams{ID: unknown})
			return err
		}},
		"cancel of a finished task": {a2a.ErrTaskNotCancelable, func(ctx context.Context) error {
			_, err := p.CancelTask(ctx, &a2a.TaskIDParams{ID: ended.ID})
			return err
		}},
		"message to an unknown task": {a2a.ErrTaskNotFound,
			sending(p, reply(a2a.TaskInfo{TaskID: unknown}, "hello"))},
		"message to a task of another agent": {a2a.ErrTaskNotFound, sending(other, reply(ended, "hello"))},
		"message to a finished task":         {a2a.ErrInvalidParams, sending(p, reply(ended, "hello"))},
		"message to a task in another context": {a2a.ErrInvalidParams, sending(p,
			reply(a2a.TaskInfo{TaskID: ended.ID, ContextID: a2a.NewContextID()}, "hello"))},
		"message without parts": {a2a.ErrInvalidParams, sending(p, a2a.NewMessage(a2a.MessageRoleUser))},
		"message without an id": {a2a.ErrInvalidParams,
			sending(p, &a2a.Message{Role: a2a.MessageRoleUser, Parts: message("hello").Parts})},
		"message without a role": {a2a.ErrInvalidParams,
			sending(p, a2a.NewMessage(a2a.MessageRoleUnspecified, a2a.TextPart{Text: "hello"}))},
		"stream of a message without parts": {a2a.ErrInvalidParams, func(ctx context.Context) error {
			return firstError(p.SendStreamingMessage(ctx,
				&a2a.MessageSendParams{Message: a2a.NewMessage(a2a.MessageRoleUser)}))
		}},
		"stream of a message to a finished task": {a2a.ErrInvalidParams, func(ctx context.Context) error {
			return firstError(p.SendStreamingMessage(ctx, &a2a.MessageSendParams{Message: reply(ended, "hello")}))
		}},
		"stream of a message to an unknown task": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			return firstError(p.SendStreamingMessage(ctx,
				&a2a.MessageSendParams{Message: reply(a2a.TaskInfo{TaskID: unknown}, "hello")}))
		}},
		"subscription to an unknown task": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			return firstError(p.ResubscribeToTask(ctx, &a2a.TaskIDParams{ID: unknown}))
		}},
		"webhook set on an unknown task": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			_, err := p.SetTaskPushConfig(ctx, &a2a.TaskPushConfig{TaskID: unknown, Config: push})
			return err
		}},
		"webhook get without a webhook": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			_, err := p.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigParams{TaskID: ended.ID})
			return err
		}},
		"webhook list of an unknown task": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			_, err := p.ListTaskPushConfig(ctx, &a2a.ListTaskPushConfigParams{TaskID: unknown})
			return err
		}},
		"webhook delete on a task of another agent": {a2a.ErrTaskNotFound, func(ctx context.Context) error {
			return other.DeleteTaskPushConfig(ctx,
				&a2a.DeleteTaskPushConfigParams{TaskID: ended.ID, ConfigID: "default"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			err := row.call(testContext(t))
			if !errors.Is(err, row.want) {
				t.Fatalf("got %v, want %v", err, row.want)
			}
			var typed *a2a.Error
			if !errors.As(err, &typed) || typed.Details["reason"] == nil || strings.TrimSpace(typed.Message) == "" {
				t.Errorf("the error has no reason or no text: %#v", err)
			}
		})
	}
	checkSame(t, "the finished task after all that", p.get(ended.ID), ended)
}

func sending(p *peer, m *a2a.Message) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := p.SendMessage(ctx, &a2a.MessageSendParams{Message: m})
		return err
	}
}

// firstError returns the error that must come first in a stream.
func firstError(stream iter.Seq2[a2a.Event, error]) error {
	for event, err := range stream {
		if event != nil {
			return fmt.Errorf("the stream begins with %s", sketch([]a2a.Event{event}))
		}
		return err
	}
	return errors.New("the stream is empty")
}
