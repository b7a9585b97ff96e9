package attempt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/store/db"
)

// Limits of one step.
const (
	maxKey    = 256
	MaxResult = 1 << 20 // of a step or a signal, in bytes
)

// Journal numbers the steps that a run records and compares them with those of earlier runs. Its user must know the
// recorded steps whose keys may come again. It belongs to one goroutine.
type Journal struct {
	steps int // recorded so far
	most  int // of the task; 0: no limit
	calls int // recorded so far, as far as it knows
	known map[string]a2a.StepRecord
}

// Journal returns the journal of a run whose task has this number of steps.
func (b Bounds) Journal(steps int, known []a2a.StepRecord) *Journal {
	j := &Journal{steps: steps, most: b.Steps, known: make(map[string]a2a.StepRecord, len(known))}
	for _, s := range known {
		j.known[s.Key] = s
		if s.Kind == a2a.StepCall {
			j.calls++
		}
	}
	return j
}

// Record returns what to store of a step or a wait; nil if the same is stored already. after is the newest event of the
// task before it. Errors are for the agent's author.
func (j *Journal) Record(e a2a.Event, after int64) (*a2a.StepRecord, error) {
	var next a2a.StepRecord
	switch e := e.(type) {
	case *a2a.Step:
		next = a2a.StepRecord{Step: *e, Kind: a2a.StepWork, Ended: !e.Open()}
	case *a2a.Wait:
		next = a2a.StepRecord{Step: a2a.Step{Key: e.Key, Input: e.Input}, Kind: a2a.StepWait}
		if e.Key == "" {
			next.Key = fmt.Sprintf("wait#%d", j.steps+1)
		}
		var err error
		if next.Calls, err = j.callsOf(e); err != nil {
			return nil, err
		}
	case *a2a.Call:
		next = a2a.StepRecord{
			Step: a2a.Step{Key: e.Key, Name: e.Agent, Input: e.Input}, Kind: a2a.StepCall,
			Child: db.NewTaskID(), Call: e,
		}
	}
	if err := checkStep(&next); err != nil {
		return nil, err
	}
	if old, ok := j.known[next.Key]; ok {
		return j.again(&old, &next, after)
	}
	if j.most > 0 && j.steps >= j.most {
		return nil, fmt.Errorf("the task would have more than %d steps", j.most)
	}
	j.steps++
	next.Seq = j.steps
	if next.Artifact != "" {
		next.After = after
	}
	if next.Kind == a2a.StepCall {
		j.calls++
	}
	j.known[next.Key] = next
	return &next, nil
}

func checkStep(s *a2a.StepRecord) error {
	switch {
	case s.Key == "":
		return errors.New("a step needs a key")
	case len(s.Key) > maxKey, len(s.Name) > maxKey:
		return fmt.Errorf("the key or the name of a step is longer than %d bytes", maxKey)
	case s.Key != CleanText(s.Key), s.Name != CleanText(s.Name):
		return fmt.Errorf("the key or the name of the step %q is not valid text", CleanText(s.Key))
	case len(s.Result) > MaxResult, len(s.Error) > MaxResult:
		return fmt.Errorf("the result of the step %q is larger than %d bytes", s.Key, MaxResult)
	case s.Result != nil && s.Error != nil:
		return fmt.Errorf("the step %q has a result and an error", s.Key)
	case s.Artifact != "" && !s.Begins():
		return fmt.Errorf("the step %q names an artifact with its result: name it when the step begins", s.Key)
	}
	if s.Artifact != "" {
		return checkID("step.artifact", s.Artifact)
	}
	return nil
}

// again compares a step with the one that has its key already.
func (j *Journal) again(old, next *a2a.StepRecord, after int64) (*a2a.StepRecord, error) {
	switch {
	case old.Kind != next.Kind:
		return nil, fmt.Errorf("nondeterministic step %q: recorded as a %s, now a %s", next.Key, old.Kind, next.Kind)
	case old.Name != next.Name && old.Kind == a2a.StepCall:
		return nil, fmt.Errorf("nondeterministic step %q: recorded as a call of the agent %q, now of %q", next.Key,
			old.Name, next.Name)
	case old.Name != next.Name:
		return nil, fmt.Errorf("nondeterministic step %q: recorded with the name %q, now %q", next.Key, old.Name,
			next.Name)
	case !sameInput(old, next):
		return nil, fmt.Errorf("nondeterministic step %q: its input differs from the recorded one (%x, now %x)",
			next.Key, old.Input, next.Input)
	case next.Kind == a2a.StepCall:
		return nil, nil
	case next.Kind == a2a.StepWait && old.Ended:
		return nil, fmt.Errorf("the wait %q is over: its result is in the steps of the run", next.Key)
	case old.Ended && next.Artifact != "":
		return nil, fmt.Errorf("the step %q is over: its result is in the steps of the run", next.Key)
	case old.Ended:
		if bytes.Equal(old.Result, next.Result) && bytes.Equal(old.Error, next.Error) {
			return nil, nil
		}
		return nil, fmt.Errorf("a step has the key %q already, with another result", next.Key)
	}
	if next.Artifact != "" && old.Artifact != "" && next.Artifact != old.Artifact {
		return nil, fmt.Errorf("nondeterministic step %q: recorded with the artifact %q, now %q", next.Key,
			old.Artifact, next.Artifact)
	}
	next.Seq = old.Seq
	switch {
	case old.Artifact != "":
		next.Again, next.Artifact, next.After = next.Begins(), old.Artifact, old.After
	case next.Artifact != "": // earlier tries failed before they wrote
		next.After = after
	}
	j.known[next.Key] = *next
	return next, nil
}

// sameInput reports whether a step has the input of the recorded one. A wait that was recorded without an input may
// have been recorded by a version that did not store it, so any input matches.
func sameInput(old, next *a2a.StepRecord) bool {
	return bytes.Equal(old.Input, next.Input) || old.Kind == a2a.StepWait && len(old.Input) == 0
}

// Calls returns how many calls are recorded: of the steps that it knows, unless SetCalls was called.
func (j *Journal) Calls() int { return j.calls }

// SetCalls tells a journal that does not know all steps how many calls are recorded.
func (j *Journal) SetCalls(n int) { j.calls = n }

// callsOf returns the steps of the calls that a wait is for.
func (j *Journal) callsOf(w *a2a.Wait) ([]int, error) {
	var seqs []int
	for _, key := range w.Tasks {
		s, ok := j.known[key]
		switch {
		case !ok || s.Kind != a2a.StepCall:
			return nil, fmt.Errorf("wait.tasks: no call of the task has the key %q", CleanText(key))
		case slices.Contains(seqs, s.Seq):
			return nil, fmt.Errorf("wait.tasks has the key %q twice", key)
		}
		seqs = append(seqs, s.Seq)
	}
	return seqs, nil
}

// AddStep adds a step to those of a batch. If the batch has recorded the step before, it replaces that one.
func AddStep(steps []a2a.StepRecord, s a2a.StepRecord) []a2a.StepRecord {
	for i := range steps {
		if steps[i].Seq == s.Seq {
			steps[i] = s
			return steps
		}
	}
	return append(steps, s)
}

// longestWait bounds the waits of tasks.
const longestWait = 10 * 365 * 24 * time.Hour

// copyWait checks a wait.
func copyWait(w a2a.Wait) (a2a.Event, int, error) {
	switch {
	case w.For < 0 || w.For > longestWait:
		return nil, 0, fmt.Errorf("wait.for is not between 0 and %s", longestWait)
	case w.For > 0 && !w.Until.IsZero():
		return nil, 0, errors.New("a wait has both until and for")
	case w.For == 0 && w.Until.IsZero() && !w.Message && w.Signal == "" && len(w.Tasks) == 0:
		return nil, 0, errors.New("a wait needs until, for, message, signal or tasks")
	case w.Any && len(w.Tasks) == 0:
		return nil, 0, errors.New("wait.mode is only for a wait with tasks")
	case len(w.Signal) > maxKey || w.Signal != CleanText(w.Signal):
		return nil, 0, fmt.Errorf("wait.signal is longer than %d bytes or not valid text", maxKey)
	case w.Status == nil && w.Expects != nil:
		return nil, 0, errors.New("wait.expects needs a status, which asks the client")
	case w.Status == nil:
		return &w, 0, nil
	case !w.Status.State.Interrupted():
		return nil, 0, errors.New("wait.status.state must be TASK_STATE_INPUT_REQUIRED or TASK_STATE_AUTH_REQUIRED")
	case !w.Message:
		return nil, 0, errors.New("a wait with a status needs message: true")
	}
	asked := a2a.StatusUpdate{Status: *w.Status}
	if w.Expects != nil {
		if _, err := agents.ParseExpects(w.Expects); err != nil {
			return nil, 0, err
		}
		asked.Status.Message = withExpects(asked.Status.Message, w.Expects)
	}
	e, n, err := copyStatus(asked)
	if err != nil {
		return nil, 0, err
	}
	w.Status = &e.(*a2a.StatusUpdate).Status
	return &w, n, nil
}

// withExpects adds what a question expects to its message, as a data part that every client can show.
func withExpects(question *a2a.Message, expects a2a.Raw) *a2a.Message {
	m := a2a.Message{}
	if question != nil {
		m = *question
	}
	m.Parts = append(slices.Clone(m.Parts), a2a.Part{
		Kind: a2a.PartData, Data: expects, Metadata: a2a.Raw(`{"a2ad/expects":true}`),
	})
	return &m
}
