package rpc_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rpc"
)

// byHeader believes X-Who: tenant/owner. Names after it, separated by spaces, are the only agents
// of the caller.
type byHeader struct{ auth.Anonymous }

func (byHeader) Authenticate(r *http.Request) (auth.Principal, error) {
	words := strings.Fields(r.Header.Get("X-Who"))
	if len(words) == 0 {
		return auth.Principal{}, auth.ErrNoCredential
	}
	tenant, owner, _ := strings.Cut(words[0], "/")
	p := auth.Principal{Tenant: tenant, Owner: owner, Kind: auth.KindUser, Scopes: auth.Scopes(),
		Method: auth.MethodAPIKey, KeyID: owner}
	if len(words) > 1 {
		p.Agents = words[1:]
	}
	return p, nil
}

// as returns the site as the given caller sees it.
func (s *site) as(t *testing.T, who string) *site {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Who", who)
		s.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return &site{Server: server}
}

// shared is a site with gRPC. Callers name themselves.
type shared struct {
	*site
	grpc string // address
}

func newSharing(t *testing.T, sharing bool) shared {
	t.Helper()
	s, conn, _ := openGRPC(t, func(c *rpc.Config) { c.Authenticator, c.Shared = auth.Chain{byHeader{}}, sharing })
	return shared{s, conn.Target()}
}

// speakers returns clients of all versions and bindings that are signed in as the caller.
func (s shared) speakers(t *testing.T, who string) map[string]speaker {
	t.Helper()
	named := func(ctx context.Context) context.Context { return metadata.AppendToOutgoingContext(ctx, "x-who", who) }
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(named(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(named(ctx), desc, cc, method, opts...)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	web := s.as(t, who)
	return map[string]speaker{
		"1.0 JSON-RPC":    overRPC{web, dialects[1]},
		"0.3 JSON-RPC":    overRPC{web, dialects[0]},
		"1.0 REST":        overREST{web, "", wordsV1},
		"0.3 REST":        overREST{web, "/v1", wordsSchema},
		"0.3 REST, proto": overREST{web, "/v1", wordsProto},
		"1.0 gRPC":        overGRPC{conn, service1, wordsV1},
		"0.3 gRPC":        overGRPC{conn, service03, wordsProto},
	}
}

// uses are all operations on a task that waits for input. The last one ends the task.
func uses(task string) []operation {
	return []operation{
		{name: "GetTask", task: task},
		{name: "CreateTaskPushNotificationConfig", task: task, config: "one"},
		{name: "GetTaskPushNotificationConfig", task: task, config: "one"},
		{name: "ListTaskPushNotificationConfigs", task: task},
		{name: "DeleteTaskPushNotificationConfig", task: task, config: "one"},
		{name: "SendMessage", task: task, script: `{"op":"input"}`},
		{name: "CancelTask", task: task},
	}
}

// TestOwnersOfATenantShareTasksIfConfigured: the other owners of the tenant may do everything with
// a task that its owner may, and callers of other tenants nothing.
func TestOwnersOfATenantShareTasksIfConfigured(t *testing.T) {
	t.Parallel()
	s := newSharing(t, true)
	ann, bob, eve := s.speakers(t, "acme/ann"), s.speakers(t, "acme/bob"), s.speakers(t, "other/ann")
	for name := range ann {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := "context of " + name
			made, _ := ann[name].do(t, &operation{name: "SendMessage", context: ctx, script: `{"op":"input"}`})
			task := id(object(t, made))
			for _, op := range uses(task) {
				if _, reason := eve[name].do(t, &op); !strings.Contains(reason, "TASK_NOT_FOUND") {
					t.Errorf("another tenant, %s: got %q", op.name, reason)
				}
			}
			list := operation{name: "ListTasks", context: ctx, size: "5"}
			for who, want := range map[string]int{"ann": 1, "bob": 1, "eve": 0} {
				page, _ := map[string]map[string]speaker{"ann": ann, "bob": bob, "eve": eve}[who][name].do(t, &list)
				tasks, _ := object(t, page)["tasks"].([]any)
				if len(tasks) != want {
					t.Errorf("%s lists %d tasks, want %d", who, len(tasks), want)
				}
			}
			feed := bob[name].follow(t, &operation{name: "SubscribeToTask", task: task})
			if item, _ := feed.next(t); item == nil {
				t.Error("an empty stream")
			}
			for _, op := range uses(task) {
				if _, reason := bob[name].do(t, &op); reason != "" {
					t.Errorf("another owner of the tenant, %s: %q", op.name, reason)
				}
			}
		})
	}
}

// TestOwnersShareNothingByDefault: without the setting, the other owners of the tenant have no
// access.
func TestOwnersShareNothingByDefault(t *testing.T) {
	t.Parallel()
	s := newSharing(t, false)
	ann, bob := s.speakers(t, "acme/ann"), s.speakers(t, "acme/bob")
	for name := range ann {
		made, _ := ann[name].do(t, &operation{name: "SendMessage", script: `{"op":"input"}`})
		for _, op := range uses(id(object(t, made))) {
			if _, reason := bob[name].do(t, &op); !strings.Contains(reason, "TASK_NOT_FOUND") {
				t.Errorf("%s: %s: %q", name, op.name, reason)
			}
		}
	}
}

// TestCredentialsForOtherAgentsAreRefused: every binding refuses them before it reads anything from
// the database.
func TestCredentialsForOtherAgentsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSharing(t, false)
	mine, others := s.speakers(t, "acme/ann script more"), s.speakers(t, "acme/ann other")
	const unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
	for name := range mine {
		made, reason := mine[name].do(t, &operation{name: "SendMessage", script: `{"op":"input"}`})
		if reason != "" {
			t.Fatalf("%s: %s", name, reason)
		}
		known := uses(id(object(t, made)))
		for i, op := range uses(unknown) {
			_, to := others[name].do(t, &op)
			_, of := others[name].do(t, &known[i])
			if to != of || !slices.Contains([]string{"FORBIDDEN", "PERMISSION_DENIED"}, to) {
				t.Errorf("%s: %s: got %q for an unknown task, %q for an existing one", name, op.name, to, of)
			}
		}
	}
	for path, want := range map[string]int{"/": http.StatusForbidden, "/agents/script/v1/tasks": http.StatusForbidden} {
		method, body := http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`
		if path != "/" {
			method, body = http.MethodGet, ""
		}
		got := send(t, s.as(t, "acme/ann other").Server, method, path, body,
			http.Header{"Content-Type": {"application/json"}})
		if got.status != want {
			t.Errorf("%s: status %d\n%s", path, got.status, got.body)
		}
	}
}
