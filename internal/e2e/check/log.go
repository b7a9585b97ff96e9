package check

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
)

// Log collects what clients saw of a server. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	streams []Stream // guarded by mu
	answers []Answer // guarded by mu
}

// Stream is one connection on which a client followed a task, as it arrived on the wire.
type Stream struct {
	Reader  string // connections of one reader form one view of the task, in order
	Replica string
	Message bool    // opened by a message; otherwise by a subscription
	After   string  // the Last-Event-ID that was sent, or empty
	Frames  []Frame // in order
	Gap     bool    // the server reported missing events before the first frame
	Retry   bool    // the server asked the client to reconnect later
	Ended   bool    // the server ended the stream regularly
}

// Frame is one event of a stream: its id, and the result in its data.
type Frame struct {
	ID     string
	Result []byte
}

// Answer is a Task that a server returned, and the message that asked for it.
type Answer struct {
	Replica string
	Task    []byte
	Whole   bool   // with all artifacts and the whole history
	AtEnd   bool   // read at quiescence
	Message []byte // nil: no message was sent
}

// AddStream records a connection that has ended.
func (l *Log) AddStream(s Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams = append(l.streams, s)
}

// AddAnswer records a Task.
func (l *Log) AddAnswer(a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
}

// Streams returns the connections recorded so far.
func (l *Log) Streams() []Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Stream(nil), l.streams...)
}

// Answers returns the Tasks recorded so far.
func (l *Log) Answers() []Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Answer(nil), l.answers...)
}

// object holds the checked fields of a Task, a status-update or an artifact-update.
type object struct {
	Kind      string            `json:"kind"`
	ID        string            `json:"id"`
	TaskID    string            `json:"taskId"`
	Status    status            `json:"status"`
	Final     bool              `json:"final"`
	Artifact  artifact          `json:"artifact"`
	Append    bool              `json:"append"`
	Artifacts []artifact        `json:"artifacts"`
	History   []json.RawMessage `json:"history"`
}

type status struct {
	State     string          `json:"state"`
	Timestamp string          `json:"timestamp"`
	Message   json.RawMessage `json:"message"`
}

type artifact struct {
	ID          string            `json:"artifactId"`
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Parts       []json.RawMessage `json:"parts"`
	Metadata    json.RawMessage   `json:"metadata"`
}

func (o *object) task() string {
	if o.Kind == "task" {
		return o.ID
	}
	return o.TaskID
}

func terminal(state string) bool {
	switch state {
	case "completed", "failed", "canceled", "rejected":
		return true
	}
	return false
}

// parseID parses the id of an event; seq is -1 without an id.
func parseID(id string) (seq int64, uid string) {
	number, uid, ok := strings.Cut(id, "-")
	seq, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || len(uid) != 8 {
		return -1, ""
	}
	return seq, uid
}
