package rpc_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// TestPanicEndsOnlyItsRequest: without an engine, every permitted request panics. The client learns
// that something failed but not what, and the server continues.
func TestPanicEndsOnlyItsRequest(t *testing.T) {
	t.Parallel()
	s, err := rpc.New(rpc.Config{
		Authenticator: auth.Anonymous{}, V03: v03.Codec{}, V1: v1.Codec{},
		Agents: []*a2a.Agent{{Name: "a", Default: true}}, PublicURL: "http://h",
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	conn, _ := serveGRPC(t, &site{rpc: s})
	call := caller{t, conn, service1}
	internal := func(what string, st *status.Status) {
		if st.Code() != codes.Internal || st.Message() != "Internal error" {
			t.Errorf("%s: %v", what, st)
		}
	}
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	for range 2 {
		for _, method := range []string{"tasks/get", "tasks/resubscribe"} {
			resp, err := server.Client().Post(server.URL, "application/json",
				strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"id":"`+id+`"}}`))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusInternalServerError ||
				strings.Contains(string(body), "pointer") {
				t.Errorf("%s: %d %s, %v", method, resp.StatusCode, body, err)
			}
		}
		_, _, st := call.try("GetTask", `{"id":"`+id+`"}`)
		internal("a call", st)
		m := call.follow(t.Context(), "SubscribeToTask", `{"id":"`+id+`"}`)
		if item := m.next(); item != nil {
			t.Fatalf("a stream of %v", item)
		}
		internal("a stream", m.end)
	}
}
