package a2ad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Task is a task, in one attempt of an agent at it. Its methods record what they do; when the agent runs again, they
// return what is recorded and do nothing twice. Call them in the same order each time, and not from several goroutines,
// except inside [Task.Gather].
type Task struct{ s *session }

// ID returns the task's id.
func (t *Task) ID() string { return t.s.run.TaskID }

// ContextID returns the id of the context, which clients choose. Do not use it as a key: see ContextKey.
func (t *Task) ContextID() string { return t.s.run.ContextID }

// ContextKey returns a key that is unique for tenant, owner and context.
func (t *Task) ContextKey() string { return t.s.run.ContextKey }

// Agent returns the name of the agent.
func (t *Task) Agent() string { return t.s.run.Agent }

// Tenant returns the tenant that the task belongs to.
func (t *Task) Tenant() string { return t.s.run.Tenant }

// Owner returns the owner of the task.
func (t *Task) Owner() string { return t.s.run.Owner }

// Attempt returns the number of this attempt in its turn, from 1.
func (t *Task) Attempt() int { return t.s.run.Attempt }

// Canceled reports whether the task was canceled. The context ends then, with [ErrCanceled] as its cause.
func (t *Task) Canceled() bool { return errors.Is(t.s.ended(), ErrCanceled) }

// Deadline returns when the turn must have ended. It is zero if there is no deadline.
func (t *Task) Deadline() time.Time { return t.s.run.Deadline }

// Traceparent returns the W3C trace context of the client's request; empty without one. Pass it on to the services that
// the agent calls, in the header traceparent.
func (t *Task) Traceparent() string { return t.s.run.Traceparent }

// Messages returns the client's messages of this turn, oldest first.
func (t *Task) Messages() []Message { return slices.Clone(t.s.run.Messages) }

// Message returns the first message of this turn; in a handler, the newest one.
func (t *Task) Message() *Message {
	list := t.s.run.Messages
	switch {
	case len(list) == 0:
		return &Message{}
	case !t.s.handler:
		return &list[0]
	}
	return &list[len(list)-1]
}

// History returns the messages of the task when this attempt began.
func (t *Task) History() []Message { return slices.Clone(t.s.run.Task.History) }

// Artifacts returns the artifacts of the task when this attempt began.
func (t *Task) Artifacts() []Artifact { return slices.Clone(t.s.run.Task.Artifacts) }

// IdempotencyKey returns a key that is the same in every attempt, for the API that a step calls. Use another name for
// each step.
func (t *Task) IdempotencyKey(name string) string { return t.ID() + ":" + name }

// Saved decodes the last value of Checkpoint into v, and reports whether there is one.
func (t *Task) Saved(v any) (bool, error) {
	if t.s.run.Checkpoint == nil {
		return false, nil
	}
	if err := json.Unmarshal(t.s.run.Checkpoint, v); err != nil {
		return true, fmt.Errorf("read the checkpoint: %w", err)
	}
	return true, nil
}

// Checkpoint saves a value, which the next attempt or turn gets from Saved.
func (t *Task) Checkpoint(ctx context.Context, value any) error {
	if err := outsideSteps(ctx, t, "Checkpoint"); err != nil {
		return err
	}
	data, err := encode(value, "the checkpoint")
	if err != nil {
		return err
	}
	if err := t.s.add(ctx, event{Checkpoint: data}); err != nil {
		return err
	}
	if err := t.s.flush(ctx); err != nil {
		return err
	}
	t.s.run.Checkpoint = data
	return nil
}

// Write appends text to the artifact "answer". The client sees it at once.
//
// What is written between two other calls is recorded as one piece. If the agent dies in the middle, the client's copy
// is set back before the text comes again.
func (t *Task) Write(ctx context.Context, text string) error {
	return (&ArtifactWriter{t: t, id: "answer"}).Write(ctx, text)
}

// Artifact returns a writer for an artifact. The name is its id, too.
func (t *Task) Artifact(name string) *ArtifactWriter { return &ArtifactWriter{t, name, name} }

// Status tells the client what the agent is doing.
func (t *Task) Status(ctx context.Context, text string) error {
	if text == "" || len(text) > maxPart {
		return misuse("a status must have 1 to %d bytes; it has %d", maxPart, len(text))
	}
	return t.once(ctx, "status", "status", event{Status: &statusUpdate{status{
		State: stateWorking, Message: &Message{Parts: []Part{Text(text)}},
	}}})
}

// once sends an event, and records in the same transaction that it was sent.
func (t *Task) once(ctx context.Context, name, kind string, e event) error {
	if err := outsideSteps(ctx, t, kind); err != nil {
		return err
	}
	if t.s.handler {
		if err := t.s.add(ctx, e); err != nil {
			return err
		}
		return t.s.flush(ctx)
	}
	key, err := t.key(ctx, name)
	if err != nil {
		return err
	}
	old, err := t.s.recorded(key, "step", kind, "")
	if err != nil {
		return err
	}
	if old != nil {
		t.s.closeSegments()
		return nil
	}
	if err := t.s.add(ctx, e, event{Step: &stepEvent{Key: key, Name: kind, Result: jsonNull}}); err != nil {
		return err
	}
	return t.s.flush(ctx)
}

// key returns the key of the next use of a name, in its branch.
func (t *Task) key(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", misuse("a name must not be empty")
	}
	if branchOf(ctx) != nil && ctx.Err() != nil { // its Gather is over
		return "", &stopped{waiting, "the task waits"}
	}
	return t.s.nextKey(prefixOf(ctx) + name)
}
