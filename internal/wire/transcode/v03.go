package transcode

import (
	"strconv"
	"strings"
	"time"

	apb "github.com/a2aproject/a2a-go/a2apb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// methods03 has the names of the codec for those of the service.
var methods03 = map[protoreflect.Name]string{
	"SendMessage": "message/send", "SendStreamingMessage": "message/stream", "GetTask": "tasks/get", "ListTasks": "tasks/list",
	"CancelTask": "tasks/cancel", "TaskSubscription": "tasks/resubscribe", "GetAgentCard": "agent/getAuthenticatedExtendedCard",
	"CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set", "GetTaskPushNotificationConfig": "tasks/pushNotificationConfig/get",
	"ListTaskPushNotificationConfig": "tasks/pushNotificationConfig/list", "DeleteTaskPushNotificationConfig": "tasks/pushNotificationConfig/delete",
}

// params03 writes a request in the JSON of 0.3. Where protobuf cannot tell the default from
// what is not set, docs/protocol.md says which of the two is meant.
func params03(req proto.Message) ([]byte, error) {
	var w writer
	w.open()
	switch req := req.(type) {
	case *apb.SendMessageRequest:
		w.send(req)
	case *apb.GetTaskRequest:
		w.task("id", "name", req.GetName())
		w.count("historyLength", req.GetHistoryLength())
	case *apb.ListTasksRequest:
		w.list(req)
	case *apb.CancelTaskRequest:
		w.task("id", "name", req.GetName())
	case *apb.TaskSubscriptionRequest:
		w.task("id", "name", req.GetName())
	case *apb.CreateTaskPushNotificationConfigRequest:
		w.pushSet(req)
	case *apb.GetTaskPushNotificationConfigRequest:
		w.push(req.GetName())
	case *apb.ListTaskPushNotificationConfigRequest:
		w.task("id", "parent", req.GetParent())
	case *apb.DeleteTaskPushNotificationConfigRequest:
		w.push(req.GetName())
	}
	w.close()
	return w.out, w.err
}

// writer writes the members of objects. Its first error sticks.
type writer struct {
	out   []byte
	comma bool // in front of the next member
	err   error
}

func (w *writer) open()  { w.out, w.comma = append(w.out, '{'), false }
func (w *writer) close() { w.out, w.comma = append(w.out, '}'), true }

func (w *writer) key(name string) {
	if w.comma {
		w.out = append(w.out, ',')
	}
	w.out = append(rawjson.AppendString(w.out, name), ':')
	w.comma = true
}

// text writes a string unless it is empty, which stands for one that is not set.
func (w *writer) text(name, s string) {
	if s != "" {
		w.key(name)
		w.out = rawjson.AppendString(w.out, s)
	}
}

func (w *writer) texts(name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.key(name)
	w.out = append(w.out, '[')
	for i, s := range list {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = rawjson.AppendString(w.out, s)
	}
	w.out = append(w.out, ']')
}

// count writes a number unless it is zero, which stands for one that is not set.
func (w *writer) count(name string, n int32) {
	if n != 0 {
		w.key(name)
		w.out = strconv.AppendInt(w.out, int64(n), 10)
	}
}

func (w *writer) bool(name string, b bool) {
	w.key(name)
	w.out = strconv.AppendBool(w.out, b)
}

func (w *writer) object(name string, s *structpb.Struct) {
	if s == nil {
		return
	}
	w.key(name)
	text, err := marshal(s)
	w.fail(err)
	w.out = append(w.out, text...)
}

func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// task writes the id of a task that a member of the request names as tasks/{id}.
func (w *writer) task(name, member, resource string) {
	id, ok := strings.CutPrefix(resource, "tasks/")
	if !ok || id == "" || strings.Contains(id, "/") {
		w.fail(a2a.InvalidParams(member, "must be tasks/{id}"))
	}
	w.text(name, id)
}

// push writes the ids in the name of a webhook. Without the second it is the default one.
func (w *writer) push(resource string) {
	task, config, ok := strings.Cut(resource, "/pushNotificationConfigs/")
	if id, found := strings.CutPrefix(task, "tasks/"); !ok || !found || id == "" || strings.Contains(id+config, "/") {
		w.fail(a2a.InvalidParams("name", "must be tasks/{id}/pushNotificationConfigs/{config id}"))
	}
	w.text("id", strings.TrimPrefix(task, "tasks/"))
	w.text("pushNotificationConfigId", config)
}

func (w *writer) pushSet(req *apb.CreateTaskPushNotificationConfigRequest) {
	w.task("taskId", "parent", req.GetParent())
	c := req.GetConfig().GetPushNotificationConfig()
	id := c.GetId()
	if named := req.GetConfigId(); named != "" {
		if id != "" && id != named {
			w.fail(a2a.InvalidParams("config_id", "differs from the id of the config"))
		}
		id = named
	}
	if c != nil {
		w.pushConfig(c, id)
	}
}

func (w *writer) pushConfig(c *apb.PushNotificationConfig, id string) {
	w.key("pushNotificationConfig")
	w.open()
	w.text("id", id)
	w.text("url", c.GetUrl())
	w.text("token", c.GetToken())
	if a := c.GetAuthentication(); a != nil {
		w.key("authentication")
		w.open()
		if len(a.GetSchemes()) == 0 {
			w.key("schemes")
			w.out = append(w.out, "[]"...)
		}
		w.texts("schemes", a.GetSchemes())
		w.text("credentials", a.GetCredentials())
		w.close()
	}
	w.close()
}

func (w *writer) send(req *apb.SendMessageRequest) {
	if m := req.GetRequest(); m != nil {
		w.message(m)
	}
	if c := req.GetConfiguration(); c != nil {
		w.key("configuration")
		w.open()
		w.bool("blocking", c.GetBlocking())
		w.count("historyLength", c.GetHistoryLength())
		w.texts("acceptedOutputModes", c.GetAcceptedOutputModes())
		if p := c.GetPushNotification(); p != nil {
			w.pushConfig(p, p.GetId())
		}
		w.close()
	}
	w.object("metadata", req.GetMetadata())
}

func (w *writer) message(m *apb.Message) {
	w.key("message")
	w.open()
	w.key("kind")
	w.out = append(w.out, `"message"`...)
	w.text("messageId", m.GetMessageId())
	w.text("contextId", m.GetContextId())
	w.text("taskId", m.GetTaskId())
	if role := m.GetRole(); role != apb.Role_ROLE_UNSPECIFIED {
		w.text("role", strings.ToLower(strings.TrimPrefix(role.String(), "ROLE_")))
	}
	w.key("parts")
	w.out = append(w.out, '[')
	for i, p := range m.GetParts() {
		if w.comma = false; i > 0 {
			w.out = append(w.out, ',')
		}
		w.part(p)
	}
	w.out, w.comma = append(w.out, ']'), true
	w.texts("referenceTaskIds", m.GetReferenceTaskIds())
	w.texts("extensions", m.GetExtensions())
	w.object("metadata", m.GetMetadata())
	w.close()
}

func (w *writer) part(p *apb.Part) {
	w.open()
	switch c := p.GetPart().(type) {
	case *apb.Part_Text:
		w.out = append(w.out, `"kind":"text","text":`...)
		w.out, w.comma = rawjson.AppendString(w.out, c.Text), true
	case *apb.Part_Data:
		w.out, w.comma = append(w.out, `"kind":"data"`...), true
		w.object("data", c.Data.GetData())
	case *apb.Part_File:
		w.out, w.comma = append(w.out, `"kind":"file"`...), true
		w.file(c.File)
	}
	w.object("metadata", p.GetMetadata())
	w.close()
}

func (w *writer) file(f *apb.FilePart) {
	w.key("file")
	w.open()
	switch c := f.GetFile().(type) {
	case *apb.FilePart_FileWithBytes:
		w.key("bytes")
		w.out = appendBase64(w.out, c.FileWithBytes)
	case *apb.FilePart_FileWithUri:
		w.key("uri")
		w.out = rawjson.AppendString(w.out, c.FileWithUri)
	}
	w.text("mimeType", f.GetMimeType())
	w.text("name", f.GetName())
	w.close()
}

// list writes the params of tasks/list, a method of dialects alone.
func (w *writer) list(req *apb.ListTasksRequest) {
	w.text("contextId", req.GetContextId())
	if s := req.GetStatus(); s != apb.TaskState_TASK_STATE_UNSPECIFIED {
		w.text("status", strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s.String(), statePrefix), "_", "-")))
	}
	w.count("pageSize", req.GetPageSize())
	w.text("pageToken", req.GetPageToken())
	w.count("historyLength", req.GetHistoryLength())
	if t := req.GetLastUpdatedTime(); t != nil {
		if !t.IsValid() {
			w.fail(a2a.InvalidParams("last_updated_time", "is out of range"))
		}
		w.text("statusTimestampAfter", t.AsTime().Format(time.RFC3339Nano))
	}
	w.bool("includeArtifacts", req.GetIncludeArtifacts())
}
