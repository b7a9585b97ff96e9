package v03

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// AppendTask appends a bare Task.
func (Codec) AppendTask(dst []byte, t *a2a.Task) []byte { return appendTask(dst, t, true) }

// AppendSent appends a bare Task.
func (Codec) AppendSent(dst []byte, t *a2a.Task) []byte { return appendTask(dst, t, true) }

// AppendSnapshot appends a bare Task.
func (Codec) AppendSnapshot(dst []byte, t *a2a.Task) []byte { return appendTask(dst, t, true) }

// AppendReply appends a bare Message.
func (Codec) AppendReply(dst []byte, m *a2a.Message) []byte { return appendMessage(dst, m, place{}) }

// AppendEvent appends a status-update, an artifact-update or a bare Message.
func (Codec) AppendEvent(dst []byte, e *a2a.Entry, last bool) []byte {
	at := place{task: e.TaskID, context: e.ContextID}
	switch ev := e.Event.(type) {
	case *a2a.StatusUpdate:
		dst = slices.Grow(dst, 256+len(at.context)+len(ev.Metadata)+statusSize(&ev.Status))
		dst = append(dst, `{"kind":"status-update"`...)
		dst = at.append(dst)
		dst = appendStatus(dst, &ev.Status, at)
		dst = strconv.AppendBool(append(dst, `,"final":`...), last)
		dst = appendRaw(dst, `,"metadata":`, ev.Metadata)
		return append(dst, '}')
	case *a2a.ArtifactUpdate:
		dst = slices.Grow(dst, 256+len(at.context)+len(ev.Metadata)+artifactSize(&ev.Artifact))
		dst = append(dst, `{"kind":"artifact-update"`...)
		dst = at.append(dst)
		dst = appendArtifact(append(dst, `,"artifact":`...), &ev.Artifact)
		dst = strconv.AppendBool(append(dst, `,"append":`...), ev.Append)
		dst = strconv.AppendBool(append(dst, `,"lastChunk":`...), ev.LastChunk)
		dst = appendRaw(dst, `,"metadata":`, ev.Metadata)
		return append(dst, '}')
	case *a2a.Message:
		return appendMessage(dst, ev, place{context: e.ContextID})
	}
	return append(dst, "null"...) // a checkpoint, which is not on the wire
}

// AppendPage appends the result of tasks/list (L-01). For clients that know its members in snake case they are there twice (L-24):
// without its page token such a client would take the first page for all there is.
func (c Codec) AppendPage(dst []byte, p *a2a.Page, artifacts bool) []byte {
	dst = append(dst, `{"tasks":[`...)
	for i := range p.Tasks {
		dst = appendComma(dst, i)
		dst = appendTask(dst, &p.Tasks[i], artifacts)
	}
	dst = strconv.AppendInt(append(dst, `],"totalSize":`...), int64(p.Total), 10)
	dst = strconv.AppendInt(append(dst, `,"pageSize":`...), int64(p.PageSize), 10)
	dst = rawjson.AppendString(append(dst, `,"nextPageToken":`...), p.NextToken)
	if c.Lenient {
		dst = strconv.AppendInt(append(dst, `,"total_size":`...), int64(p.Total), 10)
		dst = strconv.AppendInt(append(dst, `,"page_size":`...), int64(p.PageSize), 10)
		dst = rawjson.AppendString(append(dst, `,"next_page_token":`...), p.NextToken)
	}
	return append(dst, '}')
}

// AppendPushConfig appends a TaskPushNotificationConfig without token and credentials.
func (Codec) AppendPushConfig(dst []byte, taskID string, c *a2a.PushConfig) []byte {
	dst = rawjson.AppendString(append(dst, `{"taskId":`...), taskID)
	dst = append(dst, `,"pushNotificationConfig":{`...)
	if c.ID != "" {
		dst = append(rawjson.AppendString(append(dst, `"id":`...), c.ID), ',')
	}
	dst = rawjson.AppendString(append(dst, `"url":`...), c.URL)
	if len(c.Schemes) > 0 {
		dst = append(appendStrings(append(dst, `,"authentication":{`...), `"schemes":`, c.Schemes), '}')
	}
	return append(dst, "}}"...)
}

// AppendPushConfigs appends a bare array.
func (c Codec) AppendPushConfigs(dst []byte, taskID string, cs []a2a.PushConfig) []byte {
	dst = append(dst, '[')
	for i := range cs {
		dst = c.AppendPushConfig(appendComma(dst, i), taskID, &cs[i])
	}
	return append(dst, ']')
}

// AppendDeleted appends null.
func (Codec) AppendDeleted(dst []byte) []byte { return append(dst, "null"...) }

// place is the task and the context that a message or an event belongs to. Zero
// members leave a message with what it has itself.
type place struct {
	task    a2a.ID
	context string
}

// append appends the members taskId and contextId, without which no event is valid.
func (p place) append(dst []byte) []byte {
	dst = appendID(append(dst, `,"taskId":"`...), p.task)
	return rawjson.AppendString(append(dst, `","contextId":`...), p.context)
}

func appendID(dst []byte, id a2a.ID) []byte {
	dst = append(hex.AppendEncode(dst, id[:4]), '-')
	dst = append(hex.AppendEncode(dst, id[4:6]), '-')
	dst = append(hex.AppendEncode(dst, id[6:8]), '-')
	dst = append(hex.AppendEncode(dst, id[8:10]), '-')
	return hex.AppendEncode(dst, id[10:])
}

func appendTask(dst []byte, t *a2a.Task, artifacts bool) []byte {
	dst = slices.Grow(dst, taskSize(t, artifacts))
	at := place{task: t.ID, context: t.ContextID}
	dst = appendID(append(dst, `{"kind":"task","id":"`...), t.ID)
	dst = rawjson.AppendString(append(dst, `","contextId":`...), t.ContextID)
	dst = appendStatus(dst, &t.Status, at)
	if artifacts && len(t.Artifacts) > 0 {
		dst = append(dst, `,"artifacts":[`...)
		for i := range t.Artifacts {
			dst = appendArtifact(appendComma(dst, i), &t.Artifacts[i])
		}
		dst = append(dst, ']')
	}
	if len(t.History) > 0 {
		dst = append(dst, `,"history":[`...)
		for i := range t.History {
			dst = appendMessage(appendComma(dst, i), &t.History[i], at)
		}
		dst = append(dst, ']')
	}
	dst = appendRaw(dst, `,"metadata":`, t.Metadata)
	return append(dst, '}')
}

// appendStatus appends the member "status".
func appendStatus(dst []byte, s *a2a.Status, at place) []byte {
	dst = append(append(dst, `,"status":{"state":"`...), stateName(s.State)...)
	dst = append(dst, '"')
	if s.Message != nil {
		dst = appendMessage(append(dst, `,"message":`...), s.Message, at)
	}
	if !s.Time.IsZero() {
		dst = appendTime(append(dst, `,"timestamp":`...), s.Time)
	}
	return append(dst, '}')
}

func appendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, `"2006-01-02T15:04:05.000Z"`)
}

func stateName(s a2a.State) string {
	switch s {
	case a2a.StateSubmitted:
		return "submitted"
	case a2a.StateWorking:
		return "working"
	case a2a.StateInputRequired:
		return "input-required"
	case a2a.StateAuthRequired:
		return "auth-required"
	case a2a.StateCompleted:
		return "completed"
	case a2a.StateFailed:
		return "failed"
	case a2a.StateCanceled:
		return "canceled"
	case a2a.StateRejected:
		return "rejected"
	}
	return "unknown"
}

func appendMessage(dst []byte, m *a2a.Message, at place) []byte {
	dst = rawjson.AppendString(append(dst, `{"kind":"message","messageId":`...), m.ID)
	if m.Role == a2a.RoleUser {
		dst = append(dst, `,"role":"user"`...)
	} else {
		dst = append(dst, `,"role":"agent"`...)
	}
	dst = appendParts(dst, m.Parts)
	if !at.task.IsZero() {
		dst = append(appendID(append(dst, `,"taskId":"`...), at.task), '"')
	} else if m.TaskID != "" {
		dst = rawjson.AppendString(append(dst, `,"taskId":`...), m.TaskID)
	}
	if context := cmp.Or(at.context, m.ContextID); context != "" {
		dst = rawjson.AppendString(append(dst, `,"contextId":`...), context)
	}
	dst = appendStrings(dst, `,"referenceTaskIds":`, m.ReferenceTaskIDs)
	dst = appendStrings(dst, `,"extensions":`, m.Extensions)
	dst = appendRaw(dst, `,"metadata":`, m.Metadata)
	return append(dst, '}')
}

func appendArtifact(dst []byte, a *a2a.Artifact) []byte {
	dst = rawjson.AppendString(append(dst, `{"artifactId":`...), a.ID)
	if a.Name != "" {
		dst = rawjson.AppendString(append(dst, `,"name":`...), a.Name)
	}
	if a.Description != "" {
		dst = rawjson.AppendString(append(dst, `,"description":`...), a.Description)
	}
	dst = appendParts(dst, a.Parts)
	dst = appendStrings(dst, `,"extensions":`, a.Extensions)
	dst = appendRaw(dst, `,"metadata":`, a.Metadata)
	return append(dst, '}')
}

// appendParts appends the member "parts".
func appendParts(dst []byte, parts []a2a.Part) []byte {
	dst = append(dst, `,"parts":[`...)
	for i := range parts {
		dst = appendPart(appendComma(dst, i), &parts[i])
	}
	return append(dst, ']')
}

func appendPart(dst []byte, p *a2a.Part) []byte {
	wrapped := false
	switch p.Kind {
	case a2a.PartFile:
		dst = append(dst, `{"kind":"file","file":{"bytes":"`...)
		dst = append(append(dst, p.Text...), '"')
		dst = appendFile(dst, p)
	case a2a.PartURL:
		dst = rawjson.AppendString(append(dst, `{"kind":"file","file":{"uri":`...), p.Text)
		dst = appendFile(dst, p)
	case a2a.PartData:
		dst = append(dst, `{"kind":"data","data":`...)
		switch rawjson.KindOf(p.Data) {
		case rawjson.KindObject:
			dst = append(dst, p.Data...)
		case rawjson.KindNone:
			dst = append(dst, "{}"...)
		default:
			wrapped = true
			dst = append(append(append(dst, `{"value":`...), p.Data...), '}')
		}
	default:
		dst = rawjson.AppendString(append(dst, `{"kind":"text","text":`...), p.Text)
	}
	return append(appendPartMetadata(dst, p, wrapped), '}')
}

// appendFile ends the member "file".
func appendFile(dst []byte, p *a2a.Part) []byte {
	if p.MediaType != "" {
		dst = rawjson.AppendString(append(dst, `,"mimeType":`...), p.MediaType)
	}
	if p.Filename != "" {
		dst = rawjson.AppendString(append(dst, `,"name":`...), p.Filename)
	}
	return append(dst, '}')
}

// appendRaw appends key and value unless the value is absent.
func appendRaw(dst []byte, key string, v a2a.Raw) []byte {
	if len(v) == 0 {
		return dst
	}
	return append(append(dst, key...), v...)
}

// appendStrings appends key and list unless the list is empty.
func appendStrings(dst []byte, key string, list []string) []byte {
	if len(list) == 0 {
		return dst
	}
	return appendList(append(dst, key...), list)
}

func appendList(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		dst = rawjson.AppendString(appendComma(dst, i), s)
	}
	return append(dst, ']')
}

// appendComma separates element i from the one before it.
func appendComma(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}
