package admin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/auth"
)

func TestKeysAreMadeListedAndRevoked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reply := f.post("both", "/keys", `{"tenant":"acme","owner":"ci","scopes":["worker","tasks:read","worker"],
		"agents":["words","other"],"name":"laptop","expiresInMs":60000,"env":"test","reason":"for ci"}`)
	made := read[admin.CreatedKey](f, reply)
	if !strings.HasPrefix(made.Key, "a2ad_test_") || made.ExpiresAt == nil ||
		made.ExpiresAt.Sub(made.CreatedAt).Round(time.Millisecond) != time.Minute ||
		strings.Join(made.Scopes, " ") != "tasks:read worker" || strings.Join(made.Agents, " ") != "other words" {
		t.Errorf("%+v", made)
	}
	if got := reply.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("the answer with the secret may be stored: Cache-Control %q", got)
	}
	listed := f.get("reader", "/keys?tenant=acme")
	keys := read[admin.KeyList](f, listed).Keys
	if len(keys) != 1 || keys[0].ID != made.ID || keys[0].Name != "laptop" || strings.Contains(listed.body, made.Key) {
		t.Errorf("%s", listed.body)
	}
	if other := read[admin.KeyList](f, f.get("reader", "/keys?tenant=corp")).Keys; len(other) > 0 {
		t.Errorf("%+v", other)
	}
	revoked := read[admin.Key](f, f.post("both", "/keys/"+made.ID+"/revoke", `{"reason":"lost"}`))
	if revoked.ID != made.ID || revoked.RevokedAt == nil {
		t.Errorf("%+v", revoked)
	}
	for _, id := range []string{"none", "%00", "%ff"} {
		if got := f.post("both", "/keys/"+id+"/revoke", `{}`); got.status != http.StatusNotFound {
			t.Errorf("revoke %s: %d %s", id, got.status, got.body)
		}
	}
	actions := f.Actions()
	if len(actions) != 2 || !strings.HasPrefix(actions[0], "key k1 key.create acme/ci ") ||
		!strings.Contains(actions[0], `"reason":"for ci"`) ||
		actions[1] != `key k1 key.revoke acme/ci {"key":"`+made.ID+`","reason":"lost"}` {
		t.Errorf("the audit log has %q", actions)
	}
}

// TestKeysAreMadeByOperators: a key may have any scope and tenant, so only who has all scopes of operators makes one.
func TestKeysAreMadeByOperators(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *admin.Config) {
		c.SignIn = func(r *http.Request) (auth.Principal, error) {
			var p auth.Principal
			for scope := range strings.FieldsSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
				p.Scopes = append(p.Scopes, auth.Scope(scope))
			}
			p.Tenant, p.Owner = "acme", "olga"
			if p.Has(auth.ScopeWorker) {
				p.Agents = []string{"words"}
			}
			return p, nil
		}
	})
	const read, write, tenant = "operator:read", "operator:write", "tenant:read"
	for has, status := range map[string]int{
		write + " " + read: 200, write: 403, read: 403, tenant: 403, write + " " + tenant: 403,
		write + " " + read + " worker": 403, // for certain agents
	} {
		for _, scope := range []string{"tasks:read", "worker", tenant, read, write} {
			body := `{"tenant":"corp","owner":"o","scopes":["` + scope + `"]}`
			if got := f.post(has, "/keys", body); got.status != status {
				t.Errorf("%s makes a key with %s: %d %s, want %d", has, scope, got.status, got.body, status)
			}
		}
	}
	certain := write + " " + read + " worker"
	for _, got := range []reply{f.get(certain, "/keys"), f.post(certain, "/keys/x/revoke", `{}`)} {
		if got.status != http.StatusForbidden {
			t.Errorf("credentials for certain agents: %d %s", got.status, got.body)
		}
	}
}

func TestInvalidKeysAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, change := range []string{
		`"tenant":""`, `"owner":""`, `"tenant":"` + strings.Repeat("x", 201) + `"`, `"owner":"a\u0000b"`, `"scopes":[]`,
		`"scopes":["all"]`, `"agents":["no name"]`, `"agents":[]`, `"expiresInMs":-1`,
		`"expiresInMs":9223372036854775807`,
		`"env":"Live"`, `"name":"` + strings.Repeat("x", 201) + `"`, `"reason":"` + strings.Repeat("x", 1001) + `"`,
	} {
		name, _, _ := strings.Cut(change, ":")
		members := []string{change}
		for _, m := range []string{`"tenant":"t"`, `"owner":"o"`, `"scopes":["worker"]`} {
			if !strings.HasPrefix(m, name) {
				members = append(members, m)
			}
		}
		if got := f.post("both", "/keys", "{"+strings.Join(members, ",")+"}"); got.status != http.StatusBadRequest {
			t.Errorf("%.60s: %d %s", change, got.status, got.body)
		}
	}
	if keys := read[admin.KeyList](f, f.get("reader", "/keys")).Keys; len(keys) > 0 {
		t.Errorf("%+v", keys)
	}
}

func TestTasksOfAnOwnerArePurged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 3 {
		f.submit("acme", "ann", "words", "x")
	}
	left := f.submit("acme", "bob", "words", "x")
	body := `{"tenant":"acme","owner":"ann","reason":"asked to forget"`
	for _, tt := range []struct {
		body string
		want admin.PurgedTasks
	}{
		{body + `,"dryRun":true}`, admin.PurgedTasks{Tasks: 3}},
		{body + `,"context":"none"}`, admin.PurgedTasks{}},
		{body + `}`, admin.PurgedTasks{Tasks: 3}},
		{body + `}`, admin.PurgedTasks{}},
	} {
		if got := read[admin.PurgedTasks](f, f.post("both", "/purges", tt.body)); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.body, got, tt.want)
		}
	}
	list := read[admin.TaskList](f, f.get("both", "/tasks")).Tasks
	if len(list) != 1 || list[0].ID != left.String() {
		t.Errorf("left: %+v", list)
	}
	for _, actions := range f.Actions() {
		if !strings.HasSuffix(actions, `{"reason":"asked to forget"}`) && !strings.Contains(actions, "task.cancel") {
			t.Errorf("the audit log has %s", actions)
		}
	}
	for _, body := range []string{
		`{"tenant":"acme","owner":"bob","reason":""}`, `{"tenant":"acme","owner":"","reason":"x"}`,
		`{"tenant":"acme","owner":"bob"}`,
	} {
		if got := f.post("both", "/purges", body); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	dry := f.post("both", "/tasks/"+left.String()+"/purge", `{"reason":"x","dryRun":true}`)
	if dry.status != http.StatusOK || len(read[admin.TaskList](f, f.get("both", "/tasks")).Tasks) != 1 {
		t.Errorf("a dry run: %d %s", dry.status, dry.body)
	}
}
