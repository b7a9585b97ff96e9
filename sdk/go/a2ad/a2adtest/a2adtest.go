// Package a2adtest runs an agent without a server: in memory, with fake time, and with crashes at any request.
//
//	func TestTrip(t *testing.T) {
//		client := a2adtest.Client{Answers: []any{"yes"}}
//		r, err := a2adtest.Run(trip, "Lyon", client)
//		…
//	}
//
//	func TestTripSurvivesCrashes(t *testing.T) {
//		_, err := a2adtest.CrashEverywhere(trip, "Lyon", a2adtest.Client{Answers: []any{"yes"}}, nil)
//		…
//	}
package a2adtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// Errors that a test compares with [errors.Is].
var (
	// ErrStuck means that the task waits for something that the test does not provide, or never ends. The text says
	// what to add, and names the line of the agent that waits.
	ErrStuck = errors.New("a2adtest: the task is stuck")
	// ErrWrongAnswer means that the server would refuse an answer of the test. The text says what the question expects.
	//
	// Answers are checked against Choices, and against a JSON Schema except for not, format, if, contains, uniqueItems,
	// multipleOf, propertyNames, dependent… and unevaluated…. Of oneOf, one or more may fit.
	ErrWrongAnswer = errors.New("a2adtest: wrong answer")
	// ErrDifference means that a crash changed the outcome. The text says which, and what differs.
	ErrDifference = errors.New("a2adtest: a crash changed the outcome")
)

// Client is what surrounds the task of a test.
type Client struct {
	// Answers are the client's answers to questions, in order. A string is a text, an [a2ad.Message] or a *Message is
	// itself, and anything else is data.
	Answers []any
	// Answer returns the answer to a question, in place of Answers; nil if the client gives none.
	Answer func(question string) any
	// Signals are the values of signals, by name. Each comes once.
	Signals map[string]any
	// Calls return the answers of other agents to the text that they get, by name: a string, data, or an error, with
	// which the called task fails.
	Calls map[string]func(text string) any
	// MaxAttempts is how many attempts the agent gets. The default is 5.
	MaxAttempts int
	// Handler reports whether the function is one for [a2ad.Worker.Handler].
	Handler bool
}

// Step is a recorded step, wait or call.
type Step struct {
	Kind     string // step, wait or call
	Key      string
	Name     string // of the step or, for a call, of the agent
	Artifact string // that the step writes, or empty
	Result   json.RawMessage
	Error    json.RawMessage
	Attempts int
}

// Result is the outcome of a task.
type Result struct {
	State     string       // completed, failed or rejected
	Message   a2ad.Message // the last one
	Artifacts map[string]a2ad.Artifact
	Steps     []Step // in the order in which they were recorded
	Questions []string
	Usage     map[string]a2ad.Usage // sums by model
	Attempts  int                   // how often the agent ran, including after waits
	Elapsed   time.Duration         // fake time that the task took
	Events    []json.RawMessage     // the events that a client sees, in order
}

// Text returns the text of the last message.
func (r *Result) Text() string { return r.Message.Text() }

// Data decodes the first data part of the last message into v. Without one it does nothing.
func (r *Result) Data(v any) error { return r.Message.Data(v) }

// Artifact returns the text of an artifact, or an empty text if there is none.
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

// Run gives an agent's function a task, and returns the outcome. The message is a string, an [a2ad.Message], or data.
//
// The waits of the package take no time: the fake clock advances. Others do, such as [time.Sleep] or a request in a
// step. Run returns an [a2ad.UsageError] for a mistake in the agent, [ErrStuck] if the task cannot continue, and
// [ErrWrongAnswer] for an answer that the server would refuse.
func Run(fn a2ad.AgentFunc, message any, client Client) (*Result, error) {
	return newServer(client, crash{}).run(fn, message)
}

// crash says where to crash: at the n-th request, before or after the server has stored it. 0 is never.
type crash struct {
	at     int
	stored bool
}

// CrashEverywhere checks that a crash at any request to the server does not change the outcome.
//
// It runs the agent once without a crash, and returns that result. It also runs the agent twice for each request: with
// a crash before the server has stored it, and after. It returns [ErrDifference] if the state, the last message, the
// artifacts, the usage or the keys of the steps differ. The order of the steps counts within each branch of Gather, not
// between branches. compare returns what to compare instead; it may be nil. The other errors are those of [Run].
func CrashEverywhere(
	fn a2ad.AgentFunc, message any, client Client, compare func(r *Result) string,
) (*Result, error) {
	look := outcome
	if compare != nil {
		look = func(r *Result) parts { return parts{{"the outcome", compare(r)}} }
	}
	first := newServer(client, crash{})
	expected, err := first.run(fn, message)
	if err != nil {
		return nil, err
	}
	for at := 1; at <= first.requests; at++ {
		for _, stored := range []bool{false, true} {
			s := newServer(client, crash{at, stored})
			got, err := s.run(fn, message)
			when := "before"
			if stored {
				when = "after"
			}
			when = fmt.Sprintf("a crash %s the server stored request %d", when, at)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", when, err)
			}
			if differs := difference(look(expected), look(got)); differs != "" {
				return nil, fmt.Errorf("%w: %s\nThe request: %s\n%s\n%s", ErrDifference, when, s.crashedAt,
					differs, likelyCause)
			}
		}
	}
	return expected, nil
}

const likelyCause = `Likely cause: code outside steps ran again and did something else than before.
Read the time, random numbers, files and other services inside a step.`

// partOf returns a text part of a string, and a data part of anything else.
func partOf(said any) (a2ad.Part, error) {
	if text, ok := said.(string); ok {
		return a2ad.Text(text), nil
	}
	data, err := json.Marshal(said)
	return a2ad.Part{Data: data}, err
}

// messageOf returns a message of the client.
func messageOf(said any) (a2ad.Message, error) {
	switch m := said.(type) {
	case a2ad.Message:
		return m, nil
	case *a2ad.Message:
		return *m, nil
	}
	part, err := partOf(said)
	return a2ad.Message{Parts: []a2ad.Part{part}}, err
}
