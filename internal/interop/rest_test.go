package interop

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	pbold "github.com/a2aproject/a2a-go/a2apb"
	"github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/protobuf/encoding/protojson"
)

// 0.3 over HTTP+JSON. The 0.3 client for Go does not support it; the 1.0 client does, for servers of 0.3.

func TestNewClientUsesOldREST(t *testing.T) {
	t.Parallel()
	p, g := dialNewWith(t, httpClient(t), overOldREST), newGate(t)
	asked := p.send(newScript("", chunks("a", 3), op{"op": "input", "text": "more?"}))
	if asked.Status.State != a2a.TaskStateInputRequired {
		t.Fatalf("the task is %s", asked.Status.State)
	}
	sameJSON(t, "the task", asked, p.get(asked.ID))
	sameJSON(t, "the task, read over JSON-RPC 1.0", asked, dialNew(t).get(asked.ID))
	opened := false
	done := newFold(t, func(yield func(a2a.Event, error) bool) {
		for event, err := range p.SendStreamingMessage(testContext(t),
			newScript(asked.ID, chunks("a", 2), g.op(), op{"op": "complete", "text": "done"})) {
			if !opened {
				opened = true
				g.open()
			}
			if !yield(event, err) {
				return
			}
		}
	})
	sameJSON(t, "the stream put together", p.get(asked.ID), done)
	for event, err := range p.SubscribeToTask(testContext(t), &a2a.SubscribeToTaskRequest{ID: asked.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, "a finished task, subscribed to", done, event)
		break // its last status follows
	}
	list, err := p.ListTasks(testContext(t), &a2a.ListTasksRequest{ContextID: asked.ContextID,
		Status: a2a.TaskStateCompleted, IncludeArtifacts: true})
	if err != nil || len(list.Tasks) != 1 {
		t.Fatalf("list %+v, %v", list, err)
	}
	sameJSON(t, "the task in the list", done, list.Tasks[0])
	if _, err := p.CancelTask(testContext(t), &a2a.CancelTaskRequest{ID: asked.ID}); !errors.Is(err,
		a2a.ErrTaskNotCancelable) {
		t.Errorf("cancel of a finished task: %v", err)
	}
	if _, err := p.GetTask(testContext(t), &a2a.GetTaskRequest{ID: a2a.NewTaskID()}); !errors.Is(err,
		a2a.ErrTaskNotFound) {
		t.Errorf("get of an unknown task: %v", err)
	}
	if err := firstNewError(p.SendStreamingMessage(testContext(t), newScript(asked.ID))); !errors.Is(err,
		a2a.ErrUnsupportedOperation) {
		t.Errorf("stream of a message to a finished task: %v", err)
	}
}

// The bytes of a file are the same over every binding and version.
func TestFilesOverREST(t *testing.T) {
	t.Parallel()
	content := []byte{0xff, 0xfe, 0, 1}
	for name, binding := range map[string]transport{"JSON-RPC": overJSONRPC, "REST": overREST,
		"REST of 0.3": overOldREST} {
		req := newScript("", op{"op": "complete"})
		file := a2a.NewRawPart(content)
		file.Filename, file.MediaType = "f", "a/b"
		req.Message.Parts = append(req.Message.Parts, file)
		made := dialNewWith(t, httpClient(t), binding).send(req)
		for reader, binding := range map[string]transport{"JSON-RPC": overJSONRPC, "REST": overREST,
			"REST of 0.3": overOldREST} {
			parts := dialNewWith(t, httpClient(t), binding).get(made.ID).History[0].Parts
			if len(parts) != 2 || !slices.Equal(parts[1].Raw(), content) || parts[1].Filename != "f" ||
				parts[1].MediaType != "a/b" {
				t.Errorf("sent over %s, read over %s: %+v", name, reader, parts)
			}
		}
	}
}

func TestWebhooksOverREST(t *testing.T) {
	t.Parallel()
	for name, binding := range map[string]transport{"JSON-RPC": overJSONRPC, "REST": overREST,
		"REST of 0.3": overOldREST} {
		p := dialNewWith(t, httpClient(t), binding)
		task := p.send(newScript("", op{"op": "input"})).ID
		for range 2 {
			set, err := p.CreateTaskPushConfig(testContext(t),
				&a2a.PushConfig{TaskID: task, ID: "one", URL: "http://127.0.0.1:1/x",
					Auth: &a2a.PushAuthInfo{Scheme: "Bearer"}})
			if err != nil || set.ID != "one" || set.TaskID != task {
				t.Fatalf("%s: set %+v, %v", name, set, err)
			}
		}
		got, err := p.GetTaskPushConfig(testContext(t), &a2a.GetTaskPushConfigRequest{TaskID: task, ID: "one"})
		if err != nil || got.URL != "http://127.0.0.1:1/x" || got.Auth == nil || got.Auth.Scheme != "Bearer" {
			t.Errorf("%s: get %+v, %v", name, got, err)
		}
		if all, err := p.ListTaskPushConfigs(testContext(t),
			&a2a.ListTaskPushConfigRequest{TaskID: task}); err != nil || len(all) != 1 || all[0].ID != "one" {
			t.Errorf("%s: list %+v, %v", name, all, err)
		}
		if err := p.DeleteTaskPushConfig(testContext(t),
			&a2a.DeleteTaskPushConfigRequest{TaskID: task, ID: "one"}); err != nil {
			t.Errorf("%s: delete: %v", name, err)
		}
		if _, err := p.GetTaskPushConfig(testContext(t),
			&a2a.GetTaskPushConfigRequest{TaskID: task, ID: "one"}); !errors.Is(err, a2a.ErrTaskNotFound) {
			t.Errorf("%s: get of a deleted one: %v", name, err)
		}
	}
}

// The parser of the official definitions reads the answers of 0.3, except for the content of messages, whose name
// changed later.
func TestOldRESTIsProtoJSON(t *testing.T) {
	t.Parallel()
	made := dialNew(t).send(newScript("", chunks("a", 2), op{"op": "complete", "text": "done"}))
	doc := exchangeOld(t, "http://"+sharedReplica(t).api+scriptAgent+"/v1/tasks/"+string(made.ID))
	task := &pbold.Task{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(doc, task); err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	if task.GetStatus().GetState() != pbold.TaskState_TASK_STATE_COMPLETED || len(task.GetHistory()) != 1 ||
		len(task.GetArtifacts()[0].GetParts()) != 2 {
		t.Errorf("the task is %v", task)
	}
}

func exchangeOld(t *testing.T, url string) []byte {
	t.Helper()
	return exchangeAs(t, "0.3", http.MethodGet, url, "")
}
