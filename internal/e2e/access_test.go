package e2e_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
)

// must runs an operator's command that has to succeed.
func (c *cluster) must(args ...string) {
	c.t.Helper()
	if out, notes, code := c.operate(nil, args...); code != 0 {
		c.t.Fatalf("%v: exit code %d: %s%s", args, code, out, notes)
	}
}

// Every replica has cached the key. It must drop the key long before the cached entry expires.
func TestRevokedKeyIsRefusedByEveryReplicaAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	replicas := []*replica{c.start("a", "A2AD_AUTH=required"), c.start("b", "A2AD_AUTH=required")}
	key := c.apiKey("acme", "ann", "tasks:read")
	id, _, err := auth.ParseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *replica) int {
		return c.post(r, "/agents/echo", request("tasks/list", `{}`), "X-API-Key", key).status
	}
	for _, r := range replicas {
		if status := ask(r); status != http.StatusOK {
			t.Fatalf("%s: status %d", r.name, status)
		}
	}
	start := time.Now()
	c.must("apikey", "revoke", id)
	for _, r := range replicas {
		until(t, r.name+" refuses the key", func() bool { return ask(r) == http.StatusUnauthorized })
	}
	if took := time.Since(start); took > auth.MaxKeyTTL/2 {
		t.Errorf("the replicas took %v to refuse the key", took)
	}
}

// Owners of one tenant share tasks where the setting says so. The audit log names the owner.
func TestSharedTenantOwnersSeeEachOthersTasks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_AUTH=required", "A2AD_SHARING=tenant")
	ann, bob, eve := c.apiKey("acme", "ann", "tasks:read,tasks:write"),
		c.apiKey("acme", "bob", "tasks:read,tasks:write"), c.apiKey("other", "bob", "tasks:read,tasks:write")
	cl := c.client(a, "script")
	cl.APIKey = ann
	task := send(t, cl, play(`{"op":"input"}`)).TaskID
	cl.APIKey = eve
	if _, err := cl.Cancel(bounded(t), task); !refused(err, taskNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	cl.APIKey = bob
	got, err := cl.Cancel(bounded(t), task)
	if err != nil || got.State != a2a.StateCanceled {
		t.Errorf("another owner of the tenant: %s, %v", got.State, err)
	}
	id, _, _ := auth.ParseKey(bob)
	if actor := one[string](c,
		`SELECT actor || ' ' || owner FROM audit.action WHERE action = 'task.cancel' AND task_id::text = $1`,
		task); actor != "key "+id+" ann" {
		t.Errorf("canceled by %q", actor)
	}
	c.key = ann
}

// The server discovers the identity provider, and accepts tokens while the provider is unreachable.
func TestTokensOfAnIdentityProviderAreAccepted(t *testing.T) {
	t.Parallel()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := jose.JSONWebKey{Key: private, KeyID: "k", Algorithm: string(jose.EdDSA)}
	mux := http.NewServeMux()
	idp := httptest.NewServer(mux)
	t.Cleanup(idp.Close)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, idp.URL, idp.URL+"/keys")
	})
	read := make(chan struct{}, 100)
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}}
		json.NewEncoder(w).Encode(set) //nolint:errcheck // the sign-in fails then
		read <- struct{}{}
	})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	token := func(org, sub, scope string) string {
		text, err := jwt.Signed(signer).Claims(map[string]any{
			"iss": idp.URL, "aud": "a2ad-test", "org": org, "sub": sub, "scope": scope,
			"exp": time.Now().Add(time.Hour).Unix(),
		}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	c := newCluster(t)
	a := c.start("a", "A2AD_AUTH=required", "A2AD_OIDC_ISSUER="+idp.URL, "A2AD_OIDC_AUDIENCE=a2ad-test",
		"A2AD_OIDC_TENANT_CLAIM=org")
	<-read
	idp.Close()
	cl := c.client(a, "script")
	bearer := token("acme", "ann", "tasks:read tasks:write")
	cl.APIKey = bearer
	task := send(t, cl, play(`{"op":"input"}`)).TaskID
	for name, tc := range map[string]struct {
		token  string
		status int
		code   int
	}{
		"another owner":  {token("acme", "bob", "tasks:read"), 200, taskNotFound},
		"another tenant": {token("other", "ann", "tasks:read"), 200, taskNotFound},
		"no scope":       {token("acme", "ann", ""), 403, 0},
		"no tenant":      {token("", "ann", "tasks:read"), 401, 0},
	} {
		got := c.post(a, "/agents/script", request("tasks/get", `{"id":"`+task+`"}`), "Authorization",
			"Bearer "+tc.token)
		if got.status != tc.status || tc.code != 0 && got.code != tc.code {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	// An API key of the same tenant and owner is the same caller.
	cl.APIKey = c.apiKey("acme", "ann", "tasks:read,tasks:write")
	if _, err := cl.Cancel(bounded(t), task); err != nil {
		t.Error(err)
	}
	c.key = cl.APIKey
	if strings.Contains(a.log.all(), bearer) {
		t.Error("a token is in the log")
	}
}

// While the issuer is unreachable, callers whose token cannot be checked are asked to retry, and the log says what is
// wrong.
func TestUnreachableIssuerRefusesOnlyItsTokens(t *testing.T) {
	t.Parallel()
	idp := httptest.NewServer(http.NotFoundHandler())
	idp.Close()
	c := newCluster(t)
	a := c.start("a", "A2AD_AUTH=required", "A2AD_OIDC_ISSUER="+idp.URL, "A2AD_OIDC_AUDIENCE=a2ad-test")
	a.log.expectErrors()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: private}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token,
		err := jwt.Signed(signer).Claims(map[string]any{"iss": idp.URL, "aud": "a2ad-test", "sub": "ann",
		"exp": time.Now().Add(time.Hour).Unix()}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	for path, got := range map[string]httpAnswer{
		"/agents/echo":     c.post(a, "/agents/echo", request("tasks/list", `{}`), "Authorization", "Bearer "+token),
		"/v1/tasks":        c.do(a, http.MethodGet, "/v1/tasks", nil, "Authorization", "Bearer "+token),
		"/worker/v1/claim": c.post(a, "/worker/v1/claim", `{}`, "Authorization", "Bearer "+token),
	} {
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" ||
			got.header.Get("WWW-Authenticate") != "" || strings.Contains(string(got.body), "dial") {
			t.Errorf("%s: %d %v %s", path, got.status, got.header, got.body)
		}
		a.awaitLog("request", func(l logLine) bool {
			return l.str("path") == path && strings.Contains(l.str("err"), "keys of the issuer: discover issuer: ")
		})
	}
	// Other callers are served.
	if got := c.do(a, http.MethodGet, "/v1/tasks", nil, "X-API-Key",
		c.apiKey("acme", "ann", "tasks:read")); got.status != http.StatusOK {
		t.Errorf("a key meanwhile: %d %s", got.status, got.body)
	}
}

// The audit log has one row for each address and reason, with a count, also after the server stops.
func TestFailedSignInsAreRecordedTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_AUTH=required")
	unknown, err := auth.NewKey("live", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, try := range []struct{ path, key, bearer, reason string }{
		{"/agents/echo", unknown.Reveal(), "", "unknown key"},
		{"/worker/v1/claim", unknown.Reveal(), "", "unknown key"},
		{"/worker/v1/runs/x/1/heartbeat", "nonsense", "", "malformed key"},
		// not an attempt to sign in
		{"/tasks", "", "Bearer nonsense", "credential of no kind that is taken"},
		{"/agents/echo", "", "", "no credential"},
	} {
		got := c.post(a, try.path, request("tasks/list", `{}`), "X-API-Key", try.key, "Authorization", try.bearer)
		if try.path == "/tasks" {
			got = c.do(a, http.MethodGet, try.path, nil, "Authorization", try.bearer)
		}
		if got.status != http.StatusUnauthorized || len(got.header.Values("WWW-Authenticate")) != 2 {
			t.Errorf("%s: %d %v %s", try.path, got.status, got.header, got.body)
		}
		if strings.Contains(string(got.body), try.reason) {
			t.Errorf("the caller gets %s", got.body)
		}
		a.awaitLog("request", func(l logLine) bool {
			why, _ := l["refused"].(map[string]any)
			return l.str("path") == try.path && l.num("status") == http.StatusUnauthorized &&
				why["reason"] == try.reason
		})
	}
	a.stop()
	const rows = `SELECT coalesce(string_agg(actor || ' ' || detail, '; ' ORDER BY detail::text), '')
		FROM audit.action WHERE action = 'signin.failed'`
	want := `address 127.0.0.1 {"count":1,` +
		`"reason":"credential of no kind that is taken"}; address 127.0.0.1 {"count":1,` +
		`"reason":"malformed key"}; address 127.0.0.1 {"count":2,` +
		`"key":"` + unknown.ID() + `","reason":"unknown key"}`
	if got := one[string](c, rows); got != want {
		t.Errorf("recorded: %s\nwant %s", got, want)
	}
}

// The log and the audit log say what is wrong with a key. Only a caller with the secret marks a key as used.
func TestBadKeysDoNotCountAsUsed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_AUTH=required")
	good, guessed, revoked, other := c.apiKey("acme", "ann", "tasks:read"), c.apiKey("acme", "ann", "tasks:read"),
		c.apiKey("acme", "ann", "tasks:read"), c.apiKey("acme", "ann", "tasks:read")
	expired := c.apiKey("acme", "ann", "tasks:read")
	id := func(key string) string { return strings.Split(key, "_")[2] }
	c.must("apikey", "revoke", id(revoked))
	if _, err := c.db.Exec(bounded(t), `UPDATE a2a.api_keys SET expires_at = clock_timestamp() WHERE id = $1`,
		id(expired)); err != nil {
		t.Fatal(err)
	}
	text := "a2ad_live_" + id(guessed) + "_" + strings.Split(other, "_")[3]
	wrong := fmt.Sprintf("%s_%08x", text, crc32.ChecksumIEEE([]byte(text)))
	for key, reason := range map[string]string{wrong: "wrong secret", revoked: "revoked key", expired: "expired key"} {
		if got := c.do(a, http.MethodGet, "/v1/tasks", nil, "X-API-Key", key); got.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", reason, got.status, got.body)
		}
		a.awaitLog("request", func(l logLine) bool {
			why, _ := l["refused"].(map[string]any)
			return why["reason"] == reason && why["key_id"] == id(key)
		})
	}
	if got := c.do(a, http.MethodGet, "/v1/tasks", nil, "X-API-Key", good); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
	a.stop()
	if used := one[string](c,
		`SELECT string_agg(id, ' ') FROM audit.api_key WHERE last_used_at IS NOT NULL`); used != id(good) {
		t.Errorf("the keys %s were used, want %s", used, id(good))
	}
	if n := one[int](c,
		`SELECT count(DISTINCT detail::json ->> 'reason') FROM audit.action WHERE action = 'signin.failed'`); n != 3 {
		t.Errorf("%d reasons are recorded, want 3", n)
	}
}

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
	id, _, err := auth.ParseKey(works)
	if err != nil {
		t.Fatal(err)
	}
	c.must("apikey", "revoke", id)
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
	id, _, err := auth.ParseKey(revoked)
	if err != nil {
		t.Fatal(err)
	}
	c.must("apikey", "revoke", id)
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
