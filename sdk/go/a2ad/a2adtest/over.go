package a2adtest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// endWait ends the wait of the task as the test says.
func (s *server) endWait() error {
	w := s.task.wait
	s.task.wait, s.attempt = nil, 1
	result, err := s.over(w)
	if err != nil {
		return err
	}
	data, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("a2adtest: the value of a signal has no JSON form: %w", err)
	}
	old := s.task.step(w.Key)
	old.Result, old.EndedAt = data, "now"
	return nil
}

// over returns the result of a wait.
func (s *server) over(w *wait) (map[string]any, error) {
	if len(w.Tasks) > 0 {
		return map[string]any{"by": "tasks"}, s.doCalls(w)
	}
	if value, ok := s.client.Signals[w.Signal]; ok && w.Signal != "" {
		delete(s.client.Signals, w.Signal)
		return map[string]any{"by": "signal", "name": w.Signal, "value": value}, nil
	}
	question := ""
	if w.Message {
		if w.Status != nil && w.Status.Message != nil {
			question = w.Status.Message.Text()
		}
		s.questions = append(s.questions, question)
		if answer := s.answer(question); answer != nil {
			return s.answered(w, question, answer)
		}
	}
	if w.For != "" || w.Until != "" {
		return map[string]any{"by": "time"}, s.pass(w)
	}
	if w.Signal != "" {
		return nil, fmt.Errorf("%w: the agent waits for the signal %q: add it to Client.Signals", ErrStuck, w.Signal)
	}
	return nil, fmt.Errorf("%w: the agent asks %q (question %d): add its answer to Client.Answers", ErrStuck, question,
		len(s.questions))
}

// answer returns the client's answer to a question; nil if it gives none.
func (s *server) answer(question string) (answer any) {
	switch {
	case s.client.Answer != nil:
		return s.client.Answer(question)
	case len(s.client.Answers) > 0:
		answer, s.client.Answers = s.client.Answers[0], s.client.Answers[1:]
	}
	return answer
}

func (s *server) answered(w *wait, question string, answer any) (map[string]any, error) {
	m, err := messageOf(answer)
	if err != nil {
		return nil, fmt.Errorf("a2adtest: the answer to %q has no JSON form: %w", question, err)
	}
	if why := refusal(&m, w.Expects.Choices, w.Expects.Schema); why != "" {
		return nil, fmt.Errorf("%w: the server refuses the answer %.200v to %q: %s",
			ErrWrongAnswer, answer, question, why)
	}
	id, err := s.say(m)
	return map[string]any{"by": "message", "messageId": id}, err
}

// pass lets the time pass until a wait is over.
func (s *server) pass(w *wait) error {
	if w.For != "" {
		d, err := time.ParseDuration(w.For)
		s.advance(d)
		return err
	}
	until, err := time.Parse(time.RFC3339Nano, w.Until)
	s.advance(max(until.Sub(s.Now()), 0))
	return err
}

// doCalls ends the called tasks that a wait is for: all, or the first one.
func (s *server) doCalls(w *wait) error {
	for _, key := range w.Tasks {
		old := s.task.step(key)
		if old.EndedAt != "" {
			continue
		}
		does := s.client.Calls[old.Agent]
		if does == nil {
			return fmt.Errorf("%w: the agent calls %q: add its answer to Client.Calls", ErrStuck, old.Agent)
		}
		var message a2ad.Message
		if err := json.Unmarshal(s.task.calls[key].Message, &message); err != nil {
			return err
		}
		result, err := callResult(key, does(message.Text()))
		if err != nil {
			return err
		}
		old.Result, old.EndedAt = result, "now"
		if w.Mode == "any" {
			return nil
		}
	}
	return nil
}

// callResult returns the result of a called agent.
func callResult(key string, said any) (json.RawMessage, error) {
	state := "TASK_STATE_COMPLETED"
	if err, ok := said.(error); ok {
		state, said = "TASK_STATE_FAILED", err.Error()
	}
	part, err := partOf(said)
	if err != nil {
		return nil, fmt.Errorf("a2adtest: the answer of a called agent has no JSON form: %w", err)
	}
	return json.Marshal(map[string]any{
		"taskId": key + "-task", "state": state,
		"message": a2ad.Message{Role: "ROLE_AGENT", Parts: []a2ad.Part{part}},
	})
}
