package e2e_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	apb03 "github.com/a2aproject/a2a-go/a2apb"
	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// badge is how a client proves its identity.
type badge struct {
	secure *tls.Config // nil: no TLS
	header http.Header
	from   string // the client's address; empty: any
}

func (b badge) with(name, value string) badge {
	b.header = b.header.Clone()
	if b.header == nil {
		b.header = make(http.Header)
	}
	b.header.Set(name, value)
	return b
}

func (b badge) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	if b.from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(b.from)}
	}
	return d.DialContext(ctx, "tcp", address)
}

// transport returns a transport with its own connections.
func (b badge) transport() *http.Transport {
	return &http.Transport{TLSClientConfig: b.secure, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return b.dial(ctx, address) }}
}

// ask sends a request on a new connection.
func (b badge) ask(t *testing.T, r *replica, method, path, body string, header ...string) (httpAnswer, error) {
	t.Helper()
	next := b.transport()
	defer next.CloseIdleConnections()
	req, err := http.NewRequestWithContext(bounded(t), method, r.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for name, values := range b.header {
		req.Header[name] = values
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := next.RoundTrip(req)
	if err != nil {
		return httpAnswer{}, err
	}
	defer resp.Body.Close()
	return readAnswer(t, resp), nil
}

// list requests the client's tasks.
func (b badge) list(t *testing.T, r *replica) (httpAnswer, error) {
	t.Helper()
	return b.ask(t, r, http.MethodPost, "/", request("tasks/list", `{}`))
}

// call makes one call over gRPC.
func (b badge) call(t *testing.T, r *replica, call func(context.Context, *grpc.ClientConn) (proto.Message,
	error)) (proto.Message, *status.Status) {
	t.Helper()
	creds := insecure.NewCredentials()
	if b.secure != nil {
		creds = credentials.NewTLS(b.secure)
	}
	conn, err := grpc.NewClient(r.grpc, grpc.WithTransportCredentials(creds), grpc.WithContextDialer(b.dial))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	md := make(metadata.MD)
	for name, values := range b.header {
		md[strings.ToLower(name)] = values
	}
	got, err := call(metadata.NewOutgoingContext(bounded(t), md), conn)
	return got, status.Convert(err)
}

// bindings return whether a client can see a task, and the text of the answer without the id.
var bindings = map[string]func(t *testing.T, r *replica, b badge, task string) (found, signedIn bool, words string){
	"0.3 JSON-RPC": func(t *testing.T, r *replica, b badge, task string) (found, signedIn bool, words string) {
		return b.read(t, r, task, http.MethodPost, "/", request("tasks/get", `{"id":"`+task+`"}`), "0.3")
	},
	"0.3 JSON-RPC, cancel": func(t *testing.T, r *replica, b badge, task string) (found, signedIn bool, words string) {
		_, signedIn, words = b.read(t, r, task, http.MethodPost, "/", request("tasks/cancel", `{"id":"`+task+`"}`),
			"0.3")
		return strings.Contains(words, `"error":{"code":-32002`), signedIn, words // it has ended
	},
	"1.0 JSON-RPC": func(t *testing.T, r *replica, b badge, task string) (found, signedIn bool, words string) {
		return b.read(t, r, task, http.MethodPost, "/", request("GetTask", `{"id":"`+task+`"}`), "1.0")
	},
	"0.3 REST": func(t *testing.T, r *replica, b badge, task string) (found, signedIn bool, words string) {
		return b.read(t, r, task, http.MethodGet, "/v1/tasks/"+task, "", "0.3")
	},
	"1.0 REST": func(t *testing.T, r *replica, b badge, task string) (found, signedIn bool, words string) {
		return b.read(t, r, task, http.MethodGet, "/tasks/"+task, "", "1.0")
	},
	"0.3 gRPC": func(t *testing.T, r *replica, b badge, task string) (found, signedIn bool, words string) {
		return b.overGRPC(t, r, task, func(ctx context.Context, conn *grpc.ClientConn) (proto.Message, error) {
			return apb03.NewA2AServiceClient(conn).GetTask(ctx, &apb03.GetTaskRequest{Name: "tasks/" + task})
		})
	},
	"1.0 gRPC": func(t *testing.T, r *replica, b badge, task string) (found, signedIn bool, words string) {
		return b.overGRPC(t, r, task, func(ctx context.Context, conn *grpc.ClientConn) (proto.Message, error) {
			return apb1.NewA2AServiceClient(conn).GetTask(ctx, &apb1.GetTaskRequest{Id: task})
		})
	},
}

func (b badge) read(t *testing.T, r *replica, task, method, path, body, version string) (found, signedIn bool,
	words string) {
	t.Helper()
	a, err := b.ask(t, r, method, path, body, "A2A-Version", version)
	if err != nil {
		return false, false, "no connection"
	}
	text := string(a.body)
	return a.status == http.StatusOK && a.code == 0 && strings.Contains(text, task),
		a.status != http.StatusUnauthorized, fmt.Sprintln(a.status, strings.ReplaceAll(text, task, "ID"))
}

func (b badge) overGRPC(t *testing.T, r *replica, task string,
	call func(context.Context, *grpc.ClientConn) (proto.Message, error)) (found, signedIn bool, words string) {
	t.Helper()
	got, st := b.call(t, r, call)
	switch st.Code() {
	case codes.OK:
		return strings.Contains(fmt.Sprint(got), task), true, "OK"
	case codes.Unavailable:
		return false, false, "no connection"
	}
	return false, st.Code() != codes.Unauthenticated,
		strings.ReplaceAll(fmt.Sprintln(st.Code(), st.Message(), st.Details()), task, "ID")
}

// unknownTask is the id of no task.
const unknownTask = "01890a5d-ac96-774b-bcce-b302099a8057"

// checkIsolation requests ann's task over every binding, as ann and as callers who may not see it.
func checkIsolation(t *testing.T, r *replica, task string, ann badge, others, strangers map[string]badge) {
	t.Helper()
	for name, ask := range bindings {
		if found, _, words := ask(t, r, ann, task); !found {
			t.Errorf("%s: the owner gets %s", name, words)
		}
		for who, b := range others {
			found, signedIn, foreign := ask(t, r, b, task)
			if _, _, none := ask(t, r, b, unknownTask); found || !signedIn || foreign != none ||
				foreign == "no connection" {
				t.Errorf("%s: %s gets %sfor an unknown task %s", name, who, foreign, none)
			}
		}
		for who, b := range strangers {
			if found, signedIn, words := ask(t, r, b, task); found || signedIn {
				t.Errorf("%s: %s reads %s", name, who, words)
			}
		}
	}
}
