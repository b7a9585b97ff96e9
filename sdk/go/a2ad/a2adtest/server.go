package a2adtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
	"github.com/a2ad/a2ad/sdk/go/a2ad/internal/kit"
)

const (
	maxRuns     = 10_000
	maxEvents   = 1000    // of a request
	maxRequest  = 4 << 20 // bytes
	maxAttempts = 5       // by default
)

// start returns the time of the fake clock when a task begins.
func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// server is a server with one task, its client and the called agents, in memory. It implements [kit.Server].
type server struct {
	client Client
	crash  crash

	mu        sync.Mutex
	requests  int       // guarded by mu
	crashedAt string    // guarded by mu: what the request records at which the crash is
	now       time.Time // guarded by mu
	epoch     int64     // guarded by mu
	task      task      // guarded by mu

	attempt   int
	questions []string
}

func newServer(client Client, c crash) *server {
	if client.MaxAttempts == 0 {
		client.MaxAttempts = maxAttempts
	}
	client.Answers, client.Signals = slices.Clone(client.Answers), maps.Clone(client.Signals)
	s := &server{client: client, crash: c, now: start(), attempt: 1}
	s.task.calls, s.task.usage = make(map[string]*call), make(map[string]a2ad.Usage)
	return s
}

// Now implements [kit.Server].
func (s *server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Sleep implements [kit.Server].
func (s *server) Sleep(ctx context.Context, d time.Duration) error {
	s.advance(d)
	return ctx.Err()
}

func (s *server) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// Report implements [kit.Server].
func (s *server) Report(epoch int64, events []json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	decoded, bytes := make([]reported, len(events)), 0
	for i, data := range events {
		bytes += len(data)
		if err := json.Unmarshal(data, &decoded[i]); err != nil {
			return fmt.Errorf("a2adtest: %w", err)
		}
	}
	s.requests++
	dies := s.requests == s.crash.at
	if dies {
		s.crashedAt = describe(decoded)
	}
	if epoch != s.epoch || dies && !s.crash.stored {
		return kit.Crash{}
	}
	if len(events) > maxEvents || bytes > maxRequest {
		return kit.Refusal{Text: "the request is too large"}
	}
	if err := s.task.apply(decoded); err != nil {
		return err
	}
	for i, e := range decoded {
		if e.Status != nil || e.Artifact != nil {
			s.task.events = append(s.task.events, events[i])
		}
	}
	if dies {
		return kit.Crash{}
	}
	return nil
}

// run gives the task to the agent again and again, until it has ended.
func (s *server) run(fn a2ad.AgentFunc, message any) (*Result, error) {
	if _, err := s.say(message); err != nil {
		return nil, err
	}
	for s.task.ended == nil {
		if s.epoch == maxRuns {
			return nil, fmt.Errorf("%w: the agent ran %d times without an end", ErrStuck, maxRuns)
		}
		run, err := s.newRun()
		if err != nil {
			return nil, err
		}
		end, err := kit.Execute(run, s, fn, s.client.Handler)
		switch {
		case err != nil:
			return nil, err
		case end.Wrong != nil:
			return nil, end.Wrong
		case end.Crashed && s.task.ended == nil && s.task.wait == nil:
			s.again("crashed")
		case end.Retry:
			s.advance(max(end.After, time.Second))
			s.again(end.Reason)
		}
		if s.task.wait != nil {
			if err := s.endWait(); err != nil {
				return nil, at(end.Line, err)
			}
		}
	}
	return s.result(), nil
}

// at adds the line of the agent to an error.
func at(line string, err error) error {
	if line == "" {
		return err
	}
	return fmt.Errorf("%s: %w", line, err)
}

func (s *server) result() *Result {
	t := &s.task
	r := &Result{
		State: stateName(t.ended.State), Artifacts: fold(t.log), Questions: s.questions, Usage: t.usage,
		Attempts: int(s.epoch), Elapsed: s.now.Sub(start()), Events: t.events,
	}
	if t.ended.Message != nil {
		r.Message = *t.ended.Message
	}
	for _, step := range t.steps {
		name := step.Name
		if step.Agent != "" {
			name = step.Agent
		}
		r.Steps = append(r.Steps, Step{
			Kind: step.Kind, Key: step.Key, Name: name, Artifact: step.Artifact, Result: step.Result, Error: step.Error,
			Attempts: step.Attempts,
		})
	}
	return r
}

// say adds a message of the client, and returns its id.
func (s *server) say(said any) (string, error) {
	m, err := messageOf(said)
	if err != nil {
		return "", err
	}
	m.ID, m.Role = fmt.Sprintf("message-%d", len(s.task.messages)+1), "ROLE_USER"
	s.task.messages = append(s.task.messages, m)
	return m.ID, nil
}

// newRun begins a run, and returns what a claim returns.
func (s *server) newRun() (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	t := &s.task
	artifacts := fold(t.log)
	list := make([]a2ad.Artifact, 0, len(artifacts))
	for _, id := range slices.Sorted(maps.Keys(artifacts)) {
		list = append(list, artifacts[id])
	}
	return json.Marshal(map[string]any{
		"taskId": "task-1", "contextId": "context-1", "contextKey": "key-1", "tenant": "default", "owner": "test",
		"agent": "test", "epoch": s.epoch, "attempt": s.attempt, "messages": t.messages, "checkpoint": t.checkpoint,
		"steps": t.steps, "stepCount": len(t.steps),
		"task": map[string]any{"history": t.messages, "artifacts": list},
	})
}

// again begins another attempt, unless there is none left.
func (s *server) again(reason string) {
	if s.attempt++; s.attempt > s.client.MaxAttempts {
		s.task.ended = &status{"TASK_STATE_FAILED", &a2ad.Message{Parts: []a2ad.Part{a2ad.Text(reason)}}}
	}
}
