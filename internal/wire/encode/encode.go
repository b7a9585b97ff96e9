// Package encode writes domain values as JSON: what the generations of the protocol have in common.
// A Form has the differences as data.
//
// Like the codecs it only appends and never fails, and it inserts free-form values byte for byte.
package encode

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Form is how one generation writes tasks and their parts.
type Form struct {
	Task        string // start of a Task, up to the quote of its id
	Message     string // start of a Message, up to its messageId
	User, Agent string // the roles, with quotes
	State       func(a2a.State) string
	Part        func(dst []byte, p *a2a.Part) []byte
	Content     string // name of the parts of a Message; empty: parts
}

// Parent is the task and the context that a message or an event belongs to. Where a member is zero,
// a message keeps its own.
type Parent struct {
	Task    a2a.ID
	Context string
}

// Append appends open, which starts the event, and the members taskId and contextId, which every
// event needs.
func (p Parent) Append(dst []byte, open string) []byte {
	dst = ID(append(append(dst, open...), `"taskId":"`...), p.Task)
	return rawjson.AppendString(append(dst, `","contextId":`...), p.Context)
}

// ID appends an id without quotes.
func ID(dst []byte, id a2a.ID) []byte {
	dst = append(hex.AppendEncode(dst, id[:4]), '-')
	dst = append(hex.AppendEncode(dst, id[4:6]), '-')
	dst = append(hex.AppendEncode(dst, id[6:8]), '-')
	dst = append(hex.AppendEncode(dst, id[8:10]), '-')
	return hex.AppendEncode(dst, id[10:])
}

// Reply returns the direct reply of a task, or nil. It does not name the task, which its client
// does not know.
func Reply(t *a2a.Task) *a2a.Message {
	if !t.Replied || t.Status.Message == nil {
		return nil
	}
	m := *t.Status.Message
	m.TaskID, m.ContextID = "", t.ContextID
	return &m
}

// AppendTask appends a Task, with its artifacts if it has any.
func (f *Form) AppendTask(dst []byte, t *a2a.Task) []byte {
	return f.appendTask(dst, t, len(t.Artifacts) > 0)
}

// AppendPage appends the result of ListTasks. Tasks have the member artifacts, even if empty,
// exactly if artifacts is set.
func (f *Form) AppendPage(dst []byte, p *a2a.Page, artifacts bool) []byte {
	dst = append(f.AppendTasks(append(dst, `{"tasks":`...), p, artifacts), `,"totalSize":`...)
	dst = strconv.AppendInt(dst, int64(p.Total), 10)
	dst = strconv.AppendInt(append(dst, `,"pageSize":`...), int64(p.PageSize), 10)
	dst = rawjson.AppendString(append(dst, `,"nextPageToken":`...), p.NextToken)
	return append(dst, '}')
}

// AppendTasks appends the list of a page's tasks.
func (f *Form) AppendTasks(dst []byte, p *a2a.Page, artifacts bool) []byte {
	dst = append(dst, '[')
	for i := range p.Tasks {
		dst = f.appendTask(Comma(dst, i), &p.Tasks[i], artifacts)
	}
	return append(dst, ']')
}

func (f *Form) appendTask(dst []byte, t *a2a.Task, artifacts bool) []byte {
	dst = slices.Grow(dst, TaskSize(t, artifacts))
	at := Parent{Task: t.ID, Context: t.ContextID}
	dst = ID(append(dst, f.Task...), t.ID)
	dst = rawjson.AppendString(append(dst, `","contextId":`...), t.ContextID)
	dst = f.AppendStatus(dst, &t.Status, at)
	if artifacts {
		dst = append(dst, `,"artifacts":[`...)
		for i := range t.Artifacts {
			dst = f.appendArtifact(Comma(dst, i), &t.Artifacts[i])
		}
		dst = append(dst, ']')
	}
	if len(t.History) > 0 {
		dst = append(dst, `,"history":[`...)
		for i := range t.History {
			dst = f.AppendMessage(Comma(dst, i), &t.History[i], at)
		}
		dst = append(dst, ']')
	}
	dst = Raw(dst, `,"metadata":`, t.Metadata)
	return append(dst, '}')
}

// AppendStatus appends a comma and the member "status" of a task or an event.
func (f *Form) AppendStatus(dst []byte, s *a2a.Status, at Parent) []byte {
	dst = append(append(dst, `,"status":{"state":"`...), f.State(s.State)...)
	dst = append(dst, '"')
	if s.Message != nil {
		dst = f.AppendMessage(append(dst, `,"message":`...), s.Message, at)
	}
	if !s.Time.IsZero() {
		dst = appendTime(append(dst, `,"timestamp":`...), s.Time)
	}
	return append(dst, '}')
}

func appendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, `"2006-01-02T15:04:05.000Z"`)
}

// AppendMessage appends a Message. at is the task and context that it belongs to, if any.
func (f *Form) AppendMessage(dst []byte, m *a2a.Message, at Parent) []byte {
	dst = rawjson.AppendString(append(dst, f.Message...), m.ID)
	if m.Role == a2a.RoleUser {
		dst = append(append(dst, `,"role":`...), f.User...)
	} else {
		dst = append(append(dst, `,"role":`...), f.Agent...)
	}
	dst = f.appendParts(dst, cmp.Or(f.Content, partsMember), m.Parts)
	if !at.Task.IsZero() {
		dst = append(ID(append(dst, `,"taskId":"`...), at.Task), '"')
	} else {
		dst = Text(dst, `,"taskId":`, m.TaskID)
	}
	dst = Text(dst, `,"contextId":`, cmp.Or(at.Context, m.ContextID))
	dst = Strings(dst, `,"referenceTaskIds":`, m.ReferenceTaskIDs)
	dst = Strings(dst, `,"extensions":`, m.Extensions)
	dst = Raw(dst, `,"metadata":`, m.Metadata)
	return append(dst, '}')
}

// AppendArtifact appends a comma and the member "artifact" of an event.
func (f *Form) AppendArtifact(dst []byte, a *a2a.Artifact) []byte {
	return f.appendArtifact(append(dst, `,"artifact":`...), a)
}

func (f *Form) appendArtifact(dst []byte, a *a2a.Artifact) []byte {
	dst = rawjson.AppendString(append(dst, `{"artifactId":`...), a.ID)
	dst = Text(dst, `,"name":`, a.Name)
	dst = Text(dst, `,"description":`, a.Description)
	dst = f.appendParts(dst, partsMember, a.Parts)
	dst = Strings(dst, `,"extensions":`, a.Extensions)
	dst = Raw(dst, `,"metadata":`, a.Metadata)
	return append(dst, '}')
}

const partsMember = "parts"

func (f *Form) appendParts(dst []byte, member string, parts []a2a.Part) []byte {
	dst = append(append(append(dst, `,"`...), member...), `":[`...)
	for i := range parts {
		dst = f.Part(Comma(dst, i), &parts[i])
	}
	return append(dst, ']')
}

// Text appends key and text, unless the text is empty.
func Text(dst []byte, key, text string) []byte {
	if text == "" {
		return dst
	}
	return rawjson.AppendString(append(dst, key...), text)
}

// Raw appends key and value, unless the value is absent.
func Raw(dst []byte, key string, v a2a.Raw) []byte {
	if len(v) == 0 {
		return dst
	}
	return append(append(dst, key...), v...)
}

// Strings appends key and list, unless the list is empty.
func Strings(dst []byte, key string, list []string) []byte {
	if len(list) == 0 {
		return dst
	}
	return List(append(dst, key...), list)
}

// List appends a list of strings, even if it is empty.
func List(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		dst = rawjson.AppendString(Comma(dst, i), s)
	}
	return append(dst, ']')
}

// Comma appends a comma before all elements except the first.
func Comma(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}

// PushConfigs appends a page of webhooks in ProtoJSON. one appends one of them.
func PushConfigs(dst []byte, taskID string, p *a2a.PushPage,
	one func(dst []byte, taskID string, c *a2a.PushConfig) []byte) []byte {
	dst = append(dst, `{"configs":[`...)
	for i := range p.Configs {
		dst = one(Comma(dst, i), taskID, &p.Configs[i])
	}
	return append(rawjson.AppendString(append(dst, `],"nextPageToken":`...), p.NextToken), '}')
}
