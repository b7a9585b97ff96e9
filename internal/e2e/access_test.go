package e2e_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
)

// must runs a command of the operator that has to succeed.
func (c *cluster) must(args ...string) {
	c.t.Helper()
	if out, notes, code := c.operate(nil, args...); code != 0 {
		c.t.Fatalf("%v: exit code %d: %s%s", args, code, out, notes)
	}
}

// TestRevokedKeyIsRefusedByEveryReplicaAtOnce: all of them remember the key, and forget it long
// before they would have by themselves.
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
		t.Errorf("the replicas took %v to hear of it", took)
	}
}

// TestTenantSharesWhereThatIsSet: the audit log says who of the tenant it was.
func TestTenantSharesWhereThatIsSet(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_AUTH=required", "A2AD_SHARING=tenant")
	ann, bob, eve := c.apiKey("acme", "ann", "tasks:read,tasks:write"), c.apiKey("acme", "bob", "tasks:read,tasks:write"), c.apiKey("other", "bob", "tasks:read,tasks:write")
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
	if actor := one[string](c, `SELECT actor || ' ' || owner FROM audit.action WHERE action = 'task.cancel' AND task_id::text = $1`, task); actor != "key "+id+" ann" {
		t.Errorf("canceled by %q", actor)
	}
	c.key = ann
}

// TestTokensOfAnIdentityProviderSignIn at a server that finds the provider by itself, and while it is away.
func TestTokensOfAnIdentityProviderSignIn(t *testing.T) {
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
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}}) //nolint:errcheck // the test will see
		read <- struct{}{}
	})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	token := func(org, sub, scope string) string {
		text, err := jwt.Signed(signer).Claims(map[string]any{
			"iss": idp.URL, "aud": "a2ad-test", "org": org, "sub": sub, "scope": scope, "exp": time.Now().Add(time.Hour).Unix(),
		}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	c := newCluster(t)
	a := c.start("a", "A2AD_AUTH=required", "A2AD_OIDC_ISSUER="+idp.URL, "A2AD_OIDC_AUDIENCE=a2ad-test", "A2AD_OIDC_TENANT_CLAIM=org")
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
		got := c.post(a, "/agents/script", request("tasks/get", `{"id":"`+task+`"}`), "Authorization", "Bearer "+tc.token)
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

// TestFailedSignInsAreRecordedTogether: one row for each address and reason, with a count, at the
// end of the server too.
func TestFailedSignInsAreRecordedTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_AUTH=required")
	unknown, err := auth.NewKey("live", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{unknown.Reveal(), unknown.Reveal(), "nonsense", ""} {
		header := []string{"X-API-Key", key}
		if key == "" {
			header = nil // no try to sign in
		}
		if got := c.post(a, "/agents/echo", request("tasks/list", `{}`), header...); got.status != http.StatusUnauthorized {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	a.stop()
	const rows = `SELECT coalesce(string_agg(actor || ' ' || detail, '; ' ORDER BY detail::text), '') FROM audit.action WHERE action = 'signin.failed'`
	want := `address 127.0.0.1 {"count":1,"reason":"malformed key"}; address 127.0.0.1 {"count":2,"key":"` + unknown.ID() + `","reason":"unknown key"}`
	if got := one[string](c, rows); got != want {
		t.Errorf("recorded: %s\nwant %s", got, want)
	}
}

// TestAuthRequiredGrantsNothing: a task that waits for credentials goes on by a message that is signed
// in and permitted by itself, and by no other; the agent gets none of the request's credentials.
func TestAuthRequiredGrantsNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const dump = "name: dump\ndescription: Says what it is given.\nexecutor: {exec: {command: [sh, -c, 'cat; env'], output: text}}\n"
	if err := os.WriteFile(filepath.Join(c.agents, "dump.yaml"), []byte(dump), 0o600); err != nil {
		t.Fatal(err)
	}
	a := c.start("a", "A2AD_AUTH=required")
	ann, reader, bob := c.apiKey("acme", "ann", "tasks:read,tasks:write"), c.apiKey("acme", "ann", "tasks:read"), c.apiKey("acme", "bob", "tasks:read,tasks:write")
	c.key = ann
	cl := c.client(a, "script")
	cl.APIKey = ann
	asked := send(t, cl, play(`{"op":"auth","text":"sign in at https://example.com"},{"op":"complete","text":"done"}`))
	if asked.State != a2a.StateAuthRequired {
		t.Fatalf("got %s", asked.Raw)
	}
	before := c.rows()
	for who, key := range map[string]string{"nobody": "", "who may only read": reader, "another owner": bob} {
		m := message(`,"taskId":"` + asked.TaskID + `","metadata":{"Authorization":"Bearer ` + ann + `"}`)
		got := c.post(a, "/agents/script", m, "X-API-Key", key)
		if got.status == http.StatusOK && got.code != taskNotFound {
			t.Errorf("%s goes on with the task: %s", who, got.body)
		}
	}
	if after := c.rows(); after != before {
		t.Errorf("those who may not left %d rows", after-before)
	}
	if end := send(t, cl, reply(asked.TaskID, "I have")); end.State != a2a.StateCompleted {
		t.Errorf("got %s", end.Raw)
	}
	other := c.client(a, "dump")
	other.APIKey = ann
	if got := send(t, other, say("hello")); len(got.Artifacts) != 1 || strings.Contains(string(got.Raw), ann) || strings.Contains(string(got.Raw), c.url) {
		t.Errorf("the agent is given %s", got.Raw)
	}
}
