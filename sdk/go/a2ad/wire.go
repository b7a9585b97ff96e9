package a2ad

import (
	"encoding/json"
	"errors"
	"sync"
	"time"
)

// recordedStep is a recorded step, wait or call.
type recordedStep struct {
	Kind     string          `json:"kind"` // step, wait or call
	Key      string          `json:"key"`
	Name     string          `json:"name"`
	Agent    string          `json:"agent"` // of a call
	InputSHA string          `json:"inputSha"`
	Artifact string          `json:"artifact"`
	Result   json.RawMessage `json:"result"`
	Error    json.RawMessage `json:"error"`
	Attempts int             `json:"attempts"`
	NextAt   *time.Time      `json:"nextAt"`
	EndedAt  json.RawMessage `json:"endedAt"`
	place    int             // among all, from 1 on
}

func (r *recordedStep) check() error {
	if r == nil {
		return errors.New("a step is null")
	}
	if r.Key == "" || r.Kind == "" {
		return errors.New("a step has no key or no kind")
	}
	if r.Agent != "" {
		r.Name = r.Agent
	}
	r.Attempts = max(r.Attempts, 1)
	return nil
}

func (r *recordedStep) ended() bool { return r.EndedAt != nil }

func (r *recordedStep) failed() bool { return r.Error != nil && string(r.Error) != "null" }

// waitResult is the result of a wait that has ended.
type waitResult struct {
	By        string          `json:"by"` // time, message, signal or tasks
	Value     json.RawMessage `json:"value"`
	MessageID string          `json:"messageId"`
}

// over returns the result of a wait.
func (r *recordedStep) over() waitResult {
	var w waitResult
	if json.Unmarshal(r.Result, &w) != nil || w.By == "" {
		w.By = "time"
	}
	return w
}

// runInput is one run: what a claim returns for a task.
type runInput struct {
	TaskID     string    `json:"taskId"`
	ContextID  string    `json:"contextId"`
	ContextKey string    `json:"contextKey"`
	Tenant     string    `json:"tenant"`
	Owner      string    `json:"owner"`
	Agent      string    `json:"agent"`
	Epoch      int64     `json:"epoch"`
	Attempt    int       `json:"attempt"`
	Deadline   time.Time `json:"deadline"`
	Task       struct {
		History   []Message  `json:"history"`
		Artifacts []Artifact `json:"artifacts"`
	} `json:"task"`
	Messages        []Message         `json:"messages"`
	RequestMetadata []json.RawMessage `json:"requestMetadata"`
	Extensions      []string          `json:"extensions"`
	Checkpoint      json.RawMessage   `json:"checkpoint"`
	Steps           []*recordedStep   `json:"steps"`
	StepCount       int               `json:"stepCount"`
	Traceparent     string            `json:"traceparent"`
	LeaseSeconds    float64           `json:"leaseSeconds"`

	lease lease
}

func decodeRun(data []byte) (*runInput, error) {
	run := &runInput{Attempt: 1, LeaseSeconds: 30}
	if err := json.Unmarshal(data, run); err != nil {
		return nil, err
	}
	if run.TaskID == "" || run.Epoch == 0 || len(run.Messages) == 0 {
		return nil, errors.New("it has no id, no epoch or no message")
	}
	for _, step := range run.Steps {
		if err := step.check(); err != nil {
			return nil, err
		}
	}
	if run.LeaseSeconds <= 0 {
		return nil, errors.New("its lease has no length")
	}
	run.lease.length = time.Duration(run.LeaseSeconds * float64(time.Second))
	run.lease.renew(time.Now())
	return run, nil
}

// number returns which message of the client Messages[i] is in the task, from 1. Clients reuse ids. The history ends
// with the messages of the run.
func (r *runInput) number(i int) int {
	said := 0
	for _, m := range r.Task.History {
		if m.Role != "ROLE_AGENT" {
			said++
		}
	}
	return max(said-len(r.Messages), 0) + i + 1
}

// lease is how long the run belongs to this worker.
type lease struct {
	length time.Duration

	mu      sync.Mutex
	renewed time.Time // guarded by mu: when the claim was answered, or the request sent that last renewed the lease
}

func (l *lease) renew(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.renewed) {
		l.renewed = at
	}
}

// left returns the time until the lease expires.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.renewed.Add(l.length))
}

// The events that a run reports. The order of their members matters: some are hashed, and all libraries must get the
// same hash.
type (
	statusEvent struct {
		Update statusUpdate `json:"statusUpdate"`
	}
	statusUpdate struct {
		Status status `json:"status"`
	}
	status struct {
		State   string       `json:"state"`
		Message *sentMessage `json:"message,omitempty"`
	}
	sentMessage struct {
		Parts []Part `json:"parts"`
	}
	artifactEvent struct {
		Update artifactUpdate `json:"artifactUpdate"`
	}
	artifactUpdate struct {
		Artifact Artifact `json:"artifact"`
		Append   bool     `json:"append,omitempty"`
	}
	checkpointEvent struct {
		Checkpoint json.RawMessage `json:"checkpoint"`
	}
	usageEvent struct {
		Usage Usage `json:"usage"`
	}
	stepEvent struct {
		Step stepRecord `json:"step"`
	}
	stepRecord struct {
		Key       string          `json:"key"`
		Name      string          `json:"name"`
		Artifact  string          `json:"artifact,omitempty"`
		Error     *stepFailure    `json:"error,omitempty"`
		Attempts  int             `json:"attempts,omitempty"`
		NextAt    string          `json:"nextAt,omitempty"`
		StartedAt string          `json:"startedAt,omitempty"`
		EndedAt   string          `json:"endedAt,omitempty"`
		Input     json.RawMessage `json:"input,omitempty"`
		Result    json.RawMessage `json:"result,omitempty"`
	}
	stepFailure struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	waitEvent struct {
		Wait waitRecord `json:"wait"`
	}
	waitRecord struct {
		Key   string `json:"key"`
		For   string `json:"for,omitempty"`
		Until string `json:"until,omitempty"`
		condition
		Input json.RawMessage `json:"input,omitempty"`
	}
	// condition is what a wait is for, without the time, which may be computed anew each time.
	condition struct {
		Signal  string   `json:"signal,omitempty"`
		Tasks   []string `json:"tasks,omitempty"`
		Mode    string   `json:"mode,omitempty"`
		Message bool     `json:"message,omitempty"`
		Status  *status  `json:"status,omitempty"`
		Expects *expects `json:"expects,omitempty"`
	}
	expects struct {
		Choices []string        `json:"choices,omitempty"`
		Schema  json.RawMessage `json:"schema,omitempty"`
	}
	callEvent struct {
		Call callRecord `json:"call"`
	}
	callRecord struct {
		Key         string          `json:"key"`
		Agent       string          `json:"agent"`
		Message     json.RawMessage `json:"message"`
		OnParentEnd string          `json:"onParentEnd,omitempty"`
	}
)

var jsonNull = json.RawMessage("null")

const (
	stateWorking   = "TASK_STATE_WORKING"
	stateInput     = "TASK_STATE_INPUT_REQUIRED"
	stateAuth      = "TASK_STATE_AUTH_REQUIRED"
	stateCompleted = "TASK_STATE_COMPLETED"
	stateFailed    = "TASK_STATE_FAILED"
	stateRejected  = "TASK_STATE_REJECTED"
)

// stamp returns a time as the server reads it.
func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
