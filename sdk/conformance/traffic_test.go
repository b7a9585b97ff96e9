package conformance_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// traffic is what the workers of a case sent and got, by attempt. Fixtures are made of it.
type traffic struct {
	mu       sync.Mutex
	attempts []*attempt // guarded by mu: of the task of the case, in the order of their claims
}

// attempt is one run of the agent's function.
type attempt struct {
	do      program
	run     json.RawMessage   // what the worker claimed
	effects []effect          // of the program, in order
	events  []json.RawMessage // what the worker reported
	finish  json.RawMessage   // how it ended, if no event ended it

	prefix  string // of the paths of its requests
	ended   bool   // by itself
	spoiled bool   // by a fault, an effect without an answer, or a page of steps
}

// effect is an effect and its answer, in the form of the world of a case.
type effect struct {
	Name   string `json:"name"`
	Answer any    `json:"answer"`
}

// claimed notes the runs in the answer to a claim.
func (tr *traffic) claimed(task string, do program, answer []byte) {
	var v struct{ Runs []json.RawMessage }
	if json.Unmarshal(answer, &v) != nil {
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, run := range v.Runs {
		var r struct {
			TaskID    string
			Epoch     int
			StepCount int
			Steps     []json.RawMessage
		}
		if json.Unmarshal(run, &r) != nil || r.TaskID != task {
			continue
		}
		tr.attempts = append(tr.attempts, &attempt{
			do: do, run: run, effects: []effect{},
			prefix: fmt.Sprintf("/runs/%s/%d/", r.TaskID, r.Epoch), spoiled: r.StepCount != len(r.Steps),
		})
	}
}

// reported notes a request and the status of its answer, or 0 if a fault happened to it.
func (tr *traffic) reported(path string, body []byte, status int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	i := slices.IndexFunc(tr.attempts, func(a *attempt) bool { return strings.Contains(path, a.prefix) })
	if i < 0 {
		return
	}
	a := tr.attempts[i]
	var v struct {
		Events     []json.RawMessage
		Checkpoint json.RawMessage
	}
	switch {
	case status != 200 || json.Unmarshal(body, &v) != nil && len(body) > 0:
		a.spoiled = true
	case strings.HasSuffix(path, "/finish"):
		a.finish, a.ended = body, true
	case strings.HasSuffix(path, "/events"):
		a.events = append(a.events, v.Events...)
		if v.Checkpoint != nil {
			a.spoiled = true // no library reports one beside the events
		}
		a.ended = a.ended || ends(v.Events)
	}
}

// ends reports whether the last of these events ends a run.
func ends(events []json.RawMessage) bool {
	if len(events) == 0 {
		return false
	}
	var e event
	if json.Unmarshal(events[len(events)-1], &e) != nil {
		return false
	}
	return e.Wait != nil || e.StatusUpdate != nil && stateName(e.StatusUpdate.Status.State) != "working"
}

// performed notes an effect, of the attempt that was claimed last.
func (tr *traffic) performed(name string, answer any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.attempts) == 0 {
		return
	}
	a := tr.attempts[len(tr.attempts)-1]
	if answer == "hang" || answer == "hold" {
		a.spoiled = true
	}
	if text, ok := letters(answer); ok {
		answer = text
	}
	a.effects = append(a.effects, effect{name, answer})
}
