package client

import (
	"fmt"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/sse"
)

// Kind is the kind of a result or an event, by its name in 0.3.
type Kind string

// The kinds that a server may send.
const (
	KindTask     Kind = "task"
	KindMessage  Kind = "message"
	KindStatus   Kind = "status-update"
	KindArtifact Kind = "artifact-update"
)

// Result is a Task or a Message: its JSON as received, and the parts that people read.
type Result struct {
	Raw       []byte
	Kind      Kind
	TaskID    string // empty for a Message outside a task
	ContextID string
	State     a2a.State  // of a Task
	Timestamp string     // of a Task's status
	Parts     []a2a.Part // of the Message, or of the message in a Task's status
	Artifacts []Artifact // of a Task
	Metadata  []byte     // of a status-update; nil if there is none
}

// Artifact is one artifact of a Task.
type Artifact struct {
	ID, Name string
	Parts    []a2a.Part
}

// Event is one item of a stream.
type Event struct {
	ID  string // names the event on the server; empty if the server gives no ids
	Seq int64  // from ID, or 0
	Gap bool   // a Task that replaces missing events
	Result
	Artifact  Artifact // the chunk of an artifact-update
	Append    bool
	LastChunk bool
	Final     bool
}

// Text joins the text parts of a list with line breaks.
func Text(parts []a2a.Part) string {
	var texts []string
	for _, p := range parts {
		if p.Kind == a2a.PartText {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func decodeResult(whole []byte) (Result, error) {
	raw, kind := unwrap(whole)
	r := Result{Raw: whole, Kind: kind, ContextID: str(raw, "contextId")}
	switch r.Kind {
	case KindMessage:
		r.TaskID = str(raw, "taskId")
		r.Parts = decodeParts(rawjson.Get(raw, "parts"))
	case KindTask:
		r.TaskID = str(raw, "id")
		if err := r.decodeStatus(rawjson.Get(raw, "status")); err != nil {
			return Result{}, err
		}
		for a := range rawjson.Elements(rawjson.Get(raw, "artifacts")) {
			r.Artifacts = append(r.Artifacts, decodeArtifact(a))
		}
	default:
		return Result{}, fmt.Errorf("the server answered with kind %q, not a task or a message", r.Kind)
	}
	return r, nil
}

// DecodeEvent reads an event of a stream, without the envelope of JSON-RPC.
func DecodeEvent(raw []byte, id string) (Event, error) {
	if err := rawjson.Check(raw, maxDepth); err != nil {
		return Event{}, fmt.Errorf("%w: %w", errBadStream, err)
	}
	ev, err := decodeEvent(rawjson.Trim(raw), id)
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", errBadStream, err)
	}
	return ev, nil
}

func decodeEvent(whole []byte, id string) (Event, error) {
	raw, kind := unwrap(whole)
	ev := Event{ID: id, Result: Result{Raw: whole, Kind: kind, ContextID: str(raw, "contextId")}}
	if seq, _, ok := sse.ParseID(id); ok {
		ev.Seq = seq
	}
	var err error
	switch ev.Kind {
	case KindTask, KindMessage:
		ev.Result, err = decodeResult(whole)
	case KindStatus:
		ev.TaskID, ev.Metadata = str(raw, "taskId"), rawjson.Get(raw, "metadata")
		ev.Final, _ = rawjson.Bool(rawjson.Get(raw, "final"))
		err = ev.decodeStatus(rawjson.Get(raw, "status"))
	case KindArtifact:
		ev.TaskID = str(raw, "taskId")
		ev.Artifact = decodeArtifact(rawjson.Get(raw, "artifact"))
		ev.Append, _ = rawjson.Bool(rawjson.Get(raw, "append"))
		ev.LastChunk, _ = rawjson.Bool(rawjson.Get(raw, "lastChunk"))
	default:
		err = fmt.Errorf("an event of kind %q", ev.Kind)
	}
	return ev, err
}

func (r *Result) decodeStatus(status []byte) error {
	name := str(status, "state")
	state, ok := parseState(name)
	if !ok {
		return fmt.Errorf("the server sent the unknown task state %q", name)
	}
	r.State = state
	r.Timestamp = str(status, "timestamp")
	r.Parts = decodeParts(rawjson.Get(rawjson.Get(status, "message"), "parts"))
	return nil
}

// kindOf uses members that only one kind has if "kind" is missing, as some servers leave it out.
func kindOf(raw []byte) Kind {
	if k := str(raw, "kind"); k != "" {
		return Kind(k)
	}
	switch {
	case rawjson.Get(raw, "artifact") != nil:
		return KindArtifact
	case rawjson.Get(raw, "parts") != nil:
		return KindMessage
	case rawjson.Get(raw, "status") != nil && rawjson.Get(raw, "taskId") != nil:
		return KindStatus
	case rawjson.Get(raw, "status") != nil:
		return KindTask
	}
	return ""
}

func decodeArtifact(raw []byte) Artifact {
	return Artifact{ID: str(raw, "artifactId"), Name: str(raw, "name"), Parts: decodeParts(rawjson.Get(raw, "parts"))}
}

func decodeParts(list []byte) []a2a.Part {
	var parts []a2a.Part
	for raw := range rawjson.Elements(list) {
		file := rawjson.Get(raw, "file")
		p := a2a.Part{MediaType: str(file, "mimeType"), Filename: str(file, "name")}
		if file == nil { // as in 1.0
			p.MediaType, p.Filename = str(raw, "mediaType"), str(raw, "filename")
		}
		p.Metadata = rawjson.Get(raw, "metadata")
		switch {
		case rawjson.Get(raw, "text") != nil:
			p.Kind, p.Text = a2a.PartText, str(raw, "text")
		case rawjson.Get(file, "bytes") != nil:
			p.Kind, p.Text = a2a.PartFile, str(file, "bytes")
		case file != nil:
			p.Kind, p.Text = a2a.PartURL, str(file, "uri")
		case rawjson.Get(raw, "raw") != nil:
			p.Kind, p.Text = a2a.PartFile, str(raw, "raw")
		case rawjson.Get(raw, "url") != nil:
			p.Kind, p.Text = a2a.PartURL, str(raw, "url")
		default:
			p.Kind, p.Data = a2a.PartData, rawjson.Get(raw, "data")
		}
		parts = append(parts, p)
	}
	return parts
}

func str(obj []byte, key string) string {
	s, _ := rawjson.String(rawjson.Get(obj, key))
	return s
}
