package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/a2ad/a2ad/internal/e2e/attack"
	"github.com/a2ad/a2ad/internal/wire/transcode"
)

// calls are the attacks over gRPC.
func (s *siege) calls(target *attack.Target, addr string, seen map[string]*attack.Statuses) []func() func() {
	calls := func(name string, conns, number int) *attack.Calls {
		seen[name] = &attack.Statuses{}
		return target.Calls(addr, conns, number, seen[name])
	}
	task, list := target.TaskMessage(s.large), target.ListMessage(100, "")
	return []func() func(){
		func() func() { return calls("announced calls", 2, 200).Stalled("SendMessage", 4<<20, 1) },
		func() func() { return calls("nearly complete calls", 4, 50).Stalled("SendMessage", 4<<20, 4<<20-1) },
		func() func() { return calls("unread calls", 2, 10).Unread("GetTask", task) },
		func() func() { return calls("unread lists by call", 2, 10).Unread("ListTasks", list) },
		func() func() { return calls("unread streams by call", 2, 10).Unread("SubscribeToTask", task) },
		func() func() { return calls("lists by call", 1, 4).Flood("ListTasks", list) },
		func() func() { return calls("reads by call", 1, 2).Flood("GetTask", task) },
	}
}

// Pages over gRPC end by bytes too, in both services.
func TestPagesOverGRPCAreLimitedByBytes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_GRPC_LISTEN=127.0.0.1:0")
	// the default agent, because 0.3 reaches no other
	target := &attack.Target{Addr: strings.TrimPrefix(a.base, "http://"), Agent: "echo"}
	client := &http.Client{Timeout: patience}
	const tasks, most = 6, 5 << 20
	for i := range tasks {
		answered(t, target, client, attack.Large(fmt.Sprint("m", i), "", 1900<<10, true))
	}
	conn, err := grpc.NewClient(a.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, service := range []*transcode.Service{transcode.V03(), transcode.V1()} {
		ids, token := map[string]bool{}, ""
		for range 20 {
			answer := c.pageOver(conn, service, token)
			if n := proto.Size(answer); n > most {
				t.Errorf("%s: a page of %d bytes", service.Name, n)
			}
			text, err := protojson.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			var list struct {
				Tasks         []struct{ ID string }
				NextPageToken string
			}
			if err := json.Unmarshal(text, &list); err != nil {
				t.Fatal(err)
			}
			for _, task := range list.Tasks {
				if ids[task.ID] {
					t.Errorf("%s: task %s is listed twice", service.Name, task.ID)
				}
				ids[task.ID] = true
			}
			if token = list.NextPageToken; token == "" {
				break
			}
		}
		if len(ids) != tasks {
			t.Errorf("%s: %d tasks in all pages, want %d", service.Name, len(ids), tasks)
		}
	}
}

// pageOver asks for a page of 100 tasks with their artifacts.
func (c *cluster) pageOver(conn *grpc.ClientConn, service *transcode.Service, token string) proto.Message {
	c.t.Helper()
	for i := range service.Methods {
		m := &service.Methods[i]
		if m.Name != "ListTasks" {
			continue
		}
		req, answer := m.Request(), m.Answer()
		if err := protojson.Unmarshal([]byte(`{"pageSize":100,"includeArtifacts":true,"pageToken":"`+token+`"}`),
			req); err != nil {
			c.t.Fatal(err)
		}
		if err := conn.Invoke(bounded(c.t), "/"+service.Name+"/ListTasks", req, answer); err != nil {
			c.t.Fatalf("%s: %v", service.Name, err)
		}
		return answer
	}
	c.t.Fatalf("%s has no ListTasks", service.Name)
	return nil
}
