package v03

import (
	"encoding/base64"
	"slices"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// Forms of ProtoJSON, with the old and with the later name of a message's content.
var (
	protoForm = encode.Form{
		Task: `{"id":"`, Message: `{"messageId":`, User: `"ROLE_USER"`, Agent: `"ROLE_AGENT"`,
		State: protoState, Part: appendProtoPart, Content: "content",
	}
	protoFormParts = func() encode.Form { f := protoForm; f.Content = "parts"; return f }()
)

func (c Proto) form() *encode.Form {
	if c.Parts {
		return &protoFormParts
	}
	return &protoForm
}

func protoState(s a2a.State) string { return protoStates[max(slices.Index(protoStateOrder[:], s), 0)] }

func appendProtoPart(dst []byte, p *a2a.Part) []byte {
	wrapped := false
	switch p.Kind {
	case a2a.PartFile:
		dst = append(dst, `{"file":{"fileWithBytes":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, []byte(p.Text)) // twice, see fileBytes
		dst = appendFile(append(dst, '"'), p)
	case a2a.PartURL:
		dst = rawjson.AppendString(append(dst, `{"file":{"fileWithUri":`...), p.Text)
		dst = appendFile(dst, p)
	case a2a.PartData:
		dst = append(dst, `{"data":{"data":`...)
		dst, wrapped = appendData(dst, p.Data)
		dst = append(dst, '}')
	default:
		dst = rawjson.AppendString(append(dst, `{"text":`...), p.Text)
	}
	return append(appendPartMetadata(dst, p, wrapped), '}')
}

// AppendTask appends a Task.
func (c Proto) AppendTask(dst []byte, t *a2a.Task) []byte { return c.form().AppendTask(dst, t) }

// AppendSent appends a SendMessageResponse.
func (c Proto) AppendSent(dst []byte, t *a2a.Task) []byte { return c.AppendSnapshot(dst, t) }

// AppendSnapshot appends a StreamResponse.
func (c Proto) AppendSnapshot(dst []byte, t *a2a.Task) []byte {
	if m := encode.Reply(t); m != nil {
		return c.AppendReply(dst, m)
	}
	return append(c.form().AppendTask(append(dst, `{"task":`...), t), '}')
}

// AppendReply appends a SendMessageResponse.
func (c Proto) AppendReply(dst []byte, m *a2a.Message) []byte {
	return append(c.form().AppendMessage(append(dst, `{"message":`...), m, encode.Parent{}), '}')
}

// AppendEvent appends a StreamResponse.
func (c Proto) AppendEvent(dst []byte, e *a2a.Entry, last bool) []byte {
	dst = slices.Grow(dst, encode.EventSize(e))
	at := encode.Parent{Task: e.TaskID, Context: e.ContextID}
	switch ev := e.Event.(type) {
	case *a2a.StatusUpdate:
		dst = at.Append(dst, `{"statusUpdate":{`)
		dst = c.form().AppendStatus(dst, &ev.Status, at)
		if last {
			dst = append(dst, `,"final":true`...)
		}
		dst = encode.Raw(dst, `,"metadata":`, ev.Metadata)
		return append(dst, "}}"...)
	case *a2a.ArtifactUpdate:
		dst = at.Append(dst, `{"artifactUpdate":{`)
		dst = c.form().AppendArtifact(dst, &ev.Artifact)
		if ev.Append {
			dst = append(dst, `,"append":true`...)
		}
		if ev.LastChunk {
			dst = append(dst, `,"lastChunk":true`...)
		}
		dst = encode.Raw(dst, `,"metadata":`, ev.Metadata)
		return append(dst, "}}"...)
	case *a2a.Message:
		return append(c.form().AppendMessage(append(dst, `{"message":`...), ev, encode.Parent{Context: e.ContextID}),
			'}')
	}
	return append(dst, "null"...) // a checkpoint, which is never sent
}

// AppendPage appends a ListTasksResponse.
func (c Proto) AppendPage(dst []byte, p *a2a.Page, artifacts bool) []byte {
	dst = append(c.form().AppendTasks(append(dst, `{"tasks":`...), p, artifacts), `,"totalSize":`...)
	dst = strconv.AppendInt(dst, int64(p.Total), 10)
	return append(rawjson.AppendString(append(dst, `,"nextPageToken":`...), p.NextToken), '}')
}

// AppendPushConfig appends a TaskPushNotificationConfig without token and credentials.
func (Proto) AppendPushConfig(dst []byte, taskID string, cfg *a2a.PushConfig) []byte {
	dst = rawjson.AppendString(append(dst, `{"name":`...), "tasks/"+taskID+"/pushNotificationConfigs/"+cfg.ID)
	return append(appendPushConfig(append(dst, `,"pushNotificationConfig":`...), cfg), '}')
}

// AppendPushConfigs appends a ListTaskPushNotificationConfigResponse.
func (c Proto) AppendPushConfigs(dst []byte, taskID string, p *a2a.PushPage) []byte {
	return encode.PushConfigs(dst, taskID, p, c.AppendPushConfig)
}

// AppendDeleted appends an Empty.
func (Proto) AppendDeleted(dst []byte) []byte { return append(dst, "{}"...) }
