package check

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
)

// Log is what clients saw of a server. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	streams []Stream // guarded by mu
	answers []Answer // guarded by mu
}

// Stream is one connection on which a client followed a task, as it came over the wire.
type Stream struct {
	Reader  string // connections of one reader are one view of the task, in their order
	Replica string
	Message bool    // asked for with a message; else by itself
	After   string  // the Last-Event-ID that was sent, or empty
	Frames  []Frame // in their order
	Gap     bool    // the server said that events are missing before the first frame
	Retry   bool    // the server asked to come back later
	Ended   bool    // the server ended the stream in an orderly way
}

// Frame is one event of a stream: its id, and the result that its data holds.
type Frame struct {
	ID     string
	Result []byte
}

// Answer is a Task that a server answered with, and the message that was sent to get it.
type Answer struct {
	Replica string
	Task    []byte
	Whole   bool   // with all artifacts and the whole history
	AtEnd   bool   // read at quiescence
	Message []byte // nil: none was sent
}

// AddStream notes a connection that is over.
func (l *Log) AddStream(s Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams = append(l.streams, s)
}

// AddAnswer notes a Task.
func (l *Log) AddAnswer(a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
}

// Streams returns the connections noted so far.
func (l *Log) Streams() []Stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Stream(nil), l.streams...)
}

// Answers returns the Tasks noted so far.
func (l *Log) Answers() []Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Answer(nil), l.answers...)
}

// object is a Task, a status-update or an artifact-update, as far as it is looked at.
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

// parseID reads the id of an event; -1 is none.
func parseID(id string) (seq int64, uid string) {
	number, uid, ok := strings.Cut(id, "-")
	seq, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || len(uid) != 8 {
		return -1, ""
	}
	return seq, uid
}
