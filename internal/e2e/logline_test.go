package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// A request has one log line and one counter, whether by JSON-RPC, HTTP+JSON or gRPC, and neither contains a secret.
func TestEachBindingLogsAndCountsRequestsAlike(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_ADMIN_LISTEN=127.0.0.1:0", "A2AD_GRPC_LISTEN=127.0.0.1:0", "A2AD_LOG_LEVEL=debug")
	const secret = "canary-token"
	got := c.rpc(a, "echo", "message/send",
		`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"canary-text"}]}}`)
	var task struct{ ID string }
	if err := json.Unmarshal(got.result, &task); err != nil {
		t.Fatalf("send: %s", got.body)
	}
	at := func(n string) string { return "00-" + n + clientTrace[1:] + "-" + clientSpan + "-01" }
	c.post(a, "/", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+task.ID+`"}}`, "A2A-Version", "1.0",
		"Traceparent", at("1"), "Authorization", "Bearer "+secret)
	c.do(a, http.MethodGet, "/tasks/"+task.ID, nil, "A2A-Version", "1.0", "Traceparent", at("2"), "Authorization",
		"Bearer "+secret)
	conn, err := grpc.NewClient(a.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(bounded(t), "traceparent", at("3"), "authorization", "Bearer "+secret)
	if _, err := apb1.NewA2AServiceClient(conn).GetTask(ctx, &apb1.GetTaskRequest{Id: task.ID}); err != nil {
		t.Fatal(err)
	}
	e := a.scrape()
	for n, want := range map[string]struct{ msg, route, code string }{
		"1": {"request", "/", "200"}, "2": {"request", "/tasks/{id}", "200"}, "3": {"call", "grpc", "OK"},
	} {
		trace := n + clientTrace[1:]
		line := a.awaitLog(want.msg, func(l logLine) bool { return l.str("trace_id") == trace })
		owner, _ := line["principal"].(map[string]any)
		if line.str("method") != "GetTask" || line.str("version") != "1.0" || line.str("task_id") != task.ID ||
			line.str("route") != want.route || owner["owner"] != "anonymous" || line.str("request_id") == "" {
			t.Errorf("%s logs %v", want.route, line)
		}
		if same := a.log.count(func(l logLine) bool { return l.str("trace_id") == trace }); same != 1 {
			t.Errorf("%s has %d lines, want 1", want.route, same)
		}
		if n := e.sum("a2ad_http_requests_total", "route", want.route, "method", "GetTask", "version", "1.0", "code",
			want.code); n != 1 {
			t.Errorf("%s counts %v requests, want 1", want.route, n)
		}
	}
	_, shown := a.health("/metrics")
	for _, canary := range []string{secret, "canary-text"} {
		if strings.Contains(a.log.all(), canary) || strings.Contains(shown, canary) {
			t.Errorf("%s is in the log or in the metrics", canary)
		}
	}
	if strings.Contains(shown, task.ID) || strings.Contains(shown, "anonymous") {
		t.Error("the metrics have the id of a task or an owner")
	}
}
