package a2adtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// server is one task, its client and its agents, in memory. It implements [kit.Server].
type server struct {
	client Client
	crash  crash

	mu         sync.Mutex
	requests   int              // guarded by mu
	crashed    bool             // guarded by mu
	now        time.Time        // guarded by mu while an agent runs
	steps      []Step           // and so are those below
	begun      map[string]int   // of streamed steps: the length of the log when they began
	calls      map[string]*call // by key
	log        []reported
	messages   []a2ad.Message
	questions  []string
	usage      []a2ad.Usage
	checkpoint json.RawMessage
	ended      *status
	wait       *wait
	attempt    int
	epoch      int64
}

type status struct {
	State   string        `json:"state"`
	Message *a2ad.Message `json:"message"`
}

type wait struct {
	Key     string     `json:"key"`
	Until   *time.Time `json:"until"`
	For     string     `json:"for"`
	Message bool       `json:"message"`
	Signal  string     `json:"signal"`
	Tasks   []string   `json:"tasks"`
	Mode    string     `json:"mode"`
	Status  *status    `json:"status"`
}

type call struct {
	Key     string       `json:"key"`
	Agent   string       `json:"agent"`
	Message a2ad.Message `json:"message"`
}

// stepEvent is the record of a step, as a run reports it.
type stepEvent struct {
	Step
	Input json.RawMessage `json:"input"`
}

// run is what an agent gets for an attempt.
type run struct {
	TaskID     string          `json:"taskId"`
	ContextID  string          `json:"contextId"`
	ContextKey string          `json:"contextKey"`
	Tenant     string          `json:"tenant"`
	Owner      string          `json:"owner"`
	Agent      string          `json:"agent"`
	Epoch      int64           `json:"epoch"`
	Attempt    int             `json:"attempt"`
	Messages   []a2ad.Message  `json:"messages"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	Steps      []Step          `json:"steps,omitempty"`
	StepCount  int             `json:"stepCount"`
	Task       task            `json:"task"`
}

type task struct {
	History   []a2ad.Message  `json:"history"`
	Artifacts []a2ad.Artifact `json:"artifacts"`
}

type artifactUpdate struct {
	Artifact a2ad.Artifact `json:"artifact"`
	Append   bool          `json:"append"`
}

// reported is an event of a run.
type reported struct {
	Status *struct {
		Status status `json:"status"`
	} `json:"statusUpdate"`
	Artifact   *artifactUpdate `json:"artifactUpdate"`
	Checkpoint json.RawMessage `json:"checkpoint"`
	Step       *stepEvent      `json:"step"`
	Wait       *wait           `json:"wait"`
	Call       *call           `json:"call"`
	Usage      *a2ad.Usage     `json:"usage"`
}

func newServer(client Client, c crash) *server {
	if client.MaxAttempts == 0 {
		client.MaxAttempts = 5
	}
	client.Answers, client.Signals = slices.Clone(client.Answers), maps.Clone(client.Signals)
	return &server{
		client: client, crash: c, now: start, attempt: 1, begun: make(map[string]int), calls: make(map[string]*call),
	}
}

// Now implements [kit.Server].
func (s *server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Sleep implements [kit.Server].
func (s *server) Sleep(_ context.Context, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
	return nil
}

// Report implements [kit.Server].
func (s *server) Report(_ context.Context, epoch int64, events []json.RawMessage) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	dies := s.requests == s.crash.at
	if s.crashed || epoch != s.epoch || dies && !s.crash.stored {
		s.crashed = s.crashed || dies
		return false, a2ad.ErrStopped
	}
	for _, data := range events {
		var e reported
		if err := json.Unmarshal(data, &e); err != nil {
			return false, fmt.Errorf("a2adtest: %w", err)
		}
		if err := s.apply(&e); err != nil {
			return false, err
		}
	}
	if dies {
		s.crashed = true
		return false, a2ad.ErrStopped
	}
	return false, nil
}

func (s *server) apply(e *reported) error {
	switch {
	case s.ended != nil, s.wait != nil:
		return fmt.Errorf("a2adtest: an event after the one that ends the run")
	case e.Step != nil:
		return s.applyStep(e.Step)
	case e.Wait != nil:
		if old := s.step(e.Wait.Key); old == nil {
			s.steps = append(s.steps, Step{Seq: len(s.steps) + 1, Kind: "wait", Key: e.Wait.Key})
		} else if old.EndedAt != nil || old.Kind != "wait" {
			return fmt.Errorf("a2adtest: nondeterministic step %q", e.Wait.Key)
		}
		s.wait = e.Wait
	case e.Call != nil:
		if s.step(e.Call.Key) == nil {
			s.steps = append(s.steps, Step{
				Seq: len(s.steps) + 1, Kind: "call", Key: e.Call.Key, Agent: e.Call.Agent,
			})
			s.calls[e.Call.Key] = e.Call
		}
	case e.Checkpoint != nil:
		s.checkpoint = e.Checkpoint
	case e.Usage != nil:
		s.usage = append(s.usage, *e.Usage)
	default:
		s.log = append(s.log, *e)
		if e.Status != nil && slices.Contains(finalStates, e.Status.Status.State) {
			s.ended = &e.Status.Status
		}
	}
	return nil
}

var finalStates = []string{"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED"}

func (s *server) time() *time.Time {
	now := s.now
	return &now
}

func (s *server) step(key string) *Step {
	i := slices.IndexFunc(s.steps, func(r Step) bool { return r.Key == key })
	if i < 0 {
		return nil
	}
	return &s.steps[i]
}

func (s *server) applyStep(v *stepEvent) error {
	next, begins := v.Step, v.Artifact != ""
	next.Kind, next.Attempts = "step", max(next.Attempts, 1)
	if v.Input != nil {
		sum := sha256.Sum256(v.Input)
		next.InputSHA = hex.EncodeToString(sum[:])
	}
	if !begins && next.NextAt == nil && next.EndedAt == nil {
		next.EndedAt = s.time()
	}
	old := s.step(v.Key)
	if old == nil {
		next.Seq = len(s.steps) + 1
		s.steps = append(s.steps, next)
		s.begun[v.Key] = len(s.log)
		return nil
	}
	if old.Kind != "step" || old.Name != next.Name || old.InputSHA != next.InputSHA {
		return fmt.Errorf("a2adtest: nondeterministic step %q", v.Key)
	}
	if old.EndedAt != nil {
		if begins || !bytes.Equal(old.Result, next.Result) {
			return fmt.Errorf("a2adtest: a step has the key %q already", v.Key)
		}
		return nil
	}
	if begins {
		s.restore(v.Artifact, s.begun[v.Key])
	}
	next.Seq, next.Artifact = old.Seq, old.Artifact
	*old = next
	return nil
}

// say adds a message of the client, and returns its id.
func (s *server) say(said any) (string, error) {
	id := fmt.Sprintf("message-%d", len(s.messages)+1)
	part, err := partOf(said)
	if err != nil {
		return "", err
	}
	s.messages = append(s.messages, a2ad.Message{ID: id, Role: "ROLE_USER", Parts: []a2ad.Part{part}})
	return id, nil
}

func (s *server) newRun() (json.RawMessage, error) {
	r := run{
		TaskID: "task-1", ContextID: "context-1", ContextKey: "key-1", Tenant: "default", Owner: "test", Agent: "test",
		Epoch: s.epoch, Attempt: s.attempt, Messages: s.messages, Checkpoint: s.checkpoint,
		Steps: s.steps, StepCount: len(s.steps), Task: task{History: s.messages},
	}
	for _, a := range fold(s.log) {
		r.Task.Artifacts = append(r.Task.Artifacts, a)
	}
	return json.Marshal(&r)
}

func (s *server) again(reason string) {
	// A crash after the last event was stored is no reason for another attempt.
	if s.attempt++; s.ended == nil && s.attempt > s.client.MaxAttempts {
		s.ended = &status{"TASK_STATE_FAILED", &a2ad.Message{Parts: []a2ad.Part{a2ad.Text(reason)}}}
	}
}

// endWait ends a wait in the way that the test says.
func (s *server) endWait() error {
	w := s.wait
	s.wait, s.attempt, s.crashed = nil, 1, false
	result, err := s.over(w)
	if err != nil {
		return err
	}
	data, err := json.Marshal(result)
	if err != nil {
		return err
	}
	old := s.step(w.Key)
	old.Result, old.EndedAt = data, s.time()
	return nil
}

func (s *server) over(w *wait) (map[string]any, error) {
	if w.Tasks != nil {
		return map[string]any{"by": "tasks"}, s.doCalls(w)
	}
	if value, ok := s.client.Signals[w.Signal]; ok && w.Signal != "" {
		delete(s.client.Signals, w.Signal)
		return map[string]any{"by": "signal", "name": w.Signal, "value": value}, nil
	}
	if w.Message {
		if answer := s.answer(w); answer != nil {
			id, err := s.say(answer)
			return map[string]any{"by": "message", "messageId": id}, err
		}
	}
	switch {
	case w.For != "":
		d, err := time.ParseDuration(w.For)
		s.now = s.now.Add(d)
		return map[string]any{"by": "time"}, err
	case w.Until != nil:
		if w.Until.After(s.now) {
			s.now = *w.Until
		}
		return map[string]any{"by": "time"}, nil
	case w.Signal != "":
		return nil, fmt.Errorf("%w: it waits for the signal %q, and the test has none", ErrStuck, w.Signal)
	}
	return nil, fmt.Errorf("%w: it waits for an answer, and the test has none", ErrStuck)
}

// answer returns the client's answer to a question; nil if it gives none.
func (s *server) answer(w *wait) (answer any) {
	question := ""
	if w.Status != nil && w.Status.Message != nil {
		question = w.Status.Message.Text()
	}
	s.questions = append(s.questions, question)
	switch {
	case s.client.Answer != nil:
		return s.client.Answer(question)
	case len(s.client.Answers) > 0:
		answer, s.client.Answers = s.client.Answers[0], s.client.Answers[1:]
	}
	return answer
}
