// Package a2adtest runs an agent without a server: in memory, with fake time, and with crashes anywhere.
//
//	func TestTrip(t *testing.T) {
//		client := a2adtest.Client{Answers: []any{"yes"}}
//		r, err := a2adtest.Run(trip, "Lyon", client)
//		...
//		_, err = a2adtest.CrashEverywhere(trip, "Lyon", client, nil)
//		...
//	}
package a2adtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/internal/kit"
)

// ErrStuck means that the task waits for something that the test does not provide.
var ErrStuck = errors.New("a2adtest: the task is stuck")

// ErrDifference means that a crash changed what the agent did.
var ErrDifference = errors.New("a2adtest: a crash changed the outcome")

// Client is what surrounds the task of a test.
type Client struct {
	// Answers are the client's answers to questions, in order. A string is a text; anything else becomes a data part.
	Answers []any
	// Answer returns the answer to a question, in place of Answers; nil if the client gives none.
	Answer func(question string) any
	// Signals are the values of signals, by name. Each comes once.
	Signals map[string]any
	// Calls are what other agents answer to the text that they get: a text, an error if they fail, or data.
	Calls map[string]func(text string) any
	// MaxAttempts is how often the agent is tried. The default is 5.
	MaxAttempts int
	// Handler says that the function is for messages: see [a2ad.Worker.Handler].
	Handler bool
}

// Step is the record of a step, a wait or a call.
type Step struct {
	Seq      int             `json:"seq"`
	Kind     string          `json:"kind"` // step, wait or call
	Key      string          `json:"key"`
	Name     string          `json:"name,omitempty"`
	Agent    string          `json:"agent,omitempty"` // of a call
	InputSHA string          `json:"inputSha,omitempty"`
	Artifact string          `json:"artifact,omitempty"` // that the step writes
	Result   json.RawMessage `json:"result,omitempty"`
	Error    json.RawMessage `json:"error,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	NextAt   *time.Time      `json:"nextAt,omitempty"`
	EndedAt  *time.Time      `json:"endedAt,omitempty"`
}

// Result is what became of a task.
type Result struct {
	State     string // completed, failed or rejected
	Message   a2ad.Message
	Artifacts map[string]a2ad.Artifact
	Steps     []Step   // in the order in which they were recorded
	Statuses  []string // texts of the statuses on the way
	Questions []string
	Usage     []a2ad.Usage
	Attempts  int
	Elapsed   time.Duration // of the fake clock
}

// Text returns the text of the last message.
func (r *Result) Text() string { return r.Message.Text() }

// Data decodes the first data part of the last message into v. Without one it does nothing.
func (r *Result) Data(v any) error { return r.Message.Data(v) }

// Artifact returns the text of an artifact.
func (r *Result) Artifact(id string) string {
	a := r.Artifacts[id]
	return a.Text()
}

// Keys returns the keys of the steps.
func (r *Result) Keys() []string {
	keys := make([]string, len(r.Steps))
	for i := range r.Steps {
		keys[i] = r.Steps[i].Key
	}
	return keys
}

// Run gives an agent's function a task, and returns what became of it. message is the client's: a string is a text,
// anything else becomes a data part. Waits take no time; the fake clock moves on. If the agent's code calls the package
// in a way that cannot work, Run returns the [a2ad.UsageError].
func Run(fn a2ad.AgentFunc, message any, client Client) (*Result, error) {
	return newServer(client, crash{}).run(fn, message)
}

// crash says where to crash: at the n-th request, before or after the server has stored it. 0 is never.
type crash struct {
	at     int
	stored bool
}

// CrashEverywhere shows that the agent survives a crash at each point at which something is recorded.
//
// It runs the agent once without a crash. Then it runs it again and again; each time the worker dies at another request
// to the server, once before the server has stored it and once after. It returns [ErrDifference] if the state, the last
// message, the statuses, the artifacts or the keys of the steps are not those of the first run. outcome returns what to
// compare in their place; it may be nil. The result is that of the first run.
func CrashEverywhere(
	fn a2ad.AgentFunc, message any, client Client, outcome func(r *Result) string,
) (*Result, error) {
	if outcome == nil {
		outcome = describe
	}
	first := newServer(client, crash{})
	want, err := first.run(fn, message)
	if err != nil {
		return nil, err
	}
	for at := 1; at <= first.requests; at++ {
		for _, stored := range []bool{false, true} {
			got, err := newServer(client, crash{at, stored}).run(fn, message)
			when := fmt.Sprintf("a crash at request %d of %d, which was stored: %t", at, first.requests, stored)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", when, err)
			}
			if a, b := outcome(want), outcome(got); a != b {
				return nil, fmt.Errorf("%w: %s\n  without: %s\n  with:    %s", ErrDifference, when, a, b)
			}
		}
	}
	return want, nil
}

func describe(r *Result) string {
	artifacts := make(map[string][]a2ad.Part, len(r.Artifacts))
	for id, a := range r.Artifacts {
		artifacts[id] = joined(a.Parts)
	}
	data, _ := json.Marshal([]any{r.State, r.Message.Parts, r.Statuses, artifacts, r.Keys()}) // it came as JSON
	return string(data)
}

// joined joins texts that follow each other: a stream may come in other chunks after a crash.
func joined(parts []a2ad.Part) (all []a2ad.Part) {
	for _, p := range parts {
		last := len(all) - 1
		if last >= 0 && all[last].Text != nil && p.Text != nil {
			p = a2ad.Text(*all[last].Text + *p.Text)
			all = all[:last]
		}
		all = append(all, p)
	}
	return all
}

func (s *server) run(fn a2ad.AgentFunc, message any) (*Result, error) {
	if _, err := s.say(message); err != nil {
		return nil, err
	}
	for s.ended == nil {
		if s.epoch++; s.epoch > 10_000 {
			return nil, fmt.Errorf("%w: the agent ran 10,000 times without an end", ErrStuck)
		}
		run, err := s.newRun()
		if err != nil {
			return nil, err
		}
		end, err := kit.Execute(context.Background(), run, s, fn, s.client.Handler)
		switch {
		case err != nil:
			return nil, err
		case end.Wrong != nil:
			return nil, end.Wrong
		case s.wait != nil:
			if err := s.endWait(); err != nil {
				return nil, err
			}
		case s.crashed:
			s.crashed = false
			s.again("crashed")
		case end.Retry:
			s.now = s.now.Add(max(end.After, time.Second))
			s.again(end.Reason)
		}
	}
	return s.result(), nil
}

func (s *server) result() *Result {
	r := &Result{
		State:     strings.ToLower(strings.TrimPrefix(s.ended.State, "TASK_STATE_")),
		Artifacts: fold(s.log), Steps: s.steps, Questions: s.questions, Usage: s.usage, Attempts: int(s.epoch),
		Elapsed: s.now.Sub(start),
	}
	if s.ended.Message != nil {
		r.Message = *s.ended.Message
	}
	for _, e := range s.log {
		if e.Status != nil && e.Status.Status.Message != nil && &e.Status.Status != s.ended {
			r.Statuses = append(r.Statuses, e.Status.Status.Message.Text())
		}
	}
	return r
}
