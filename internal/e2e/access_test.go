package e2e_test

import (
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
)

// operate runs a command of the operator on the database.
func (c *cluster) operate(args ...string) {
	c.t.Helper()
	binary, err := build()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(bounded(c.t), binary, args...)
	cmd.Env = []string{"A2AD_DATABASE_URL=" + c.url}
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %v: %s", args, err, out)
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
	c.operate("apikey", "revoke", id)
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
