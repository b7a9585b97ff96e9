package a2ad

import (
	"encoding/json"
	"strings"
	"time"
)

// Part is one part of a message or an artifact. One of Text, Data, Raw and URL is set.
type Part struct {
	Text      *string         `json:"text,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Raw       []byte          `json:"raw,omitempty"` // the bytes of a file
	URL       string          `json:"url,omitempty"`
	MediaType string          `json:"mediaType,omitempty"`
	Filename  string          `json:"filename,omitempty"`
	Metadata  map[string]any  `json:"metadata,omitempty"`
}

// Text returns a text part.
func Text(s string) Part { return Part{Text: &s} }

// JSON returns a data part. The value has a form in JSON, or the call that gets the part refuses it.
func JSON(value any) Part {
	data, err := json.Marshal(value)
	if err != nil {
		data = json.RawMessage{} // which is not JSON
	}
	return Part{Data: data}
}

// Message is a message of the client, or of an agent.
type Message struct {
	ID       string         `json:"messageId,omitempty"`
	Role     string         `json:"role,omitempty"` // ROLE_USER or ROLE_AGENT
	Parts    []Part         `json:"parts"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// Text returns the text parts, joined by line breaks.
func (m *Message) Text() string {
	var texts []string
	for _, p := range m.Parts {
		if p.Text != nil {
			texts = append(texts, *p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// Data decodes the first data part into v. Without one it does nothing.
func (m *Message) Data(v any) error { return dataOf(m.Parts, v) }

func dataOf(parts []Part, v any) error {
	for _, p := range parts {
		if p.Data != nil {
			return json.Unmarshal(p.Data, v)
		}
	}
	return nil
}

// Artifact is an artifact of a task.
type Artifact struct {
	ID    string `json:"artifactId"`
	Name  string `json:"name,omitempty"`
	Parts []Part `json:"parts"`
}

// Text returns the text parts, joined without a separator: the chunks of a stream.
func (a *Artifact) Text() string {
	var b strings.Builder
	for _, p := range a.Parts {
		if p.Text != nil {
			b.WriteString(*p.Text)
		}
	}
	return b.String()
}

// recordedStep is a step that is recorded.
type recordedStep struct {
	Seq      int             `json:"seq,omitempty"`
	Kind     string          `json:"kind"` // step, wait or call
	Key      string          `json:"key"`
	Name     string          `json:"name,omitempty"`
	Agent    string          `json:"agent,omitempty"`
	InputSHA string          `json:"inputSha,omitempty"`
	Artifact string          `json:"artifact,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    json.RawMessage `json:"error,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	NextAt   *time.Time      `json:"nextAt,omitempty"`
	EndedAt  *time.Time      `json:"endedAt,omitempty"`
}

// runInput is what the server sends for one attempt at a task.
type runInput struct {
	TaskID     string    `json:"taskId"`
	ContextID  string    `json:"contextId"`
	ContextKey string    `json:"contextKey"`
	Tenant     string    `json:"tenant"`
	Owner      string    `json:"owner"`
	Agent      string    `json:"agent"`
	Epoch      int64     `json:"epoch"`
	Attempt    int       `json:"attempt"`
	Deadline   time.Time `json:"deadline,omitzero"`
	Task       struct {
		History   []Message  `json:"history,omitempty"`
		Artifacts []Artifact `json:"artifacts,omitempty"`
	} `json:"task"`
	Messages     []Message       `json:"messages"`
	Checkpoint   json.RawMessage `json:"checkpoint,omitempty"`
	Steps        []recordedStep  `json:"steps,omitempty"`
	StepCount    int             `json:"stepCount,omitempty"`
	Traceparent  string          `json:"traceparent,omitempty"`
	LeaseSeconds float64         `json:"leaseSeconds,omitempty"`
}

// event is what a run reports. One member is set.
type event struct {
	Status     *statusUpdate   `json:"statusUpdate,omitempty"`
	Artifact   *artifactUpdate `json:"artifactUpdate,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	Step       *stepEvent      `json:"step,omitempty"`
	Wait       *waitEvent      `json:"wait,omitempty"`
	Call       *callEvent      `json:"call,omitempty"`
	Usage      *Usage          `json:"usage,omitempty"`
}

type status struct {
	State   string   `json:"state"`
	Message *Message `json:"message,omitempty"`
}

type statusUpdate struct {
	Status status `json:"status"`
}

type artifactUpdate struct {
	Artifact Artifact `json:"artifact"`
	Append   bool     `json:"append,omitempty"`
}

type stepEvent struct {
	Key       string          `json:"key"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Artifact  string          `json:"artifact,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
	Attempts  int             `json:"attempts,omitempty"`
	NextAt    *time.Time      `json:"nextAt,omitempty"`
	StartedAt *time.Time      `json:"startedAt,omitempty"`
	EndedAt   *time.Time      `json:"endedAt,omitempty"`
}

type waitEvent struct {
	Key     string     `json:"key"`
	Until   *time.Time `json:"until,omitempty"`
	For     string     `json:"for,omitempty"`
	Message bool       `json:"message,omitempty"`
	Signal  string     `json:"signal,omitempty"`
	Tasks   []string   `json:"tasks,omitempty"`
	Mode    string     `json:"mode,omitempty"`
	Status  *status    `json:"status,omitempty"`
	Expects *expects   `json:"expects,omitempty"`
}

type expects struct {
	Choices []string        `json:"choices,omitempty"`
	Schema  json.RawMessage `json:"schema,omitempty"`
}

type callEvent struct {
	Key         string  `json:"key"`
	Agent       string  `json:"agent"`
	Message     Message `json:"message"`
	OnParentEnd string  `json:"onParentEnd,omitempty"`
}

// waitResult is the result of a wait.
type waitResult struct {
	By        string          `json:"by"`
	Value     json.RawMessage `json:"value"`
	MessageID string          `json:"messageId"`
}
