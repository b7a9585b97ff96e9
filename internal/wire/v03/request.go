package v03

import (
	"crypto/sha256"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// sendMembers are the members of MessageSendParams.
type sendMembers struct {
	message, configuration, metadata []byte
	contextID                        []byte // L-02
}

func (d *decoder) send(params []byte, stream bool) *a2a.SendMessage {
	d.params(params)
	var m sendMembers
	for key, v := range rawjson.Members(params) {
		switch string(key) {
		case "message":
			m.message = v
		case "configuration":
			m.configuration = v
		case "metadata":
			m.metadata = v
		case "contextId":
			m.contextID = v
		}
	}
	d.need("message", m.message)
	op := &a2a.SendMessage{Stream: stream, Blocking: true, Digest: sha256.Sum256(params)}
	if d.isObject("message", m.message) {
		op.Message = d.message(&m)
	}
	if d.isObject("configuration", m.configuration) {
		d.configuration(op, m.configuration)
	}
	op.Metadata = d.raw("metadata", m.metadata)
	return op
}

// configuration reads MessageSendConfiguration. Without "blocking" the caller waits.
func (d *decoder) configuration(op *a2a.SendMessage, v []byte) {
	d.enter("configuration", -1)
	for key, v := range rawjson.Members(v) {
		switch string(key) {
		case "blocking":
			op.Blocking = d.boolean("blocking", v, true)
		case "historyLength":
			op.HistoryLength = d.historyLength(v)
		case "acceptedOutputModes":
			op.AcceptedModes = d.strings("acceptedOutputModes", v, maxName)
		case "pushNotificationConfig":
			if d.isObject("pushNotificationConfig", v) {
				push := d.pushConfig(v)
				op.Push = &push
			}
		}
	}
	d.leave()
}

func (d *decoder) get(params []byte) *a2a.GetTask {
	op := &a2a.GetTask{}
	var history []byte
	op.ID, _, history = d.taskParams(params)
	op.HistoryLength = d.historyLength(history)
	return op
}

func (d *decoder) cancel(params []byte) *a2a.CancelTask {
	op := &a2a.CancelTask{}
	op.ID, op.Metadata, _ = d.taskParams(params)
	return op
}

func (d *decoder) resubscribe(params []byte) *a2a.Subscribe {
	op := &a2a.Subscribe{EndedOK: true}
	op.ID, _, _ = d.taskParams(params)
	return op
}

// taskParams reads TaskIdParams and TaskQueryParams. A malformed id is kept: it is one
// that no task has.
func (d *decoder) taskParams(params []byte) (taskID string, metadata a2a.Raw, history []byte) {
	d.params(params)
	var id []byte
	for key, v := range rawjson.Members(params) {
		switch string(key) {
		case "id":
			id = v
		case "metadata":
			metadata = d.raw("metadata", v)
		case "historyLength":
			history = v
		}
	}
	d.need("id", id)
	return d.text("id", id, d.limits.IDBytes), metadata, history
}

// listMembers are the params of tasks/list (L-01).
type listMembers struct {
	contextID, status, pageSize, pageToken, history, artifacts []byte
	updatedAfter                                               []byte // L-24
}

// list reads the params of tasks/list, which all have a default.
func (d *decoder) list(params []byte) *a2a.ListTasks {
	d.params(params)
	var m listMembers
	for key, v := range rawjson.Members(params) {
		switch string(key) {
		case "contextId":
			m.contextID = v
		case "status":
			m.status = v
		case "pageSize":
			m.pageSize = v
		case "pageToken":
			m.pageToken = v
		case "historyLength":
			m.history = v
		case "includeArtifacts":
			m.artifacts = v
		}
	}
	d.lenientListMembers(&m, params)
	return &a2a.ListTasks{
		ContextID:        d.text("contextId", m.contextID, d.limits.IDBytes),
		State:            d.lenientState("status", m.status),
		PageSize:         d.pageSize(m.pageSize),
		PageToken:        d.text("pageToken", m.pageToken, maxToken),
		HistoryLength:    d.historyLength(m.history),
		IncludeArtifacts: d.boolean("includeArtifacts", m.artifacts, false),
		UpdatedAfter:     d.lenientTime("last_updated_after", m.updatedAfter),
	}
}

func (d *decoder) pageSize(v []byte) int {
	if absent(v) {
		return 0
	}
	n, ok := rawjson.Int(v)
	if !ok || n < 1 || n > maxPage {
		d.fail("pageSize", "must be an integer from 1 to %d", maxPage)
		return 0
	}
	return int(n)
}

func (d *decoder) pushSet(params []byte) *a2a.SetPushConfig {
	d.params(params)
	var taskID, config []byte
	for key, v := range rawjson.Members(params) {
		switch string(key) {
		case "taskId":
			taskID = v
		case "pushNotificationConfig":
			config = v
		}
	}
	d.need("taskId", taskID)
	op := &a2a.SetPushConfig{TaskID: d.text("taskId", taskID, d.limits.IDBytes)}
	d.need("pushNotificationConfig", config)
	if d.isObject("pushNotificationConfig", config) {
		op.Config = d.pushConfig(config)
	}
	return op
}

// pushConfig reads PushNotificationConfig. Whether the URL may be called is not for
// the codec to say.
func (d *decoder) pushConfig(v []byte) a2a.PushConfig {
	d.enter("pushNotificationConfig", -1)
	var c a2a.PushConfig
	var url []byte
	for key, v := range rawjson.Members(v) {
		switch string(key) {
		case "id":
			c.ID = d.text("id", v, d.limits.IDBytes)
		case "url":
			url = v
		case "token":
			c.Token = d.text("token", v, d.limits.TokenSize)
		case "authentication":
			if d.isObject("authentication", v) {
				d.pushAuthentication(&c, v)
			}
		}
	}
	c.URL = d.name("url", url, d.limits.URLBytes)
	d.leave()
	return c
}

func (d *decoder) pushAuthentication(c *a2a.PushConfig, v []byte) {
	d.enter("authentication", -1)
	var schemes []byte
	for key, v := range rawjson.Members(v) {
		switch string(key) {
		case "schemes":
			schemes = v
		case "credentials":
			c.Credentials = d.text("credentials", v, d.limits.TokenSize)
		}
	}
	d.need("schemes", schemes)
	c.Schemes = d.strings("schemes", schemes, d.limits.IDBytes)
	d.leave()
}

func (d *decoder) pushGet(params []byte) *a2a.GetPushConfig {
	taskID, configID := d.pushParams(params)
	return &a2a.GetPushConfig{TaskID: taskID, ConfigID: d.text("pushNotificationConfigId", configID, d.limits.IDBytes)}
}

func (d *decoder) pushList(params []byte) *a2a.ListPushConfigs {
	taskID, _ := d.pushParams(params)
	return &a2a.ListPushConfigs{TaskID: taskID}
}

func (d *decoder) pushDelete(params []byte) *a2a.DeletePushConfig {
	taskID, configID := d.pushParams(params)
	return &a2a.DeletePushConfig{TaskID: taskID, ConfigID: d.name("pushNotificationConfigId", configID, d.limits.IDBytes)}
}

// pushParams reads what the three methods on existing configs have in common. Unlike
// in tasks/pushNotificationConfig/set the task is called id.
func (d *decoder) pushParams(params []byte) (taskID string, configID []byte) {
	d.params(params)
	var id []byte
	for key, v := range rawjson.Members(params) {
		switch string(key) {
		case "id":
			id = v
		case "pushNotificationConfigId":
			configID = v
		case "metadata":
			d.raw("metadata", v)
		}
	}
	d.need("id", id)
	return d.text("id", id, d.limits.IDBytes), configID
}

// extendedCard has no params; members of an object are unknown ones.
func (d *decoder) extendedCard(params []byte) *a2a.GetExtendedCard {
	d.params(params)
	return &a2a.GetExtendedCard{}
}
