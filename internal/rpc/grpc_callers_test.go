package rpc_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/rpc"
)

// keyring authenticates callers by the text of their key.
type keyring struct{ auth.Anonymous }

func (keyring) Authenticate(r *http.Request) (auth.Principal, error) {
	name := r.Header.Get("X-API-Key")
	if name == "" {
		name = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	if name == "" {
		return auth.Principal{}, auth.ErrNoCredential
	}
	scopes := auth.Scopes()
	if name == "reader" {
		scopes = []auth.Scope{auth.ScopeTasksRead}
	}
	return auth.Principal{Tenant: "default", Owner: name, Kind: auth.KindUser, Scopes: scopes}, nil
}

func (keyring) Challenges() []string { return []string{`Bearer realm="a2ad"`} }

// TestGRPCCallers: calls without credentials are refused, and a foreign task is an unknown task.
func TestGRPCCallers(t *testing.T) {
	t.Parallel()
	_, conn, _ := openGRPC(t, func(c *rpc.Config) { c.Authenticator = auth.Chain{keyring{}} })
	for _, d := range grpcDialects {
		c := caller{t, conn, d.service}
		for _, name := range []string{
			"SendMessage", "GetTask", "ListTasks", "CancelTask", "CreateTaskPushNotificationConfig",
			"GetTaskPushNotificationConfig", d.listPush, "DeleteTaskPushNotificationConfig",
		} {
			_, r, st := c.try(name, `{}`)
			wantStatus(t, name+" without credentials", st, codes.Unauthenticated, "UNAUTHENTICATED")
			if got := r.challenges(t); !slices.Equal(got, []string{`Bearer realm="a2ad"`}) {
				t.Errorf("%s: challenges %v of %v", name, got, r.trailer)
			}
		}
		for _, name := range []string{"SendStreamingMessage", d.subscribe} {
			s := c.follow(t.Context(), name, `{}`)
			s.all()
			wantStatus(t, name+" without credentials", s.end, codes.Unauthenticated, "UNAUTHENTICATED")
		}
		made := object(t, c.call("SendMessage", d.send("", `{"op":"input"}`, true), "x-api-key", "alice")["task"])
		for _, pairs := range [][]string{{"authorization", "Bearer alice"}, {"x-api-key", "alice"}} {
			equal(t, "the task for its owner", made, c.call("GetTask", d.ref(id(made)), pairs...))
		}
		for name, params := range map[string]string{
			"GetTask": d.ref(id(made)), "CancelTask": d.ref(id(made)),
			"SendMessage":                      d.send(id(made), `{"op":"complete"}`, true),
			"CreateTaskPushNotificationConfig": d.push(id(made)), "GetTaskPushNotificationConfig": d.pushRef(id(made)),
			"DeleteTaskPushNotificationConfig": d.pushRef(id(made)),
		} {
			_, _, st := c.try(name, params, "x-api-key", "bob")
			wantStatus(t, name+" of a foreign task", st, codes.NotFound, "TASK_NOT_FOUND")
		}
		s := c.follow(t.Context(), d.subscribe, d.ref(id(made)), "x-api-key", "bob")
		s.all()
		wantStatus(t, "a stream of a foreign task", s.end, codes.NotFound, "TASK_NOT_FOUND")
		if list := c.call("ListTasks", `{}`, "x-api-key", "bob"); list["tasks"] != nil {
			t.Errorf("bob's tasks: %v", list)
		}
		_, r, st := c.try("SendMessage", d.send("", `{"op":"complete"}`, true), "x-api-key", "reader")
		wantStatus(t, "a send without the scope", st, codes.PermissionDenied, "FORBIDDEN")
		if len(r.challenges(t)) != 1 {
			t.Errorf("challenges %v", r.trailer)
		}
	}
}

// TestGRPCTenants: requests of 1.0 name an agent by the tenant in its card.
func TestGRPCTenants(t *testing.T) {
	t.Parallel()
	s, conn, _ := openGRPC(t, func(c *rpc.Config) {
		c.GRPCAddress = "grpc.example:443"
		c.Agents = append(c.Agents, &a2a.Agent{Name: "other"})
	})
	c := caller{t, conn, service1}
	made := object(t, c.call("SendMessage",
		strings.Replace(grpcDialects[1].send("", "", false), `{`, `{"tenant":"other",`, 1))["task"])
	c.call("GetTask", `{"tenant":"other","id":"`+id(made)+`"}`)
	_, _, st := c.try("GetTask", `{"id":"`+id(made)+`"}`)
	wantStatus(t, "the task of another agent", st, codes.NotFound, "TASK_NOT_FOUND")
	_, _, st = c.try("GetTask", `{"tenant":"nobody","id":"`+id(made)+`"}`)
	wantStatus(t, "an unknown agent", st, codes.InvalidArgument, "INVALID_PARAMS")

	at := func(path string) (found []string) {
		resp, err := s.Client().Get(s.URL + path + "/.well-known/agent-card.json")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		card, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rawjson.Elements(rawjson.Get(card, "supportedInterfaces")) {
			if string(rawjson.Get(i, "protocolBinding")) == `"GRPC"` {
				found = append(found, string(rawjson.Get(i, "url"))+string(rawjson.Get(i, "protocolVersion"))+
					string(rawjson.Get(i, "tenant")))
			}
		}
		for i := range rawjson.Elements(rawjson.Get(card, "additionalInterfaces")) {
			if string(rawjson.Get(i, "transport")) == `"GRPC"` {
				found = append(found, "0.3: "+string(rawjson.Get(i, "url")))
			}
		}
		return found
	}
	equal(t, "the card of the default agent",
		[]string{`"grpc.example:443""1.0"`, `"grpc.example:443""0.3"`, `0.3: "grpc.example:443"`}, at(""))
	equal(t, "the card of another agent", []string{`"grpc.example:443""1.0""other"`}, at("/agents/other"))
	plain := newSite(t)
	s = plain
	equal(t, "the card without gRPC", []string(nil), at(""))
}
