package vocab

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Limits of one event.
const (
	maxDepth = 64
	maxParts = 100
	maxID    = 256
)

// Decoder reads the events of one run, in order. It is not safe for concurrent use.
type Decoder struct {
	TaskID    string
	ContextID string
	Prefix    string // of the ids that it chooses: the same on every attempt, different on every turn

	made     int    // ids so far
	artifact string // id of the newest artifact
}

// Decode reads one event. The event refers to data. The error names the invalid member by its path; no part of such an
// event may be used.
func (d *Decoder) Decode(data []byte) (a2a.Event, error) {
	if err := rawjson.Check(data, maxDepth); err != nil {
		return nil, err
	}
	r := reader{d: d}
	event := r.event(rawjson.Trim(data))
	if r.err != nil {
		return nil, r.err
	}
	return event, nil
}

func (d *Decoder) newID(kind string) string {
	d.made++
	return d.Prefix + kind + "-" + strconv.Itoa(d.made)
}

// reader walks one event and keeps the first error.
type reader struct {
	d   *Decoder
	err error
}

func (r *reader) fail(path, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s "+format, append([]any{path}, args...)...)
	}
}

// members reads an object. It calls one with each member that is not null; one returns whether it knows the key.
func (r *reader) members(v []byte, path string, one func(key, path string, v []byte) bool) {
	if rawjson.KindOf(v) != rawjson.KindObject {
		r.fail(path, "must be an object")
		return
	}
	for k, v := range rawjson.Members(v) {
		key := string(k)
		if rawjson.KindOf(v) == rawjson.KindNull && key != "data" && key != "checkpoint" && key != "result" {
			continue
		}
		if !one(key, path+"."+key, v) {
			r.fail(path+"."+key, "is unknown")
		}
	}
}

func (r *reader) event(v []byte) (event a2a.Event) {
	if rawjson.KindOf(v) != rawjson.KindObject {
		r.fail("the event", "must be an object")
		return nil
	}
	n := 0
	for k, v := range rawjson.Members(v) {
		n++
		switch string(k) {
		case "statusUpdate":
			event = r.statusUpdate(v)
		case "artifactUpdate":
			event = r.artifactUpdate(v)
		case "message":
			m := r.message(v, "message")
			event = &m
		case "checkpoint":
			event = &a2a.Checkpoint{Body: v}
		case "step":
			event = r.step(v)
		case "wait":
			event = r.wait(v)
		case "call":
			event = r.call(v)
		case "usage":
			event = r.usage(v)
		case "task":
			r.fail("task", "is kept by the server; report statusUpdate and artifactUpdate")
		default:
			r.fail(string(k),
				"is unknown; an event is a statusUpdate, artifactUpdate, message, checkpoint, step, wait, call "+
					"or usage")
		}
	}
	if n != 1 {
		r.fail("the event", "must have exactly one of the members statusUpdate, artifactUpdate, message, "+
			"checkpoint, step, wait, call and usage")
	}
	return event
}

func (r *reader) statusUpdate(v []byte) a2a.Event {
	u := &a2a.StatusUpdate{}
	r.members(v, "statusUpdate", func(key, path string, v []byte) bool {
		switch key {
		case "status":
			r.status(v, path, &u.Status)
		case "metadata":
			u.Metadata = r.object(v, path)
		case "taskId":
			r.same(v, path, r.d.TaskID)
		case "contextId":
			r.same(v, path, r.d.ContextID)
		default:
			return false
		}
		return true
	})
	if u.Status.State == a2a.StateNone {
		r.fail("statusUpdate.status.state", "is missing")
	}
	return u
}

func (r *reader) status(v []byte, path string, s *a2a.Status) {
	r.members(v, path, func(key, path string, v []byte) bool {
		switch key {
		case "state":
			s.State = r.state(v, path)
		case "message":
			m := r.message(v, path)
			s.Message = &m
		case "timestamp":
			r.text(v, path)
		default:
			return false
		}
		return true
	})
}

func (r *reader) state(v []byte, path string) a2a.State {
	name := r.text(v, path)
	s, ok := stateByName[name]
	if !ok {
		s, ok = a2a.ParseState(name)
	}
	switch {
	case !ok:
		r.fail(path, "%q is not a state; one is TASK_STATE_COMPLETED", name)
	case s == a2a.StateSubmitted || s == a2a.StateCanceled:
		r.fail(path, "%q is not for an agent to set", name)
	}
	return s
}

func (r *reader) artifactUpdate(v []byte) a2a.Event {
	u := &a2a.ArtifactUpdate{}
	r.members(v, "artifactUpdate", func(key, path string, v []byte) bool {
		switch key {
		case "artifact":
			r.artifact(v, path, &u.Artifact)
		case "append":
			u.Append = r.truth(v, path)
		case "lastChunk":
			u.LastChunk = r.truth(v, path)
		case "metadata":
			u.Metadata = r.object(v, path)
		case "taskId":
			r.same(v, path, r.d.TaskID)
		case "contextId":
			r.same(v, path, r.d.ContextID)
		default:
			return false
		}
		return true
	})
	if len(u.Artifact.Parts) == 0 {
		r.fail("artifactUpdate.artifact.parts", "must have at least one part")
	}
	if r.err != nil {
		return nil
	}
	switch {
	case u.Artifact.ID != "":
	case u.Append && r.d.artifact != "":
		u.Artifact.ID = r.d.artifact
	default:
		u.Artifact.ID = r.d.newID("artifact")
	}
	r.d.artifact = u.Artifact.ID
	return u
}

func (r *reader) artifact(v []byte, path string, a *a2a.Artifact) {
	r.members(v, path, func(key, path string, v []byte) bool {
		switch key {
		case "artifactId":
			a.ID = r.id(v, path)
		case "name":
			a.Name = r.text(v, path)
		case "description":
			a.Description = r.text(v, path)
		case "parts":
			a.Parts = r.parts(v, path)
		case "metadata":
			a.Metadata = r.object(v, path)
		case "extensions":
			a.Extensions = r.texts(v, path)
		default:
			return false
		}
		return true
	})
}

func (r *reader) message(v []byte, path string) a2a.Message {
	m := a2a.Message{Role: a2a.RoleAgent, TaskID: r.d.TaskID, ContextID: r.d.ContextID}
	top := path
	r.members(v, path, func(key, path string, v []byte) bool {
		switch key {
		case "messageId":
			m.ID = r.id(v, path)
		case "role":
			if role := r.text(v, path); role != "ROLE_AGENT" && role != "agent" {
				r.fail(path, "must be ROLE_AGENT")
			}
		case "parts":
			m.Parts = r.parts(v, path)
		case "metadata":
			m.Metadata = r.object(v, path)
		case "extensions":
			m.Extensions = r.texts(v, path)
		case "referenceTaskIds":
			m.ReferenceTaskIDs = r.texts(v, path)
		case "taskId":
			r.same(v, path, r.d.TaskID)
		case "contextId":
			r.same(v, path, r.d.ContextID)
		default:
			return false
		}
		return true
	})
	if len(m.Parts) == 0 {
		r.fail(top+".parts", "must have at least one part")
	}
	if m.ID == "" && r.err == nil {
		m.ID = r.d.newID("message")
	}
	return m
}

func (r *reader) parts(v []byte, path string) []a2a.Part {
	if rawjson.KindOf(v) != rawjson.KindArray {
		r.fail(path, "must be an array")
		return nil
	}
	var parts []a2a.Part
	for e := range rawjson.Elements(v) {
		if len(parts) == maxParts {
			r.fail(path, "has more than %d parts", maxParts)
			return nil
		}
		parts = append(parts, r.part(e, path+"["+strconv.Itoa(len(parts))+"]"))
	}
	return parts
}

func (r *reader) part(v []byte, path string) a2a.Part {
	var p a2a.Part
	contents := 0
	content := func(k a2a.PartKind, text string) {
		contents++
		p.Kind, p.Text = k, text
	}
	top := path
	r.members(v, path, func(key, path string, v []byte) bool {
		switch key {
		case "text":
			content(a2a.PartText, r.text(v, path))
		case "raw":
			content(a2a.PartFile, r.base64(v, path))
		case "url":
			content(a2a.PartURL, r.text(v, path))
		case "data":
			content(a2a.PartData, "")
			p.Data = v
		case "mediaType":
			p.MediaType = r.text(v, path)
		case "filename":
			p.Filename = r.text(v, path)
		case "metadata":
			p.Metadata = r.object(v, path)
		default:
			return false
		}
		return true
	})
	if contents != 1 {
		r.fail(top, "must have exactly one of text, raw, url and data")
	}
	return p
}

// base64 accepts the four usual forms and returns the standard one with padding.
func (r *reader) base64(v []byte, path string) string {
	s := r.text(v, path)
	for _, enc := range []*base64.Encoding{
		base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding,
	} {
		if b, err := enc.DecodeString(s); err == nil {
			return base64.StdEncoding.EncodeToString(b)
		}
	}
	r.fail(path, "must be base64")
	return ""
}

func (r *reader) text(v []byte, path string) string {
	s, ok := rawjson.String(v)
	if !ok {
		r.fail(path, "must be a string")
	}
	return s
}

func (r *reader) texts(v []byte, path string) []string {
	if rawjson.KindOf(v) != rawjson.KindArray {
		r.fail(path, "must be an array of strings")
		return nil
	}
	var out []string
	for e := range rawjson.Elements(v) {
		out = append(out, r.text(e, path+"["+strconv.Itoa(len(out))+"]"))
	}
	return out
}

func (r *reader) id(v []byte, path string) string {
	s := r.text(v, path)
	switch {
	case len(s) > maxID:
		r.fail(path, "is longer than %d bytes", maxID)
	case strings.ContainsRune(s, 0):
		r.fail(path, "must not contain a NUL")
	}
	return s
}

// same refuses an id that differs from the run's: the event belongs to another task.
func (r *reader) same(v []byte, path, want string) {
	if s := r.text(v, path); s != "" && s != want {
		r.fail(path, "is not the one of this run")
	}
}

func (r *reader) truth(v []byte, path string) bool {
	b, ok := rawjson.Bool(v)
	if !ok {
		r.fail(path, "must be true or false")
	}
	return b
}

func (r *reader) object(v []byte, path string) a2a.Raw {
	if rawjson.KindOf(v) != rawjson.KindObject {
		r.fail(path, "must be an object")
	}
	return v
}
