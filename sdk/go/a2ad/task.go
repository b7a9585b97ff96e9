package a2ad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Task is a task, in one attempt of its agent.
//
// Methods record what they do. When the agent runs again, after a crash or a wait, they return what is recorded. Call
// them in the same order each time, and one after the other; to do several things at once, use [Task.Gather]. Pass each
// call the context that the function gets.
//
// A method returns a [UsageError] for a wrong argument, a [NondeterminismError] if the record differs, and [ErrStopped]
// when the run ends.
type Task struct{ s *session }

// ID returns the id of the task.
func (t *Task) ID() string { return t.s.run.TaskID }

// ContextID returns the id of the context, which clients choose. Do not use it as a key: see [Task.ContextKey].
func (t *Task) ContextID() string { return t.s.run.ContextID }

// ContextKey returns a key that is unique for tenant, owner and context.
func (t *Task) ContextKey() string { return t.s.run.ContextKey }

// Agent returns the name of the agent.
func (t *Task) Agent() string { return t.s.run.Agent }

// Tenant returns the tenant that the task belongs to.
func (t *Task) Tenant() string { return t.s.run.Tenant }

// Owner returns the owner of the task.
func (t *Task) Owner() string { return t.s.run.Owner }

// Attempt returns 1, or more if earlier attempts at this turn have failed.
func (t *Task) Attempt() int { return t.s.run.Attempt }

// Deadline returns when the turn must end; the server then ends it. It is zero if there is no deadline. The context of
// the agent does not have it: for [time.Until], check first that it is not zero.
func (t *Task) Deadline() time.Time { return t.s.run.Deadline }

// Traceparent returns the trace context of the client, as a W3C traceparent, or an empty text.
func (t *Task) Traceparent() string { return t.s.run.Traceparent }

// Canceled reports whether the task was canceled. The next call then returns [ErrCanceled].
func (t *Task) Canceled() bool { return errors.Is(t.s.check(), ErrCanceled) }

// Message returns the message that the function gets: the first one of this turn, or the newest one for a handler.
func (t *Task) Message() *Message {
	list := t.s.run.Messages
	if t.s.handler {
		return &list[len(list)-1]
	}
	return &list[0]
}

// MessageNumber says which message of the client that is in the task, from 1. Clients may reuse the id of a message,
// but each has its own number.
func (t *Task) MessageNumber() int { return t.s.number }

// Messages returns the client's messages of this turn, oldest first.
func (t *Task) Messages() []Message { return slices.Clone(t.s.run.Messages) }

// RequestMetadata returns, for each of Messages, the metadata of its request (params.metadata), or null.
func (t *Task) RequestMetadata() []json.RawMessage {
	list := slices.Clone(t.s.run.RequestMetadata)
	for len(list) < len(t.s.run.Messages) {
		list = append(list, jsonNull)
	}
	return list
}

// Extensions returns the URIs of the extensions in the agent's file that the clients of Messages activated.
func (t *Task) Extensions() []string { return slices.Clone(t.s.run.Extensions) }

// History returns the messages of client and agent until this run, oldest first.
func (t *Task) History() []Message { return slices.Clone(t.s.run.Task.History) }

// Artifacts returns the artifacts of the task when this attempt began.
func (t *Task) Artifacts() []Artifact { return slices.Clone(t.s.run.Task.Artifacts) }

// IdempotencyKey returns a key for the API that a step calls. It is the same in every attempt. It differs by task and
// name, and by the message that the function gets. Each use needs a name of its own, such as one with a number for each
// pass of a loop: with the same name, the API takes the second use for a repetition of the first.
func (t *Task) IdempotencyKey(name string) string { return t.s.run.TaskID + ":" + t.s.turn + name }

// Saved decodes the last value that [Task.Checkpoint] saved into v, and reports whether there is one.
func (t *Task) Saved(v any) (bool, error) {
	t.s.mu.Lock()
	data := t.s.run.Checkpoint
	t.s.mu.Unlock()
	if len(data) == 0 || string(data) == "null" {
		return false, nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return true, fmt.Errorf("read the checkpoint: %w", err)
	}
	return true, nil
}

// Checkpoint saves a value of at most 1 MiB of JSON. The next attempt or turn gets it from [Task.Saved].
func (t *Task) Checkpoint(ctx context.Context, value any) error {
	s := t.s
	return s.do(ctx, func() error {
		if err := firstOf(outsideSteps(ctx, s, "Checkpoint"), outsideGather(ctx, s, "Checkpoint")); err != nil {
			return err
		}
		data, err := encode(value, "the checkpoint")
		if err != nil {
			return err
		}
		s.endSegments()
		if err := s.add(ctx, checkpointEvent{data}); err != nil {
			return err
		}
		if err := s.store(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.run.Checkpoint = data
		s.setScope(data)
		return nil
	})
}
