package a2ad

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// AskOption is an option of a question.
type AskOption func(*askOptions)

type askOptions struct {
	choices []string
	schema  json.RawMessage
	within  time.Duration
	limited bool // by within
	wrong   error
}

// Choices are 1 to 100 texts, one of which must be the answer to [Task.Ask].
func Choices(texts ...string) AskOption {
	wrong := checkChoices(texts)
	return func(o *askOptions) { o.choices, o.wrong = texts, firstOf(o.wrong, wrong) }
}

// Schema is a JSON Schema that the answer to [AskFor] must fit, in place of that of the type. It must not refer to
// other documents.
func Schema(schema json.RawMessage) AskOption {
	var object map[string]any
	var wrong error
	if json.Unmarshal(schema, &object) != nil || object == nil {
		wrong = misuse("Schema must be a JSON object, not %.60q", schema)
	}
	return func(o *askOptions) { o.schema, o.wrong = schema, firstOf(o.wrong, wrong) }
}

// Within is how long to wait for the answer, at most ten years. Without it, the wait has no end of its own. A negative
// duration, such as one of [time.Until], counts as 0.
func Within(d time.Duration) AskOption {
	d = max(d, 0)
	wrong := checkDuration(d, "Within")
	return func(o *askOptions) { o.within, o.limited, o.wrong = d, true, firstOf(o.wrong, wrong) }
}

// Ask asks the client, and returns its answer as a text. No slot is held meanwhile. With [Choices], the answer is one
// of them; the server refuses others. It returns [ErrTimeout] if no answer comes [Within] the time.
func (t *Task) Ask(ctx context.Context, question string, options ...AskOption) (answer string, err error) {
	err = t.s.do(ctx, func() error {
		o, err := readAskOptions(options)
		if err == nil && o.schema != nil {
			err = misuse("Ask takes no Schema: use AskFor")
		}
		if err != nil {
			return err
		}
		var x *expects
		if o.choices != nil {
			x = &expects{Choices: o.choices}
		}
		m, err := t.s.question(ctx, stateInput, question, x, o)
		if err != nil {
			return err
		}
		if answer = m.Text(); x != nil { // as the server compares it with the choices
			answer = strings.TrimSpace(strings.Join(m.texts(), " "))
		}
		return nil
	})
	return answer, err
}

// AskFor asks the client for a value of a type, which is in a data part. No slot is held meanwhile. The server refuses
// answers that do not fit the JSON Schema of the type: see [SchemaOf]. It returns [ErrTimeout] if no answer comes
// [Within] the time.
func AskFor[T any](ctx context.Context, t *Task, question string, options ...AskOption) (value T, err error) {
	err = t.s.do(ctx, func() error {
		o, err := readAskOptions(options)
		if err == nil && o.choices != nil {
			err = misuse("AskFor takes no Choices: its answer is a value of a type")
		}
		if err == nil && o.schema == nil {
			o.schema, err = SchemaOf[T]()
		}
		if err != nil {
			return err
		}
		m, err := t.s.question(ctx, stateInput, question, &expects{Schema: o.schema}, o)
		if err != nil {
			return err
		}
		if err := readAnswer(m, &value); err != nil {
			return fmt.Errorf("read the answer to %q: %w", question, err)
		}
		return nil
	})
	return value, err
}

// AuthRequired asks the client to sign in somewhere, and returns its next message. It takes only the option [Within],
// and returns [ErrTimeout] if no message comes in that time.
func (t *Task) AuthRequired(ctx context.Context, text string, options ...AskOption) (message *Message, err error) {
	err = t.s.do(ctx, func() error {
		o, err := readAskOptions(options)
		if err == nil && (o.choices != nil || o.schema != nil) {
			err = misuse("AuthRequired takes no Choices and no Schema")
		}
		if err != nil {
			return err
		}
		message, err = t.s.question(ctx, stateAuth, text, nil, o)
		return err
	})
	return message, err
}

func readAskOptions(options []AskOption) (o askOptions, err error) {
	for _, set := range options {
		set(&o)
	}
	return o, o.wrong
}

// question asks the client, and returns the message with the answer.
func (s *session) question(ctx context.Context, state, text string, x *expects, o askOptions) (*Message, error) {
	text = valid(text)
	if err := checkText(text, "the question", maxText); err != nil {
		return nil, err
	}
	if x != nil {
		if _, err := encode(x, "the question"); err != nil {
			return nil, err
		}
	}
	w := waitRecord{condition: condition{
		Message: true, Status: &status{state, &sentMessage{[]Part{Text(text)}}}, Expects: x,
	}}
	if o.limited {
		w.For = waitSeconds(o.within)
	}
	r, err := s.waitFor(ctx, "ask", w)
	if err != nil {
		return nil, err
	}
	if r.By != "message" {
		return nil, fmt.Errorf("%w: no answer to: %s", ErrTimeout, text)
	}
	return s.answer(r.MessageID)
}

// answer returns the message that answers a question: the next one with the id, which clients reuse.
func (s *session) answer(id string) (*Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := s.answered + 1; i < len(s.run.Messages); i++ {
		if s.run.Messages[i].ID == id {
			s.answered = i
			return &s.run.Messages[i], nil
		}
	}
	return nil, fmt.Errorf("a2ad: the run has no message %q, which answered a question", id)
}
