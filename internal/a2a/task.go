// Package a2a is the domain: tasks, messages, parts, artifacts, events, cards and
// errors as every generation of the A2A protocol means them.
//
// It knows no JSON, no SQL and no version. Free-form values of clients and agents
// are kept as the bytes that came in (Raw), so that they go out the same.
package a2a

import "time"

// Raw is one JSON value, byte for byte as its author wrote it; nil means absent.
// Code that makes one guarantees that it is valid JSON in valid UTF-8.
type Raw []byte

// PartKind says which member of a part is set. The numbers are not stored.
type PartKind uint8

// The four kinds of content.
const (
	PartText PartKind = iota + 1 // Text holds the text
	PartFile                     // Text holds standard base64 with padding
	PartURL                      // Text holds the URL of a file; a2ad never fetches it
	PartData                     // Data holds any JSON value
)

// Part is one piece of content in a message or an artifact.
type Part struct {
	Kind      PartKind
	Text      string
	Data      Raw
	MediaType string
	Filename  string
	Metadata  Raw // an object, or nil
}

// Message is one turn of a conversation.
type Message struct {
	ID               string
	Role             Role
	Parts            []Part
	ContextID        string
	TaskID           string // as the sender wrote it; empty for a new task
	ReferenceTaskIDs []string
	Extensions       []string
	// Activated are the agent's own extensions that the message's request activated. They are for the agent,
	// and never go on the wire.
	Activated       []string
	Metadata        Raw
	RequestMetadata Raw // of the message's request; for the agent, never on the wire
}

// Artifact is an output of an agent.
type Artifact struct {
	ID          string
	Name        string
	Description string
	Parts       []Part
	Extensions  []string
	Metadata    Raw
}

// Status is the state of a task, the time when it was reached and, often, a message of the agent.
type Status struct {
	State   State
	Message *Message
	Time    time.Time // database clock, UTC, whole milliseconds
}

// Task is a snapshot of one task. LastSeq and LastUID name the newest event that it includes.
type Task struct {
	ID        ID
	Agent     string
	ContextID string
	Status    Status
	Artifacts []Artifact
	History   []Message // oldest first; without the message of Status
	Metadata  Raw
	CreatedAt time.Time
	LastSeq   int64
	LastUID   ID
	// Replied says that the agent replied directly: the message of Status is the whole answer. Codecs write
	// that message instead of the task.
	Replied bool
}

// Event is an output of an agent. A *StatusUpdate, an *ArtifactUpdate and a *Message are logged and sent to
// clients. A *Checkpoint, a *Step and a *Wait are neither: they are stored for the next run of the task.
type Event interface{ event() }

// StatusUpdate is a change of state, or a sign of progress in the same state.
type StatusUpdate struct {
	Status   Status
	Metadata Raw
}

// ArtifactUpdate is an artifact or a chunk of one. With Append its parts are added to the artifact with the
// same id. Otherwise it replaces that artifact.
type ArtifactUpdate struct {
	Artifact  Artifact
	Append    bool
	LastChunk bool
	Metadata  Raw
}

// Checkpoint is JSON that an agent gets back on its next attempt or turn. It is saved in one transaction with
// the event that follows it.
type Checkpoint struct{ Body Raw }

func (*Checkpoint) event()     {}
func (*StatusUpdate) event()   {}
func (*ArtifactUpdate) event() {}
func (*Message) event()        {}

// Entry is one event of a task's log.
type Entry struct {
	TaskID    ID
	ContextID string
	Seq       int64 // 1, 2, 3 … per task, in commit order
	UID       ID
	Time      time.Time // database clock, whole milliseconds
	Event     Event
	// Messages is the length of the task's history including this event. It is set for streams in the process
	// that wrote the event, and 0 otherwise, because the log does not contain it.
	Messages int64
}

// State returns the state that the entry sets, or StateNone.
func (e *Entry) State() State {
	if s, ok := e.Event.(*StatusUpdate); ok {
		return s.Status.State
	}
	return StateNone
}

// Fold applies an update to a list of artifacts and returns the new list. An update without Append replaces the
// artifact and keeps its position. An update with Append adds its parts to the artifact, or creates it (T-34 in
// docs/reference/protocol.md).
//
// Fold owns the list and its artifacts, and may write after the parts of earlier results. It never writes to
// the parts of u. The cost of a chunk depends on its size, not on the number of earlier chunks.
func Fold(artifacts []Artifact, u *ArtifactUpdate) []Artifact {
	parts := u.Artifact.Parts
	own := parts[:len(parts):len(parts)] // appending copies, so u is not changed
	i := FindArtifact(artifacts, u.Artifact.ID)
	switch {
	case i < 0:
		artifacts = append(artifacts, u.Artifact)
		artifacts[len(artifacts)-1].Parts = own
	case !u.Append:
		artifacts[i] = u.Artifact
		artifacts[i].Parts = own
	default:
		artifacts[i].Parts = append(artifacts[i].Parts, parts...)
	}
	return artifacts
}

// FindArtifact returns the index of an artifact in a list, or -1. It searches from the end, because most chunks
// extend the newest artifact.
func FindArtifact(artifacts []Artifact, id string) int {
	for i := len(artifacts) - 1; i >= 0; i-- {
		if artifacts[i].ID == id {
			return i
		}
	}
	return -1
}
