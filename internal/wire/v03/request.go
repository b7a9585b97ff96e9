package v03

import (
	"crypto/sha256"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// sendMembers are the members of MessageSendParams.
type sendMembers struct {
	message, configuration, metadata []byte
	contextID                        []byte // L-02
}

func (d *decoder) send(params []byte, stream bool) a2a.Op {
	d.Params(params)
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
	d.Need("message", m.message)
	op := &a2a.SendMessage{Stream: stream, Blocking: true, Digest: sha256.Sum256(params)}
	op.LastStatus = true
	if d.IsObject("message", m.message) {
		op.Message = d.message(&m)
	}
	if d.IsObject("configuration", m.configuration) {
		d.configuration(op, m.configuration)
	}
	op.Metadata = d.Raw("metadata", m.metadata)
	return op
}

// configuration reads MessageSendConfiguration. Without "blocking" the caller waits.
func (d *decoder) configuration(op *a2a.SendMessage, v []byte) {
	d.Enter("configuration", -1)
	for key, v := range rawjson.Members(v) {
		switch string(key) {
		case "blocking":
			op.Blocking = d.Bool("blocking", v, true)
		case "historyLength":
			op.HistoryLength = d.HistoryLength(v)
		case "acceptedOutputModes":
			op.AcceptedModes = d.Strings("acceptedOutputModes", v, decode.MaxName)
		case "pushNotificationConfig":
			if d.IsObject("pushNotificationConfig", v) {
				push := d.pushConfig(v)
				op.Push = &push
			}
		}
	}
	d.Leave()
}

func (d *decoder) get(params []byte) a2a.Op {
	m := d.TaskMembers(params)
	d.Raw("metadata", m.Metadata)
	return &a2a.GetTask{ID: d.taskID("id", m.ID), HistoryLength: d.HistoryLength(m.HistoryLength)}
}

func (d *decoder) cancel(params []byte) a2a.Op {
	m := d.TaskMembers(params)
	return &a2a.CancelTask{ID: d.taskID("id", m.ID), Metadata: d.Raw("metadata", m.Metadata)}
}

func (d *decoder) resubscribe(params []byte) a2a.Op {
	m := d.TaskMembers(params)
	d.Raw("metadata", m.Metadata)
	return &a2a.Subscribe{ID: d.taskID("id", m.ID), EndedOK: true, StreamRules: a2a.StreamRules{LastStatus: true}}
}

// taskID reads the id of a task. A malformed id is kept, because no task has it.
func (d *decoder) taskID(member string, v []byte) string {
	d.Need(member, v)
	return d.Text(member, v, d.Limits.IDBytes)
}

// list reads the params of tasks/list (L-01), which are the same as in 1.0.
func (d *decoder) list(params []byte) a2a.Op {
	d.used("L-01")
	m := d.ListMembers(params)
	d.lenientListMembers(&m, params)
	op := d.ListTasks(&m)
	op.State = d.lenientState("status", m.Status)
	return op
}

func (d *decoder) pushSet(params []byte) a2a.Op {
	d.Params(params)
	var taskID, config []byte
	for key, v := range rawjson.Members(params) {
		switch string(key) {
		case "taskId":
			taskID = v
		case "pushNotificationConfig":
			config = v
		}
	}
	op := &a2a.SetPushConfig{TaskID: d.taskID("taskId", taskID)}
	d.Need("pushNotificationConfig", config)
	if d.IsObject("pushNotificationConfig", config) {
		op.Config = d.pushConfig(config)
	}
	return op
}

func (d *decoder) pushConfig(v []byte) a2a.PushConfig {
	d.Enter("pushNotificationConfig", -1)
	c, m := d.PushConfig(v, "schemes")
	c.Version = a2a.PushV03
	if m.Authentication && !d.Proto { // in ProtoJSON an absent list is an empty one
		d.Need("authentication.schemes", m.Scheme)
	}
	c.Schemes = d.Strings("authentication.schemes", m.Scheme, d.Limits.IDBytes)
	d.Leave()
	return c
}

func (d *decoder) pushGet(params []byte) a2a.Op {
	taskID, configID := d.pushParams(params)
	return &a2a.GetPushConfig{TaskID: taskID, ConfigID: d.Text("pushNotificationConfigId", configID, d.Limits.IDBytes)}
}

func (d *decoder) pushList(params []byte) a2a.Op {
	taskID, _ := d.pushParams(params)
	return &a2a.ListPushConfigs{TaskID: taskID}
}

func (d *decoder) pushDelete(params []byte) a2a.Op {
	taskID, configID := d.pushParams(params)
	return &a2a.DeletePushConfig{TaskID: taskID,
		ConfigID: d.Name("pushNotificationConfigId", configID, d.Limits.IDBytes)}
}

// pushParams reads the common params of the three methods on existing configs. Unlike in
// tasks/pushNotificationConfig/set the member with the task is id.
func (d *decoder) pushParams(params []byte) (taskID string, configID []byte) {
	d.Params(params)
	var id []byte
	for key, v := range rawjson.Members(params) {
		switch string(key) {
		case "id":
			id = v
		case "pushNotificationConfigId":
			configID = v
		case "metadata":
			d.Raw("metadata", v)
		}
	}
	return d.taskID("id", id), configID
}

// extendedCard has no params. Members of an object are ignored.
func (d *decoder) extendedCard(params []byte) a2a.Op {
	d.Params(params)
	return &a2a.GetExtendedCard{Undeclared: a2a.CodeExtendedCardNotConfigured}
}
