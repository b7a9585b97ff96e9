package v03

import (
	"slices"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// form is the form of 0.3: a member kind tells what a value is, and enumerations are short words.
var form = encode.Form{
	Task: `{"kind":"task","id":"`, Message: `{"kind":"message","messageId":`, User: `"user"`, Agent: `"agent"`,
	State: stateName, Part: appendPart,
}

// AppendTask appends a bare Task.
func (Codec) AppendTask(dst []byte, t *a2a.Task) []byte { return form.AppendTask(dst, t) }

// AppendSent appends a bare Task, or the bare Message of a direct reply.
func (Codec) AppendSent(dst []byte, t *a2a.Task) []byte { return appendSent(dst, t) }

// AppendSnapshot appends a bare Task, or the bare Message of a direct reply.
func (Codec) AppendSnapshot(dst []byte, t *a2a.Task) []byte { return appendSent(dst, t) }

func appendSent(dst []byte, t *a2a.Task) []byte {
	if m := encode.Reply(t); m != nil {
		return Codec{}.AppendReply(dst, m)
	}
	return form.AppendTask(dst, t)
}

// AppendReply appends a bare Message.
func (Codec) AppendReply(dst []byte, m *a2a.Message) []byte {
	return form.AppendMessage(dst, m, encode.Parent{})
}

// AppendEvent appends a status-update, an artifact-update or a bare Message.
func (Codec) AppendEvent(dst []byte, e *a2a.Entry, last bool) []byte {
	dst = slices.Grow(dst, encode.EventSize(e))
	at := encode.Parent{Task: e.TaskID, Context: e.ContextID}
	switch ev := e.Event.(type) {
	case *a2a.StatusUpdate:
		dst = at.Append(dst, `{"kind":"status-update",`)
		dst = form.AppendStatus(dst, &ev.Status, at)
		dst = strconv.AppendBool(append(dst, `,"final":`...), last)
		dst = encode.Raw(dst, `,"metadata":`, ev.Metadata)
		return append(dst, '}')
	case *a2a.ArtifactUpdate:
		dst = at.Append(dst, `{"kind":"artifact-update",`)
		dst = form.AppendArtifact(dst, &ev.Artifact)
		dst = strconv.AppendBool(append(dst, `,"append":`...), ev.Append)
		dst = strconv.AppendBool(append(dst, `,"lastChunk":`...), ev.LastChunk)
		dst = encode.Raw(dst, `,"metadata":`, ev.Metadata)
		return append(dst, '}')
	case *a2a.Message:
		return form.AppendMessage(dst, ev, encode.Parent{Context: e.ContextID})
	}
	return append(dst, "null"...) // a checkpoint, which is never sent
}

// AppendPage appends the result of tasks/list (L-01). The members for paging are written in snake_case too (L-24),
// because some clients know only those. Without the page token they would treat the first page as the whole list.
func (c Codec) AppendPage(dst []byte, p *a2a.Page, artifacts bool) []byte {
	dst = form.AppendPage(dst, p, artifacts)
	if !c.Lenient {
		return dst
	}
	dst = strconv.AppendInt(append(dst[:len(dst)-1], `,"total_size":`...), int64(p.Total), 10)
	dst = strconv.AppendInt(append(dst, `,"page_size":`...), int64(p.PageSize), 10)
	dst = rawjson.AppendString(append(dst, `,"next_page_token":`...), p.NextToken)
	return append(dst, '}')
}

// AppendPushConfig appends a TaskPushNotificationConfig without token and credentials.
func (Codec) AppendPushConfig(dst []byte, taskID string, c *a2a.PushConfig) []byte {
	dst = rawjson.AppendString(append(dst, `{"taskId":`...), taskID)
	return append(appendPushConfig(append(dst, `,"pushNotificationConfig":`...), c), '}')
}

func appendPushConfig(dst []byte, c *a2a.PushConfig) []byte {
	dst = rawjson.AppendString(append(dst, `{"url":`...), c.URL)
	dst = encode.Text(dst, `,"id":`, c.ID)
	if len(c.Schemes) > 0 {
		dst = append(encode.Strings(dst, `,"authentication":{"schemes":`, c.Schemes), '}')
	}
	return append(dst, '}')
}

// AppendPushConfigs appends a bare array. Clients of 0.3 do not ask for pages.
func (c Codec) AppendPushConfigs(dst []byte, taskID string, p *a2a.PushPage) []byte {
	dst = append(dst, '[')
	for i := range p.Configs {
		dst = c.AppendPushConfig(encode.Comma(dst, i), taskID, &p.Configs[i])
	}
	return append(dst, ']')
}

// AppendDeleted appends null.
func (Codec) AppendDeleted(dst []byte) []byte { return append(dst, "null"...) }

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
		dst, wrapped = appendData(append(dst, `{"kind":"data","data":`...), p.Data)
	default:
		dst = rawjson.AppendString(append(dst, `{"kind":"text","text":`...), p.Text)
	}
	return append(appendPartMetadata(dst, p, wrapped), '}')
}

// appendData appends data as an object, and wraps data that is none.
func appendData(dst []byte, data a2a.Raw) (_ []byte, wrapped bool) {
	switch rawjson.KindOf(data) {
	case rawjson.KindObject:
		return append(dst, data...), false
	case rawjson.KindNone:
		return append(dst, "{}"...), false
	}
	return append(append(append(dst, `{"value":`...), data...), '}'), true
}

// appendFile appends the rest of the member "file".
func appendFile(dst []byte, p *a2a.Part) []byte {
	dst = encode.Text(dst, `,"mimeType":`, p.MediaType)
	dst = encode.Text(dst, `,"name":`, p.Filename)
	return append(dst, '}')
}
