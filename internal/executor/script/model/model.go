// Package model computes the events that a script must write to a task's log. It is written from the description of the
// ops and shares no code with the interpreter, so that tests can compare the two.
package model

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Event has the parts of a log event that tests compare.
type Event struct {
	State    a2a.State // a status, if set
	Artifact string    // id of an artifact, if set
	Text     string    // of the status message or of the only part
	Append   bool
	Last     bool
}

// Of returns the parts of e that tests compare.
func Of(e a2a.Event) Event {
	switch e := e.(type) {
	case *a2a.StatusUpdate:
		m := Event{State: e.Status.State}
		if e.Status.Message != nil {
			m.Text = e.Status.Message.Parts[0].Text
		}
		return m
	case *a2a.Message:
		return Event{State: a2a.StateCompleted, Text: e.Parts[0].Text}
	case *a2a.ArtifactUpdate:
		return Event{Artifact: e.Artifact.ID, Text: e.Artifact.Parts[0].Text, Append: e.Append, Last: e.LastChunk}
	}
	panic(fmt.Sprintf("%T is not logged by a script", e))
}

// End is how a script stops.
type End uint8

// A script ends its task, waits for a message, or needs more attempts than it will get.
const (
	Done End = iota + 1
	Waits
	Stuck
)

type op struct {
	Op, State, Text, ID string
	N, Bytes            int
	Times               *int
}

// Expected returns the events of a task whose client sends these scripts: one script, as JSON of the form [op,…],
// each time the task waits. An empty script is a message without one. attempts is the server's limit for each turn.
// The result does not contain the statuses that the server writes itself, for a claim or for a task without attempts
// left.
func Expected(attempts int, scripts ...string) ([]Event, End) {
	var events []Event
	var ops []op
	for i, s := range scripts {
		if s != "" {
			ops = nil
			if err := json.Unmarshal([]byte(s), &ops); err != nil {
				panic(err)
			}
		} else if i == 0 {
			panic("the first message has no script")
		}
		more, rest, end := turn(attempts, ops)
		if events = append(events, more...); end != Waits {
			return events, end
		}
		ops = rest
	}
	return events, Waits
}

func turn(attempts int, ops []op) (events []Event, rest []op, end End) {
	for i, o := range ops {
		switch o.Op {
		case "chunk":
			events = append(events, chunks(o)...)
		case "artifact":
			events = append(events, Event{Artifact: o.ID, Text: o.Text, Last: true})
		case "panic", "hang":
			return events, nil, Stuck
		case "error":
			times := 1
			if o.Times != nil {
				times = *o.Times
			}
			if times >= attempts {
				return events, nil, Stuck
			}
		case "sleep", "ignore_cancel", "effect":
		default:
			s := state(o)
			events = append(events, Event{State: s, Text: o.Text})
			if s.Interrupted() {
				return events, ops[i+1:], Waits
			}
			if s.Terminal() {
				return events, nil, Done
			}
		}
	}
	return append(events, Event{State: a2a.StateCompleted}), nil, Done
}

func chunks(o op) []Event {
	var events []Event
	for k := range o.N {
		text := fmt.Sprintf("%s:%d:", o.ID, k)
		if len(text) < o.Bytes {
			text += strings.Repeat("x", o.Bytes-len(text))
		}
		events = append(events, Event{Artifact: o.ID, Text: text, Append: k > 0, Last: k == o.N-1})
	}
	return events
}

func state(o op) a2a.State {
	name := map[string]string{
		"input": "input-required", "auth": "auth-required", "complete": "completed", "reply": "completed",
		"fail": "failed", "reject": "rejected", "status": o.State,
	}[o.Op]
	if name == "" {
		name = "working"
	}
	s, ok := a2a.ParseState(name)
	if !ok {
		panic("unknown op " + o.Op)
	}
	return s
}
