package v1

import (
	"crypto/sha256"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// A resumed stream starts with a Task, as every stream of 1.0 does. No stream repeats a status,
// because clients would add its message to the history twice.
var streamRules = a2a.StreamRules{ResumeAsTask: true}

func (d *decoder) send(params []byte, stream bool) a2a.Op {
	var message, configuration, metadata []byte
	for key, v := range rawjson.Members(params) {
		switch string(key) {
		case "message":
			message = v
		case "configuration":
			configuration = v
		case "metadata":
			metadata = v
		}
	}
	d.Need("message", message)
	op := &a2a.SendMessage{StreamRules: streamRules, Stream: stream, Blocking: true, Digest: sha256.Sum256(params)}
	if d.IsObject("message", message) {
		op.Message = d.message(message)
	}
	if d.IsObject("configuration", configuration) {
		d.configuration(op, configuration)
	}
	op.Metadata = d.Raw("metadata", metadata)
	return op
}

// configuration reads SendMessageConfiguration. By default the caller waits.
func (d *decoder) configuration(op *a2a.SendMessage, obj []byte) {
	d.Enter("configuration", -1)
	for key, v := range rawjson.Members(obj) {
		switch string(d.Key(obj, key)) {
		case "returnImmediately":
			op.Blocking = !d.Bool("returnImmediately", v, false)
		case "historyLength":
			op.HistoryLength = d.HistoryLength(v)
		case "acceptedOutputModes":
			op.AcceptedModes = d.Strings("acceptedOutputModes", v, decode.MaxName)
		case "taskPushNotificationConfig":
			if d.IsObject("taskPushNotificationConfig", v) {
				op.Push = d.inlinePush(v)
			}
		}
	}
	d.Leave()
}

// inlinePush reads a webhook for the task of the message. The task and the tenant in it are
// ignored.
func (d *decoder) inlinePush(v []byte) *a2a.PushConfig {
	d.Enter("taskPushNotificationConfig", -1)
	c, m := d.pushConfig(v)
	d.Text("taskId", m.TaskID, d.Limits.IDBytes)
	d.Text("tenant", rawjson.Get(v, "tenant"), d.Limits.IDBytes)
	d.Leave()
	return &c
}

func (d *decoder) message(obj []byte) a2a.Message {
	d.Enter("message", -1)
	var found decode.MessageMembers
	for key, v := range rawjson.Members(obj) {
		found.Set(d.Key(obj, key), v)
	}
	msg := d.Message(&found)
	msg.Role = d.Role(found.Role)
	for v := range d.Parts(found.Parts) {
		msg.Parts = append(msg.Parts, d.part(v))
	}
	d.Leave()
	return msg
}

// part reads a Part, which has exactly one content. Null counts as content only for data, and only
// if there is no other.
func (d *decoder) part(obj []byte) a2a.Part {
	var text, raw, url, data, filename, mediaType, metadata []byte
	for key, v := range rawjson.Members(obj) {
		switch string(d.Key(obj, key)) {
		case "text":
			text = v
		case "raw":
			raw = v
		case "url":
			url = v
		case "data":
			data = v
		case "filename":
			filename = v
		case "mediaType":
			mediaType = v
		case "metadata":
			metadata = v
		}
	}
	p := a2a.Part{
		Filename:  d.Text("filename", filename, decode.MaxName),
		MediaType: d.Text("mediaType", mediaType, decode.MaxName),
		Metadata:  d.Raw("metadata", metadata),
	}
	contents := 0
	for _, v := range [...][]byte{text, raw, url, data} {
		if !decode.Absent(v) {
			contents++
		}
	}
	switch {
	case contents > 1, contents == 0 && data == nil:
		d.Fail("", "must have exactly one of text, raw, url and data")
	case !decode.Absent(text):
		p.Kind, p.Text = a2a.PartText, d.Content("text", text)
	case !decode.Absent(raw):
		p.Kind, p.Text = a2a.PartFile, d.Bytes("raw", raw)
	case !decode.Absent(url):
		p.Kind, p.Text = a2a.PartURL, d.URL("url", url)
	default:
		p.Kind, p.Data = a2a.PartData, d.Data("data", data)
	}
	return p
}

func (d *decoder) get(params []byte) a2a.Op {
	m := d.TaskMembers(params)
	return &a2a.GetTask{ID: d.id("id", m.ID), HistoryLength: d.HistoryLength(m.HistoryLength)}
}

func (d *decoder) cancel(params []byte) a2a.Op {
	m := d.TaskMembers(params)
	return &a2a.CancelTask{ID: d.id("id", m.ID), Metadata: d.Raw("metadata", m.Metadata), RepeatOK: true}
}

func (d *decoder) subscribe(params []byte) a2a.Op {
	return &a2a.Subscribe{StreamRules: streamRules, ID: d.id("id", d.TaskMembers(params).ID)}
}

// id reads the id that the request is about. An empty id counts as absent. A malformed id is kept,
// because no task has it.
func (d *decoder) id(member string, v []byte) string { return d.Name(member, v, d.Limits.IDBytes) }

func (d *decoder) list(params []byte) a2a.Op {
	m := d.ListMembers(params)
	op := d.ListTasks(&m)
	if !decode.Absent(m.Status) {
		op.State = d.state("status", m.Status)
	}
	return op
}

func (d *decoder) pushCreate(params []byte) a2a.Op {
	c, m := d.pushConfig(params)
	return &a2a.SetPushConfig{TaskID: d.id("taskId", m.TaskID), Config: c}
}

func (d *decoder) pushConfig(v []byte) (a2a.PushConfig, decode.PushMembers) {
	c, m := d.PushConfig(v, "scheme")
	c.Version = a2a.PushV10
	if m.Authentication {
		c.Schemes = []string{d.Name("authentication.scheme", m.Scheme, d.Limits.IDBytes)}
	}
	return c, m
}

func (d *decoder) pushGet(params []byte) a2a.Op {
	m := d.pushMembers(params)
	return &a2a.GetPushConfig{TaskID: d.id("taskId", m.taskID), ConfigID: d.id("id", m.id)}
}

func (d *decoder) pushList(params []byte) a2a.Op {
	m := d.pushMembers(params)
	return &a2a.ListPushConfigs{
		TaskID: d.id("taskId", m.taskID), PageToken: d.Text("pageToken", m.pageToken, decode.MaxToken),
		PageSize: d.Count("pageSize", m.pageSize),
	}
}

func (d *decoder) pushDelete(params []byte) a2a.Op {
	m := d.pushMembers(params)
	return &a2a.DeletePushConfig{TaskID: d.id("taskId", m.taskID), ConfigID: d.id("id", m.id)}
}

type pushMembers struct{ taskID, id, pageSize, pageToken []byte }

// pushMembers reads the members of requests about existing webhooks.
func (d *decoder) pushMembers(params []byte) (m pushMembers) {
	for key, v := range rawjson.Members(params) {
		switch string(d.Key(params, key)) {
		case "taskId":
			m.taskID = v
		case "id":
			m.id = v
		case "pageSize":
			m.pageSize = v
		case "pageToken":
			m.pageToken = v
		}
	}
	return m
}

func (d *decoder) extendedCard([]byte) a2a.Op {
	return &a2a.GetExtendedCard{Undeclared: a2a.CodeUnsupportedOperation}
}
