package interop

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// The strict parser of the official definitions reads what the server sends, and the server reads what their writer
// produces, including its unusual spellings.
func TestAnswersAreProtoJSON(t *testing.T) {
	t.Parallel()
	p := dialNew(t)
	made := p.send(newScript("", chunks("a", 2), op{"op": "complete", "text": "done"}))
	base := "http://" + sharedReplica(t).api
	post := func(method string, request, answer proto.Message) {
		params, err := protojson.MarshalOptions{UseProtoNames: true, UseEnumNumbers: true}.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		body := exchange(t, http.MethodPost, base+scriptAgent,
			`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+string(params)+`}`)
		var envelope struct{ Result, Error json.RawMessage }
		if err := json.Unmarshal(body, &envelope); err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(envelope.Result, answer); err != nil {
			t.Errorf("%s: %v\n%s", method, err, body)
		}
	}
	task := &pb.Task{}
	post("GetTask", &pb.GetTaskRequest{Id: string(made.ID), HistoryLength: proto.Int32(1)}, task)
	if task.GetStatus().GetState() != pb.TaskState_TASK_STATE_COMPLETED || len(task.GetHistory()) != 1 {
		t.Errorf("the task is %v", task)
	}
	list := &pb.ListTasksResponse{}
	post("ListTasks", &pb.ListTasksRequest{ContextId: made.ContextID, Status: pb.TaskState_TASK_STATE_COMPLETED,
		IncludeArtifacts: proto.Bool(true)}, list)
	if list.GetTotalSize() != 1 || len(list.GetTasks()) != 1 {
		t.Errorf("the list is %v", list)
	}
	sent := &pb.SendMessageResponse{}
	post("SendMessage", &pb.SendMessageRequest{
		Message: &pb.Message{MessageId: "m", Role: pb.Role_ROLE_USER, Parts: []*pb.Part{
			{Content: &pb.Part_Raw{Raw: []byte{0xff, 0xfe, 1}}, MediaType: "a/b", Filename: "f"},
			{Content: &pb.Part_Text{}},
		}},
		Configuration: &pb.SendMessageConfiguration{HistoryLength: proto.Int32(5)},
	}, sent)
	if parts := sent.GetTask().GetHistory()[0].GetParts(); len(parts) != 2 ||
		!bytes.Equal(parts[0].GetRaw(), []byte{0xff, 0xfe, 1}) || parts[0].GetMediaType() != "a/b" {
		t.Errorf("the message came back as %v", parts)
	}
	card := &pb.AgentCard{}
	if err := protojson.Unmarshal(exchange(t, http.MethodGet, base+scriptAgent+"/.well-known/agent-card.json", ""),
		card); err != nil {
		t.Errorf("the card: %v", err)
	}
}

// exchange makes one request of version 1.0.
func exchange(t *testing.T, method, url, body string) []byte {
	t.Helper()
	return exchangeAs(t, "1.0", method, url, body)
}

func exchangeAs(t *testing.T, version, method, url, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("A2A-Version", version)
	resp, err := httpClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
