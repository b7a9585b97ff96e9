package v1

import (
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// form is the form of 1.0: the name of the member tells what a value is, and enumerations have
// their ProtoJSON names.
var form = encode.Form{
	Task: `{"id":"`, Message: `{"messageId":`, User: `"ROLE_USER"`, Agent: `"ROLE_AGENT"`, State: stateName,
	Part: appendPart,
}

// AppendTask appends a bare Task.
func (Codec) AppendTask(dst []byte, t *a2a.Task) []byte { return form.AppendTask(dst, t) }

// AppendSent appends a SendMessageResponse.
func (Codec) AppendSent(dst []byte, t *a2a.Task) []byte { return appendSnapshot(dst, t) }

// AppendSnapshot appends a StreamResponse.
func (Codec) AppendSnapshot(dst []byte, t *a2a.Task) []byte { return appendSnapshot(dst, t) }

func appendSnapshot(dst []byte, t *a2a.Task) []byte {
	if m := encode.Reply(t); m != nil {
		return Codec{}.AppendReply(dst, m)
	}
	return append(form.AppendTask(append(dst, `{"task":`...), t), '}')
}

// AppendReply appends a SendMessageResponse.
func (Codec) AppendReply(dst []byte, m *a2a.Message) []byte {
	return appendReply(dst, m, encode.Parent{})
}

func appendReply(dst []byte, m *a2a.Message, at encode.Parent) []byte {
	return append(form.AppendMessage(append(dst, `{"message":`...), m, at), '}')
}

// AppendEvent appends a StreamResponse. It does not show whether the stream ends with it.
func (Codec) AppendEvent(dst []byte, e *a2a.Entry, _ bool) []byte {
	dst = slices.Grow(dst, encode.EventSize(e))
	at := encode.Parent{Task: e.TaskID, Context: e.ContextID}
	switch ev := e.Event.(type) {
	case *a2a.StatusUpdate:
		dst = at.Append(dst, `{"statusUpdate":{`)
		dst = form.AppendStatus(dst, &ev.Status, at)
		dst = encode.Raw(dst, `,"metadata":`, ev.Metadata)
		return append(dst, "}}"...)
	case *a2a.ArtifactUpdate:
		dst = at.Append(dst, `{"artifactUpdate":{`)
		dst = form.AppendArtifact(dst, &ev.Artifact)
		if ev.Append {
			dst = append(dst, `,"append":true`...)
		}
		if ev.LastChunk {
			dst = append(dst, `,"lastChunk":true`...)
		}
		dst = encode.Raw(dst, `,"metadata":`, ev.Metadata)
		return append(dst, "}}"...)
	case *a2a.Message:
		return appendReply(dst, ev, encode.Parent{Context: e.ContextID})
	}
	return append(dst, "null"...) // a checkpoint, which is never sent
}

// AppendPage appends a ListTasksResponse.
func (Codec) AppendPage(dst []byte, p *a2a.Page, artifacts bool) []byte {
	return form.AppendPage(dst, p, artifacts)
}

// AppendPushConfig appends a TaskPushNotificationConfig without token and credentials. 0.3 can have
// several schemes: the first one is written.
func (Codec) AppendPushConfig(dst []byte, taskID string, c *a2a.PushConfig) []byte {
	dst = rawjson.AppendString(append(dst, `{"taskId":`...), taskID)
	dst = rawjson.AppendString(append(dst, `,"url":`...), c.URL)
	dst = encode.Text(dst, `,"id":`, c.ID)
	if len(c.Schemes) > 0 {
		dst = append(rawjson.AppendString(append(dst, `,"authentication":{"scheme":`...), c.Schemes[0]), '}')
	}
	return append(dst, '}')
}

// AppendPushConfigs appends a ListTaskPushNotificationConfigsResponse.
func (c Codec) AppendPushConfigs(dst []byte, taskID string, p *a2a.PushPage) []byte {
	return encode.PushConfigs(dst, taskID, p, c.AppendPushConfig)
}

// AppendDeleted appends an Empty.
func (Codec) AppendDeleted(dst []byte) []byte { return append(dst, "{}"...) }

func appendPart(dst []byte, p *a2a.Part) []byte {
	switch p.Kind {
	case a2a.PartFile:
		dst = append(append(append(dst, `{"raw":"`...), p.Text...), '"')
	case a2a.PartURL:
		dst = rawjson.AppendString(append(dst, `{"url":`...), p.Text)
	case a2a.PartData:
		if dst = append(dst, `{"data":`...); len(p.Data) > 0 {
			dst = append(dst, p.Data...)
		} else {
			dst = append(dst, "null"...)
		}
	default:
		dst = rawjson.AppendString(append(dst, `{"text":`...), p.Text)
	}
	dst = encode.Text(dst, `,"filename":`, p.Filename)
	dst = encode.Text(dst, `,"mediaType":`, p.MediaType)
	dst = encode.Raw(dst, `,"metadata":`, p.Metadata)
	return append(dst, '}')
}
