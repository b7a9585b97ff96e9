package e2e_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
)

// TestBadCredentialsCountAtEveryEndpoint: after too many bad credentials at any endpoint, every endpoint answers
// further bad ones from that address with 429. A good credential is accepted all the same, even if it was never used
// before.
func TestBadCredentialsCountAtEveryEndpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_AUTH=required", "A2AD_RATE_SIGN_INS=0.001,3")
	works := c.apiKey("acme", "ann", "worker")
	at := func(path, key string) httpAnswer {
		if path == "/tasks" {
			return c.do(a, http.MethodGet, path, nil, "X-API-Key", key, "A2A-Version", "1.0")
		}
		if path == "/agents/echo" {
			return c.post(a, path, request("tasks/list", `{}`), "X-API-Key", key)
		}
		return c.post(a, path, `{"worker":"w","agents":["nope"]}`, "X-API-Key", key)
	}
	throttled := func(got httpAnswer) bool {
		wait, _ := strconv.Atoi(got.header.Get("Retry-After"))
		return got.status == http.StatusTooManyRequests && wait >= 100 &&
			strings.HasPrefix(got.header.Get("RateLimit"), `"sign-ins";r=0`)
	}
	for _, path := range []string{"/worker/v1/claim", "/tasks", "/agents/echo"} {
		if got := at(path, "nonsense"); got.status != http.StatusUnauthorized {
			t.Errorf("%s, before the limit: %d %s", path, got.status, got.body)
		}
	}
	unknown, err := auth.NewKey("live", nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		scope  string
		status int
	}{
		"/tasks":                        {"tasks:read", 200},
		"/agents/echo":                  {"tasks:read", 200},
		"/worker/v1/claim":              {"worker", 404}, // unknown agent
		"/worker/v1/runs/x/1/heartbeat": {"worker", 400}, // the body is not valid here
		"/worker/v1/runs/x/1/events":    {"worker", 400},
		"/worker/v1/runs/x/1/finish":    {"worker", 400},
	} {
		for _, key := range []string{"nonsense", unknown.Reveal()} {
			if got := at(path, key); !throttled(got) {
				t.Errorf("%s, a bad key after the limit: %d %v %s", path, got.status, got.header, got.body)
			}
		}
		good, other := c.apiKey("acme", "ann", want.scope), c.apiKey("acme", "ann", "push:write")
		for range 2 { // for the first time, and again when it is cached
			if got := at(path, good); got.status != want.status {
				t.Errorf("%s, a good key after the limit: %d %s, want %d", path, got.status, got.body, want.status)
			}
		}
		if got := at(path, other); got.status != http.StatusForbidden {
			t.Errorf("%s, a good key without the scope: %d %s", path, got.status, got.body)
		}
		if got := at(path, "nonsense"); !throttled(got) {
			t.Errorf("%s, a bad key after good ones: %d %v %s", path, got.status, got.header, got.body)
		}
		c.key = good
	}
	if got := at("/worker/v1/claim", works); got.status != http.StatusNotFound {
		t.Fatalf("%d %s", got.status, got.body)
	}
	c.must("apikey", "revoke", keyID(t, works))
	until(t, "a revoked key counts as a bad one",
		func() bool { return throttled(at("/worker/v1/claim", works)) })
}

// Every endpoint except the public ones refuses callers without credentials, with bad credentials or without the
// scope.
func TestEveryEndpointRequiresCredentials(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_AUTH=required", "A2AD_RATE_SIGN_INS=off")
	worker, revoked := c.apiKey("acme", "ann", "worker"),
		c.apiKey("acme", "ann", "tasks:read,tasks:write,push:write,worker")
	c.must("apikey", "revoke", keyID(t, revoked))
	unknown, err := auth.NewKey("live", nil)
	if err != nil {
		t.Fatal(err)
	}
	const task = "01a1f887-7fbd-72d5-a178-36d674819994"
	rest := []string{
		"POST /message:send", "POST /message:stream", "GET /tasks", "GET /tasks/" + task,
		"POST /tasks/" + task + ":cancel", "GET /tasks/" + task + ":subscribe", "POST /tasks/" + task + ":subscribe",
		"POST /tasks/" + task + "/pushNotificationConfigs", "GET /tasks/" + task + "/pushNotificationConfigs",
		"GET /tasks/" + task + "/pushNotificationConfigs/x", "DELETE /tasks/" + task + "/pushNotificationConfigs/x",
	}
	doors := []string{"POST /", "POST /agents/echo", "POST /agents/echo/"}
	for _, prefix := range []string{"", "/v1", "/echo", "/agents/echo", "/agents/echo/v1"} {
		for _, door := range rest {
			doors = append(doors, strings.Replace(door, " ", " "+prefix, 1))
		}
		doors = append(doors, "GET "+prefix+map[bool]string{true: "/card",
			false: "/extendedAgentCard"}[strings.HasSuffix(prefix, "/v1")])
	}
	workers := []string{"POST /worker/v1/claim", "POST /worker/v1/runs/" + task + "/1/events",
		"POST /worker/v1/runs/" + task + "/1/heartbeat", "POST /worker/v1/runs/" + task + "/1/finish"}
	knock := func(door string, header ...string) httpAnswer {
		method, path, _ := strings.Cut(door, " ")
		if !strings.Contains(path, "/v1/") {
			header = append(header[:len(header):len(header)], "A2A-Version", "1.0")
		}
		return c.do(a, method, path,
			strings.NewReader(`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},`+
				`"url":"https://h"}`), header...)
	}
	before := c.rows()
	for _, door := range append(doors, workers...) {
		texts := map[string]bool{}
		for _, header := range [][]string{nil, {"X-API-Key", "nonsense"}, {"X-API-Key", revoked},
			{"X-API-Key", unknown.Reveal()}, {"Authorization", "Bearer " + revoked}, {"Authorization", "Basic eDp5"}} {
			got := knock(door, header...)
			if got.status != http.StatusUnauthorized || len(got.header.Values("WWW-Authenticate")) != 2 {
				t.Errorf("%s with %.20q: %d %v %s", door, header, got.status, got.header, got.body)
			}
			texts[string(got.body)] = true
		}
		if len(texts) != 1 {
			t.Errorf("%s reveals what was wrong: %v", door, texts)
		}
		if slices.Contains(workers, door) || slices.Contains(doors[:3], door) { // the body says what JSON-RPC asks for
			continue
		}
		if got := knock(door, "X-API-Key", worker); got.status != http.StatusForbidden {
			t.Errorf("%s by a worker: %d %s", door, got.status, got.body)
		}
	}
	reader := c.apiKey("acme", "ann", "tasks:read,tasks:write,push:write")
	for _, door := range workers {
		if got := knock(door, "X-API-Key", reader); got.status != http.StatusForbidden ||
			!strings.Contains(got.header.Get("WWW-Authenticate"), `scope="worker"`) {
			t.Errorf("%s without the worker scope: %d %s", door, got.status, got.body)
		}
	}
	if after := c.rows(); after != before {
		t.Errorf("left %d rows", after-before)
	}
	for _, door := range []string{
		"GET /.well-known/agent-card.json", "GET /.well-known/agent.json",
		"GET /agents/echo/.well-known/agent-card.json", "GET /.well-known/jwks.json", "GET /worker/v1/openapi.json",
	} {
		if got := knock(door); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", door, got.status, got.body)
		}
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/livez", "/readyz", "/worker/v1/",
		"/worker/", "/admin", "/agents", "/agents/", "/v1", "/.well-known/"} {
		if got := knock("GET "+path, "X-API-Key", reader); got.status != http.StatusNotFound &&
			got.status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// A task that waits for credentials continues only after a message that is itself authenticated and permitted. The
// agent gets none of the request's credentials.
func TestAuthRequiredTaskGrantsNoAccess(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const dump = "name: dump\ndescription: Says what it is given.\nexecutor: {exec: {command: [sh, -c, 'cat; env'], " +
		"output: text}}\n"
	c.agent("dump", dump)
	a := c.start("a", "A2AD_AUTH=required")
	ann, reader, bob := c.apiKey("acme", "ann", "tasks:read,tasks:write"), c.apiKey("acme", "ann", "tasks:read"),
		c.apiKey("acme", "bob", "tasks:read,tasks:write")
	c.key = ann
	cl := c.client(a, "script")
	cl.APIKey = ann
	asked := send(t, cl, play(`{"op":"auth","text":"sign in at https://example.com"},{"op":"complete","text":"done"}`))
	if asked.State != a2a.StateAuthRequired {
		t.Fatalf("got %s", asked.Raw)
	}
	before := c.rows()
	refused := map[string]string{"no key": "", "a key with the read scope only": reader, "another owner": bob}
	for who, key := range refused {
		m := message(`,"taskId":"` + asked.TaskID + `","metadata":{"Authorization":"Bearer ` + ann + `"}`)
		got := c.post(a, "/agents/script", m, "X-API-Key", key)
		if got.status == http.StatusOK && got.code != taskNotFound {
			t.Errorf("%s continues the task: %s", who, got.body)
		}
	}
	if after := c.rows(); after != before {
		t.Errorf("refused callers left %d rows", after-before)
	}
	if end := send(t, cl, reply(asked.TaskID, "I have")); end.State != a2a.StateCompleted {
		t.Errorf("got %s", end.Raw)
	}
	other := c.client(a, "dump")
	other.APIKey = ann
	if got := send(t, other, say("hello")); len(got.Artifacts) != 1 || strings.Contains(string(got.Raw), ann) ||
		strings.Contains(string(got.Raw), c.url) {
		t.Errorf("the agent gets %s", got.Raw)
	}
}
