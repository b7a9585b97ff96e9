package a2ad

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AskOption is an option of a question.
type AskOption func(*askOptions)

type askOptions struct {
	choices []string
	schema  json.RawMessage
	within  time.Duration
	wrong   error
}

// Choices are the texts that can be the answer.
func Choices(texts ...string) AskOption {
	return func(o *askOptions) { o.choices, o.wrong = texts, cmp.Or(o.wrong, checkChoices(texts)) }
}

// Schema is a JSON Schema of the answer to [AskFor], in place of that of the type.
func Schema(schema json.RawMessage) AskOption {
	return func(o *askOptions) {
		var object map[string]any
		if json.Unmarshal(schema, &object) != nil || object == nil {
			o.wrong = cmp.Or(o.wrong, misuse("Schema: it is not a JSON object: %.60q", schema))
		}
		o.schema = schema
	}
}

// Within is how long to wait. Without it, the wait has no end of its own.
func Within(d time.Duration) AskOption {
	return func(o *askOptions) {
		if d <= 0 || d > maxWait {
			o.wrong = cmp.Or(o.wrong, misuse("Within must be positive, and at most ten years: %s", d))
		}
		o.within = d
	}
}

// Ask asks the client, and returns its answer as a text. Days may pass; no slot is held. It returns [ErrTimeout] if no
// answer comes within the time.
func (t *Task) Ask(ctx context.Context, question string, options ...AskOption) (string, error) {
	o, err := askOptionsOf("Ask", false, options)
	if err != nil {
		return "", err
	}
	var x *expects
	if o.choices != nil {
		x = &expects{Choices: o.choices}
	}
	m, err := t.question(ctx, stateInput, question, x, o.within)
	if err != nil {
		return "", err
	}
	if o.choices != nil {
		return strings.TrimSpace(m.Text()), nil
	}
	return m.Text(), nil
}

// AskFor asks the client for a value of a type, in a data part. The server refuses answers that do not fit the type:
// see [SchemaOf].
func AskFor[T any](ctx context.Context, t *Task, question string, options ...AskOption) (value T, err error) {
	o, err := askOptionsOf("AskFor", true, options)
	if err != nil {
		return value, err
	}
	if o.schema == nil {
		if o.schema, err = SchemaOf[T](); err != nil {
			return value, err
		}
	}
	m, err := t.question(ctx, stateInput, question, &expects{Schema: o.schema}, o.within)
	if err != nil {
		return value, err
	}
	if err := m.Data(&value); err != nil {
		return value, fmt.Errorf("read the answer to %q: %w", question, err)
	}
	return value, nil
}

// AuthRequired asks the client to sign in somewhere, and returns its next message.
func (t *Task) AuthRequired(ctx context.Context, text string, options ...AskOption) (*Message, error) {
	o, err := askOptionsOf("AuthRequired", false, options)
	if err == nil && o.choices != nil {
		err = misuse("AuthRequired has no choices")
	}
	if err != nil {
		return nil, err
	}
	return t.question(ctx, stateAuth, text, nil, o.within)
}

// askOptionsOf returns the options of a question. With typed, its answer is a value.
func askOptionsOf(what string, typed bool, options []AskOption) (o askOptions, err error) {
	for _, set := range options {
		set(&o)
	}
	switch {
	case o.wrong != nil:
		return o, o.wrong
	case typed && o.choices != nil:
		return o, misuse("%s has no choices: its answer is a value of a type", what)
	case !typed && o.schema != nil:
		return o, misuse("%s has no schema: use AskFor", what)
	}
	return o, nil
}

func (t *Task) question(
	ctx context.Context, state, text string, x *expects, within time.Duration,
) (*Message, error) {
	if text == "" || len(text) > maxPart {
		return nil, misuse("a question must have 1 to %d bytes; it has %d", maxPart, len(text))
	}
	key, err := t.key(ctx, "ask")
	if err != nil {
		return nil, err
	}
	r, err := t.wait(ctx, waitEvent{
		Key: key, Message: true, For: duration(within), Expects: x,
		Status: &status{State: state, Message: &Message{Parts: []Part{Text(text)}}},
	})
	if err != nil {
		return nil, err
	}
	if r.By != "message" {
		return nil, fmt.Errorf("%w: no answer to %q", ErrTimeout, text)
	}
	list := t.s.run.Messages
	i := slices.IndexFunc(list, func(m Message) bool { return m.ID == r.MessageID })
	if i < 0 { // a server of an earlier version does not name it
		i = len(list) - 1
	}
	return &list[i], nil
}

// Sleep waits. The task needs no worker meanwhile, so days cost nothing.
func (t *Task) Sleep(ctx context.Context, d time.Duration) error {
	if err := checkWait("Sleep", d); err != nil {
		return err
	}
	key, err := t.key(ctx, "sleep")
	if err != nil {
		return err
	}
	_, err = t.wait(ctx, waitEvent{Key: key, For: max(d, time.Millisecond).String()})
	return err
}

// SleepUntil waits until a time.
func (t *Task) SleepUntil(ctx context.Context, at time.Time) error {
	if at.Before(time.Unix(0, 0)) || at.Year() > 9998 {
		return misuse("SleepUntil: the server has no such time: %s", at)
	}
	key, err := t.key(ctx, "sleep")
	if err != nil {
		return err
	}
	at = at.UTC()
	_, err = t.wait(ctx, waitEvent{Key: key, Until: &at})
	return err
}

// Signal waits for a signal, and returns its value. It returns [ErrTimeout] if it does not come within the time; 0
// means that it waits forever.
func Signal[T any](ctx context.Context, t *Task, name string, within time.Duration) (value T, err error) {
	if err := checkName("Signal: the name", name); err != nil {
		return value, err
	}
	if err := checkWait("Signal: the time", within); err != nil {
		return value, err
	}
	key, err := t.key(ctx, "signal:"+name)
	if err != nil {
		return value, err
	}
	r, err := t.wait(ctx, waitEvent{Key: key, Signal: name, For: duration(within)})
	switch {
	case err != nil:
		return value, err
	case r.By != "signal":
		return value, fmt.Errorf("%w: the signal %q", ErrTimeout, name)
	case r.Value == nil:
		return value, nil
	}
	if err := json.Unmarshal(r.Value, &value); err != nil {
		return value, fmt.Errorf("read the signal %q: %w", name, err)
	}
	return value, nil
}

func duration(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.String()
}

// wait returns the result of a wait that is over. Otherwise it begins the wait, which ends the run.
func (t *Task) wait(ctx context.Context, w waitEvent) (*waitResult, error) {
	if err := outsideSteps(ctx, t, "a wait"); err != nil {
		return nil, err
	}
	if branchOf(ctx) != nil {
		return nil, misuse("inside Gather there can be steps and calls, but no other waits")
	}
	old, err := t.s.recorded(w.Key, "wait", "", "")
	if err != nil {
		return nil, err
	}
	if old != nil && old.EndedAt != nil {
		t.s.closeSegments()
		var r waitResult
		return &r, json.Unmarshal(old.Result, &r)
	}
	if err := t.s.add(ctx, event{Wait: &w}); err != nil {
		return nil, err
	}
	if err := t.s.flush(ctx); err != nil {
		return nil, err
	}
	err = &stopped{waiting, "the task waits"}
	t.s.stop(err)
	return nil, err
}
