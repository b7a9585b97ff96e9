package v03

import (
	"crypto/sha256"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// Proto is the second dialect of 0.3: the ProtoJSON of a2a.v1, which is used over HTTP+JSON, and
// which gRPC is transcoded to. Its methods have the names of JSON-RPC. A request names its task by
// id, by taskId, or as in the definitions by a name or parent such as tasks/{id}. The body of a
// request is a message of a2a.v1.
//
// Its definitions cannot tell absent from zero. So a configuration without blocking does not wait,
// and a historyLength of 0 means the whole history.
type Proto struct {
	Codec
	// Parts makes the codec write the content of a Message as parts, as later definitions call it,
	// from which generated code may come. It reads either name.
	Parts bool
}

var _ wire.Codec = Proto{}

// Form returns wire.FormV03Proto, or with Parts wire.FormV03Parts.
func (c Proto) Form() wire.Form {
	if c.Parts {
		return wire.FormV03Parts
	}
	return wire.FormV03Proto
}

// Has reports whether this dialect has the method, including tasks/list.
func (Proto) Has(method string) bool { return protoMethods[method] != nil }

var protoMethods = map[string]func(*protoDecoder, []byte) a2a.Op{
	"message/send":                        func(d *protoDecoder, params []byte) a2a.Op { return d.send(params, false) },
	"message/stream":                      func(d *protoDecoder, params []byte) a2a.Op { return d.send(params, true) },
	"tasks/get":                           (*protoDecoder).get,
	methodList:                            (*protoDecoder).list,
	"tasks/cancel":                        (*protoDecoder).cancel,
	"tasks/resubscribe":                   (*protoDecoder).resubscribe,
	"tasks/pushNotificationConfig/set":    (*protoDecoder).pushSet,
	"tasks/pushNotificationConfig/get":    (*protoDecoder).pushGet,
	"tasks/pushNotificationConfig/list":   (*protoDecoder).pushList,
	"tasks/pushNotificationConfig/delete": (*protoDecoder).pushDelete,
	"agent/getAuthenticatedExtendedCard": func(*protoDecoder, []byte) a2a.Op {
		return &a2a.GetExtendedCard{Undeclared: a2a.CodeExtendedCardNotConfigured}
	},
}

// protoDecoder reads the params of one request.
type protoDecoder struct{ decoder }

// Decode reads the params of one request; see wire.Codec.
func (c Proto) Decode(method string, params []byte) (a2a.Op, error) {
	read := protoMethods[method]
	if read == nil {
		return nil, a2a.Errorf(a2a.CodeMethodNotFound, "unknown method %.64q", method)
	}
	d := protoDecoder{decoder{Reader: decode.Reader{Limits: c.Limits.OrDefault(), Proto: true}, lenient: c.Lenient,
		onLenient: c.OnLenient}}
	d.Params(params)
	op := read(&d, params)
	if err := d.Err(); err != nil {
		return nil, err
	}
	return op, nil
}

func (d *protoDecoder) send(params []byte, stream bool) a2a.Op {
	var message, configuration, metadata []byte
	for key, v := range rawjson.Members(params) {
		switch string(key) {
		case "message":
			message = v
		case "request": // the name of the field
			if message == nil {
				message = v
			}
		case "configuration":
			configuration = v
		case "metadata":
			metadata = v
		}
	}
	d.Need("message", message)
	op := &a2a.SendMessage{Stream: stream, Blocking: true, Digest: sha256.Sum256(params)}
	op.LastStatus = true
	if d.IsObject("message", message) {
		op.Message = d.message(message)
	}
	if d.IsObject("configuration", configuration) {
		d.configuration(op, configuration)
	}
	op.Metadata = d.Raw("metadata", metadata)
	return op
}

// configuration reads SendMessageConfiguration: without "blocking" the caller does not wait.
func (d *protoDecoder) configuration(op *a2a.SendMessage, obj []byte) {
	d.Enter("configuration", -1)
	op.Blocking = false
	for key, v := range rawjson.Members(obj) {
		switch string(d.Key(obj, key)) {
		case "blocking":
			op.Blocking = d.Bool("blocking", v, false)
		case "historyLength":
			op.HistoryLength = d.history(v)
		case "acceptedOutputModes":
			op.AcceptedModes = d.Strings("acceptedOutputModes", v, decode.MaxName)
		case "pushNotification", "pushNotificationConfig":
			if d.IsObject("pushNotification", v) {
				push := d.pushConfig(v)
				op.Push = &push
			}
		}
	}
	d.Leave()
}

// history reads a historyLength. 0 means that there is none.
func (d *protoDecoder) history(v []byte) *int {
	n := d.HistoryLength(v)
	if n != nil && *n == 0 {
		return nil
	}
	return n
}

// resource holds the members that say what a request is about.
type resource struct {
	task, config            string
	historyLength, metadata []byte
	pageSize, pageToken     []byte
}

// resource reads them. of is how many names a name has: that of a task, or of a webhook too.
func (d *protoDecoder) resource(params []byte, of int) (r resource) {
	for key, v := range rawjson.Members(params) {
		switch name := string(d.Key(params, key)); name {
		case "id", "taskId":
			r.task = d.taskID(name, v)
		case "pushNotificationConfigId":
			r.config = d.Text(name, v, d.Limits.IDBytes)
		case "parent":
			d.splitName(name, v, 1, &r)
		case "name":
			d.splitName(name, v, of, &r)
		case "historyLength":
			r.historyLength = v
		case "metadata":
			r.metadata = v
		case "pageSize":
			r.pageSize = v
		case "pageToken":
			r.pageToken = v
		}
	}
	if r.task == "" {
		d.Fail("name", "is required")
	}
	return r
}

// splitName reads a name like tasks/{id}/pushNotificationConfigs/{id}, or its first half. Ids from
// the path of the request take precedence.
func (d *protoDecoder) splitName(member string, v []byte, of int, r *resource) {
	name := d.Text(member, v, 2*d.Limits.IDBytes+64)
	rest, ok := strings.CutPrefix(name, "tasks/")
	task, config := rest, ""
	if ok && of == 2 {
		task, config, ok = strings.Cut(rest, "/pushNotificationConfigs/")
	}
	if !ok || task == "" || strings.Contains(task, "/") || strings.Contains(config, "/") {
		d.Fail(member, "must be a name like %s",
			[...]string{"", "tasks/{id}", "tasks/{id}/pushNotificationConfigs/{id}"}[of])
		return
	}
	if r.task == "" {
		r.task = task
	}
	if r.config == "" {
		r.config = config
	}
}

func (d *protoDecoder) get(params []byte) a2a.Op {
	r := d.resource(params, 1)
	return &a2a.GetTask{ID: r.task, HistoryLength: d.history(r.historyLength)}
}

func (d *protoDecoder) cancel(params []byte) a2a.Op {
	r := d.resource(params, 1)
	return &a2a.CancelTask{ID: r.task, Metadata: d.Raw("metadata", r.metadata)}
}

func (d *protoDecoder) resubscribe(params []byte) a2a.Op {
	return &a2a.Subscribe{ID: d.resource(params, 1).task, EndedOK: true, StreamRules: a2a.StreamRules{LastStatus: true}}
}

func (d *protoDecoder) list(params []byte) a2a.Op {
	m := d.ListMembers(params)
	for key, v := range rawjson.Members(params) {
		if name := string(d.Key(params, key)); (name == "lastUpdatedTime" || name == "lastUpdatedAfter") &&
			m.StatusTimestampAfter == nil {
			m.StatusTimestampAfter = v
		}
	}
	if n, ok := rawjson.Int(m.PageSize); ok && n == 0 {
		m.PageSize = nil
	}
	op := d.ListTasks(&m)
	op.HistoryLength = d.history(m.HistoryLength)
	if !decode.Absent(m.Status) {
		op.State = d.state("status", m.Status)
	}
	return op
}

// state reads a state in the spelling of either dialect.
func (d *protoDecoder) state(member string, v []byte) a2a.State {
	if n := decode.Enum(v, protoStates); n >= 0 {
		return protoStateOrder[n]
	}
	name, ok := rawjson.String(v)
	if ok && name == "TASK_STATE_CANCELED" {
		return a2a.StateCanceled
	}
	if state, ok := a2a.ParseState(name); ok {
		return state
	}
	d.Fail(member, "must be a task state, such as TASK_STATE_WORKING")
	return a2a.StateNone
}

// pushSet reads a request to add a webhook. Its config may be wrapped in two ways, or not at all.
func (d *protoDecoder) pushSet(params []byte) a2a.Op {
	var r resource
	var id string
	body, wrapped := params, false
	read := func(obj []byte) {
		for key, v := range rawjson.Members(obj) {
			switch name := string(d.Key(obj, key)); name {
			case "taskId":
				r.task = d.taskID(name, v)
			case "pushNotificationConfig":
				body, wrapped = v, true
			}
		}
	}
	read(params)
	config := rawjson.Get(params, "config")
	if d.IsObject("config", config) {
		read(config)
	}
	for _, from := range [...]struct {
		obj    []byte
		member string
		of     int
	}{{params, "parent", 1}, {params, "name", 2}, {config, "name", 2}} {
		if v := rawjson.Get(from.obj, from.member); !decode.Absent(v) && string(v) != `""` {
			d.splitName(from.member, v, from.of, &r)
		}
	}
	for _, key := range [...]string{"configId", "config_id"} {
		if v := rawjson.Get(params, key); v != nil {
			id = d.Text("configId", v, d.Limits.IDBytes)
		}
	}
	if r.task == "" {
		d.Fail("parent", "is required")
	}
	op := &a2a.SetPushConfig{TaskID: r.task}
	if wrapped && !d.IsObject("pushNotificationConfig", body) || !wrapped && config != nil {
		d.Fail("pushNotificationConfig", "is required")
		return op
	}
	op.Config = d.pushConfig(body)
	for _, named := range [...]string{id, r.config} {
		if op.Config.ID == "" {
			op.Config.ID = named
		}
	}
	return op
}

func (d *protoDecoder) pushGet(params []byte) a2a.Op {
	r := d.resource(params, 2)
	return &a2a.GetPushConfig{TaskID: r.task, ConfigID: r.config}
}

func (d *protoDecoder) pushList(params []byte) a2a.Op {
	r := d.resource(params, 1)
	return &a2a.ListPushConfigs{TaskID: r.task, PageSize: d.Count("pageSize", r.pageSize),
		PageToken: d.Text("pageToken", r.pageToken, decode.MaxToken)}
}

func (d *protoDecoder) pushDelete(params []byte) a2a.Op {
	r := d.resource(params, 2)
	if r.config == "" {
		d.Fail("name", "must name a push notification config")
	}
	return &a2a.DeletePushConfig{TaskID: r.task, ConfigID: r.config}
}

// Names of the enumerations of a2a.v1, in the order of their numbers.
var (
	protoStateOrder = [...]a2a.State{
		a2a.StateNone, a2a.StateSubmitted, a2a.StateWorking, a2a.StateCompleted, a2a.StateFailed, a2a.StateCanceled,
		a2a.StateInputRequired, a2a.StateRejected, a2a.StateAuthRequired,
	}
	protoStates = []string{
		"TASK_STATE_UNSPECIFIED", "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED",
		"TASK_STATE_FAILED", "TASK_STATE_CANCELLED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_REJECTED",
		"TASK_STATE_AUTH_REQUIRED",
	}
)
