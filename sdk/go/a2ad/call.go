package a2ad

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// CallResult is what a called agent has done.
type CallResult struct {
	TaskID    string     `json:"taskId"`
	State     string     `json:"state"` // such as completed
	Message   *Message   `json:"message"`
	Artifacts []Artifact `json:"artifacts"` // without parts if they are larger than 16 KiB together
}

// Text returns the text of the last message, or of the artifacts if that has none.
func (r *CallResult) Text() string {
	if r.Message != nil && r.Message.Text() != "" {
		return r.Message.Text()
	}
	var texts []string
	for i := range r.Artifacts {
		if text := r.Artifacts[i].Text(); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}

// Data decodes the first data part of the last message, or of the artifacts, into v. Without one it does nothing.
func (r *CallResult) Data(v any) error {
	var parts []Part
	if r.Message != nil {
		parts = append(parts, r.Message.Parts...)
	}
	for i := range r.Artifacts {
		parts = append(parts, r.Artifacts[i].Parts...)
	}
	return dataOf(parts, v)
}

// CallOption is an option of a call.
type CallOption func(*callEvent)

// Abandon lets the called task go on when this one ends first. Without it, the called task is canceled then.
func Abandon() CallOption { return func(c *callEvent) { c.OnParentEnd = "abandon" } }

// Call gives a task to another agent, and waits until it has ended. If it did not complete, Call returns a [CallError].
// The message has one of the forms that an [AgentFunc] may return, such as a string.
func (t *Task) Call(ctx context.Context, agent string, message any, options ...CallOption) (*CallResult, error) {
	if err := outsideSteps(ctx, t, "Call"); err != nil {
		return nil, err
	}
	c, err := newCall(agent, message, options)
	if err != nil {
		return nil, err
	}
	if c.Key, err = t.key(ctx, "call:"+agent); err != nil {
		return nil, err
	}
	old, err := t.s.recorded(c.Key, "call", agent, "")
	if err != nil {
		return nil, err
	}
	if old == nil {
		if err := t.s.add(ctx, event{Call: c}); err != nil {
			return nil, err
		}
	}
	if old == nil || old.EndedAt == nil {
		return nil, t.waitForCalls(ctx, c.Key+"/wait", "", []string{c.Key})
	}
	t.s.closeSegments()
	return callResult(agent, c.Key, old.Result)
}

func newCall(agent string, message any, options []CallOption) (*callEvent, error) {
	if !validAgent.MatchString(agent) {
		return nil, misuse("Call: %.60q cannot be the name of an agent", agent)
	}
	parts, err := partsOf(message, "the message of a call")
	if err == nil {
		err = checkParts("the message of a call", parts)
	}
	c := &callEvent{Agent: agent, Message: Message{Parts: parts}}
	for _, set := range options {
		set(c)
	}
	return c, err
}

func callResult(agent, key string, data json.RawMessage) (*CallResult, error) {
	var r CallResult
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read the result of the call %s: %w", key, err)
	}
	r.State = strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(r.State, "TASK_STATE_")), "_", "-")
	if r.State != "completed" {
		return nil, &CallError{Agent: agent, State: r.State, Text: r.Text(), Result: &r}
	}
	return &r, nil
}

// waitForCalls ends the run until called tasks have ended. It always returns an error.
func (t *Task) waitForCalls(ctx context.Context, key, mode string, calls []string) error {
	if b := branchOf(ctx); b != nil {
		return b.group.block(ctx, b.number, calls)
	}
	_, err := t.wait(ctx, waitEvent{Key: key, Tasks: calls, Mode: mode})
	if err == nil {
		err = fmt.Errorf("a2ad: the wait %q is over, but its calls are not", key)
	}
	return err
}
