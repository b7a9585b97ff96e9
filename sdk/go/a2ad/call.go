package a2ad

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// CallResult is the result of a called agent.
type CallResult struct {
	TaskID  string   `json:"taskId"`
	State   string   `json:"state"`   // completed; for any other, the call returns a CallError
	Message *Message `json:"message"` // the last one, or nil
	// Artifacts have ids but no parts if the called task is larger than 16 KiB.
	Artifacts []Artifact `json:"artifacts"`
}

// Text returns the text of the last message or, if it has none, of the artifacts, one a line.
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

// Data decodes the first data part of the last message or, if it has none, of the artifacts into v. Without one it does
// nothing.
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
type CallOption func(*callRecord)

// Abandon lets the called task continue if this one ends first. Without it, the called task is canceled then.
func Abandon() CallOption { return func(c *callRecord) { c.OnParentEnd = "abandon" } }

// Call gives a task to another agent, and waits until it has ended. No slot is held meanwhile. If it does not complete,
// Call returns a [CallError]. The message has one of the forms that an [AgentFunc] may return, such as a string. A
// timeout of the context does not limit the wait.
func (t *Task) Call(
	ctx context.Context, agent string, message any, options ...CallOption,
) (result *CallResult, err error) {
	err = t.s.do(ctx, func() error {
		c := callRecord{Agent: agent}
		for _, set := range options {
			set(&c)
		}
		parts, err := partsOf(message, "the message of a call")
		if err := firstOf(checkAgent(agent), err, outsideSteps(ctx, t.s, "a call")); err != nil {
			return err
		}
		c.Message = inOrder(mustCompact(map[string]any{"parts": parts}))
		result, err = t.s.call(ctx, c)
		return err
	})
	return result, err
}

func (s *session) call(ctx context.Context, c callRecord) (*CallResult, error) {
	var err error
	if c.Key, err = s.key(ctx, "call:"+c.Agent); err != nil {
		return nil, err
	}
	old, err := s.recorded(c.Key, "call", c.Agent, digest(c.Message))
	if err != nil {
		return nil, err
	}
	if old == nil {
		if err := s.add(ctx, callEvent{c}); err != nil {
			return nil, err
		}
	}
	if old == nil || !old.ended() {
		return nil, s.begin(ctx, pause{calls: []string{c.Key}}, c.Key+"/wait", false)
	}
	s.closeSegments()
	return callResult(c.Agent, c.Key, old.Result)
}

func callResult(agent, key string, data json.RawMessage) (*CallResult, error) {
	var r CallResult
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("a2ad: read the result of the call %q: %w", key, err)
	}
	r.State = strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(r.State, "TASK_STATE_")), "_", "-")
	if r.State != "completed" {
		return nil, &CallError{Agent: agent, State: r.State, Text: r.Text(), Result: &r}
	}
	return &r, nil
}
