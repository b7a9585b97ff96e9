package e2e_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
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
	longest := "A2AD_AUTH_RECHECK=1h" // so that keys are cached for auth.MaxKeyTTL
	replicas := []*replica{c.start("a", "A2AD_AUTH=required", longest), c.start("b", "A2AD_AUTH=required", longest)}
	ask := func(r *replica, key string) int {
		return c.post(r, "/agents/echo", request("tasks/list", `{}`), "X-API-Key", key).status
	}
	// Without the wake-up a replica refuses a key when its cache forgets it. The wake-up needs milliseconds, and a slow
	// machine gets more tries.
	const forgotten = auth.MaxKeyTTL / 2
	for try := 0; ; try++ {
		key := c.apiKey("acme", "ann", "tasks:read")
		for _, r := range replicas {
			if status := ask(r, key); status != http.StatusOK {
				t.Fatalf("%s: status %d", r.name, status)
			}
		}
		start := time.Now()
		c.must("apikey", "revoke", keyID(t, key))
		for _, r := range replicas {
			until(t, r.name+" refuses the key", func() bool { return ask(r, key) == http.StatusUnauthorized })
		}
		took := time.Since(start)
		if took < forgotten {
			break
		}
		if try == 4 {
			t.Fatalf("the replicas took %v to refuse a revoked key, at the fifth try", took)
		}
	}
}

// keyID returns the public part of an API key.
func keyID(t *testing.T, key string) string {
	t.Helper()
	id, _, err := auth.ParseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return id
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
	id := keyID(t, bob)
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
	token, err := jwt.Signed(signer).Claims(map[string]any{"iss": idp.URL, "aud": "a2ad-test", "sub": "ann",
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
