// Package answer reads what A2A servers send to their clients, in 0.3 and in 1.0: results, items of
// streams, errors and cards.
//
// It does not trust what it reads. A value either has the form that the rest of a2ad relies on, or
// there is an error that names the member.
//
// Within that form it is lenient, because servers differ. Members may be in camelCase or
// snake_case, unknown ones are ignored, null counts as absent, a missing kind is inferred, and
// states, roles and parts may be spelled as in either generation. A part of an unknown kind is
// data. Ids of tasks and contexts belong to the server, so they are strings, unlike ours. Free-form
// values are parts of the document, never copies.
package answer

import (
	"fmt"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// MaxDepth is how deep a document may be nested: what a2ad accepts from its own clients, plus
// levels for the envelope and the stream response.
const MaxDepth = 96

// MaxID limits the ids of tasks, contexts, messages and artifacts, in bytes.
const MaxID = 1 << 10

// Task is a snapshot of a task of the server.
type Task struct {
	ID, ContextID string
	Status        a2a.Status // StateNone: unknown
	Artifacts     []a2a.Artifact
	History       []a2a.Message // in the server's order; TaskID is the server's, and may be another task's
	Metadata      a2a.Raw
}

// Item is the result of a send or an item of a stream. Exactly one of Task, Status, Artifact and
// Message is set.
type Item struct {
	Task     *Task
	Status   *a2a.StatusUpdate
	Artifact *a2a.ArtifactUpdate
	Message  *a2a.Message

	TaskID, ContextID string // the server's ids. Some servers omit them from all but the Task
}

// Decode reads the result of a send or an item of a stream. raw has passed rawjson.Check.
func Decode(raw []byte) (Item, error) {
	var r reader
	item := r.item(raw)
	if r.err != nil {
		return Item{}, r.err
	}
	return item, nil
}

// DecodeTask reads the result of a get or a cancel. raw has passed rawjson.Check.
func DecodeTask(raw []byte) (Task, error) {
	var r reader
	if wrapped := member(raw, "task"); wrapped != nil {
		raw = wrapped
	}
	t := r.task(raw, "result")
	return t, r.err
}

// reader keeps the first error.
type reader struct {
	err     error
	stored  bool     // read what DecodeStored reads
	unknown []string // paths, if stored
}

func (r *reader) fail(path, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s "+format, append([]any{path}, args...)...)
	}
}

// members calls one with each member of an object that is not null, by its name in camelCase.
func (r *reader) members(v []byte, path string, one func(key, path string, v []byte)) {
	if rawjson.KindOf(v) != rawjson.KindObject {
		r.fail(path, "must be an object")
		return
	}
	for k, v := range rawjson.Members(v) {
		if key := string(decode.CamelCase(k)); !decode.Absent(v) || key == "data" {
			one(key, path+"."+key, v)
		}
	}
}

// member returns a member that is not null, or nil.
func member(v []byte, name string) []byte {
	for k, v := range rawjson.Members(v) {
		if string(decode.CamelCase(k)) == name && !decode.Absent(v) {
			return v
		}
	}
	return nil
}

func (r *reader) item(raw []byte) (item Item) {
	kind, v := r.kind(raw)
	switch kind {
	case "task":
		t := r.task(v, kind)
		return Item{Task: &t, TaskID: t.ID, ContextID: t.ContextID}
	case "message":
		m := r.message(v, kind)
		return Item{Message: &m, TaskID: r.idOf(v, kind, "taskId"), ContextID: r.idOf(v, kind, "contextId")}
	case "statusUpdate":
		u := &a2a.StatusUpdate{}
		item = Item{Status: u, TaskID: r.idOf(v, kind, "taskId"), ContextID: r.idOf(v, kind, "contextId")}
		r.members(v, kind, func(key, path string, v []byte) {
			switch key {
			case "status":
				u.Status = r.status(v, path)
			case "metadata":
				u.Metadata = r.object(v, path)
			}
		})
		if member(v, "status") == nil {
			r.fail(kind+".status", "is missing")
		}
	case "artifactUpdate":
		u := &a2a.ArtifactUpdate{}
		item = Item{Artifact: u, TaskID: r.idOf(v, kind, "taskId"), ContextID: r.idOf(v, kind, "contextId")}
		r.members(v, kind, func(key, path string, v []byte) {
			switch key {
			case "artifact":
				u.Artifact = r.artifact(v, path)
			case "append":
				u.Append = r.truth(v, path)
			case "lastChunk":
				u.LastChunk = r.truth(v, path)
			case "metadata":
				u.Metadata = r.object(v, path)
			}
		})
		if member(v, "artifact") == nil {
			r.fail(kind+".artifact", "is missing")
		}
	}
	return item
}

// kind returns what an item is, by its name in 1.0, and the item itself. 1.0 wraps an item in a
// member of that name. 0.3 says its kind, or leaves it to be inferred.
func (r *reader) kind(raw []byte) (kind string, v []byte) {
	if rawjson.KindOf(raw) != rawjson.KindObject {
		r.fail("the result", "must be an object")
		return "", nil
	}
	if k := member(raw, "kind"); k != nil {
		name, _ := rawjson.String(k)
		kind, known := map[string]string{
			"task": "task", "message": "message", "status-update": "statusUpdate", "artifact-update": "artifactUpdate",
		}[name]
		if !known {
			r.fail("kind", "%.40q is not one of an answer", name)
		}
		return kind, raw
	}
	for _, name := range []string{"task", "message", "statusUpdate", "artifactUpdate"} {
		if v := member(raw, name); v != nil {
			return name, v
		}
	}
	switch {
	case member(raw, "artifact") != nil:
		return "artifactUpdate", raw
	case member(raw, "parts") != nil:
		return "message", raw
	case member(raw, "status") != nil && member(raw, "taskId") != nil:
		return "statusUpdate", raw
	case member(raw, "status") != nil:
		return "task", raw
	}
	r.fail("the result", "is no task, message, statusUpdate or artifactUpdate")
	return "", nil
}

func (r *reader) task(v []byte, path string) (t Task) {
	r.members(v, path, func(key, path string, v []byte) {
		switch key {
		case "id":
			t.ID = r.id(v, path)
		case "contextId":
			t.ContextID = r.id(v, path)
		case "status":
			t.Status = r.status(v, path)
		case "artifacts":
			r.list(v, path, func(path string, v []byte) { t.Artifacts = append(t.Artifacts, r.artifact(v, path)) })
		case "history":
			r.list(v, path, func(path string, v []byte) {
				m := r.message(v, path)
				if m.Role == 0 {
					r.fail(path+".role", "is missing")
				}
				if !r.stored {
					m.TaskID = r.idOf(v, path, "taskId")
				}
				t.History = append(t.History, m)
			})
		case "metadata":
			t.Metadata = r.object(v, path)
		default:
			r.other(key, path)
		}
	})
	if t.ID == "" {
		r.fail(path+".id", "is missing")
	}
	if member(v, "status") == nil {
		r.fail(path+".status", "is missing")
	}
	return t
}

func (r *reader) status(v []byte, path string) (s a2a.Status) {
	r.members(v, path, func(key, path string, v []byte) {
		switch key {
		case "state":
			s.State = r.state(v, path)
		case "message":
			m := r.message(v, path)
			m.Role = a2a.RoleAgent
			s.Message = &m
		case "timestamp":
			s.Time = r.time(v, path)
		default:
			r.other(key, path)
		}
	})
	return s
}

// states are the states of 1.0, in the order of their numbers.
var states = [...]a2a.State{
	a2a.StateNone, a2a.StateSubmitted, a2a.StateWorking, a2a.StateCompleted, a2a.StateFailed, a2a.StateCanceled,
	a2a.StateInputRequired, a2a.StateRejected, a2a.StateAuthRequired,
}

func (r *reader) state(v []byte, path string) a2a.State {
	if n, ok := rawjson.Int(v); ok && n >= 0 && n < int64(len(states)) {
		return states[n]
	}
	name := r.text(v, path)
	word := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "TASK_STATE_")), "_", "-")
	if s, ok := a2a.ParseState(word); ok || word == "unknown" || word == "unspecified" {
		return s
	}
	r.fail(path, "%.40q is not a state", name)
	return a2a.StateNone
}

func (r *reader) artifact(v []byte, path string) (a a2a.Artifact) {
	top := path
	r.members(v, path, func(key, path string, v []byte) {
		switch key {
		case "artifactId":
			a.ID = r.id(v, path)
		case "name":
			a.Name = r.text(v, path)
		case "description":
			a.Description = r.text(v, path)
		case "parts":
			a.Parts = r.parts(v, path)
		case "extensions":
			a.Extensions = r.texts(v, path)
		case "metadata":
			a.Metadata = r.object(v, path)
		default:
			r.other(key, path)
		}
	})
	if a.ID == "" {
		r.fail(top+".artifactId", "is missing")
	}
	return a
}

// message reads a message. The ids of other tasks in an answer are not ours, and are left out.
func (r *reader) message(v []byte, path string) a2a.Message {
	m := a2a.Message{Role: a2a.RoleAgent}
	if r.stored {
		m.Role = 0
	}
	r.members(v, path, func(key, path string, v []byte) {
		switch {
		case key == "messageId":
			m.ID = r.id(v, path)
		case key == "role":
			m.Role = r.role(v, path)
		case key == "parts":
			m.Parts = r.parts(v, path)
		case key == "extensions":
			m.Extensions = r.texts(v, path)
		case key == "metadata":
			m.Metadata = r.object(v, path)
		case key == "referenceTaskIds" && r.stored:
			m.ReferenceTaskIDs = r.texts(v, path)
		default:
			r.other(key, path)
		}
	})
	return m
}

func (r *reader) role(v []byte, path string) a2a.Role {
	if n, ok := rawjson.Int(v); ok && n == int64(a2a.RoleUser) {
		return a2a.RoleUser
	} else if ok {
		return a2a.RoleAgent
	}
	switch name := r.text(v, path); name {
	case "user", "ROLE_USER":
		return a2a.RoleUser
	case "agent", "ROLE_AGENT":
	case "ROLE_UNSPECIFIED":
		if r.stored {
			return 0
		}
	default:
		r.fail(path, "%.40q is not a role", name)
	}
	return a2a.RoleAgent
}
