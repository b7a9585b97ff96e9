package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// act sends a form and wants its status.
func (b *browser) act(want int, page, path string, form url.Values) {
	b.t.Helper()
	if status, body := b.post(page, path, form); status != want {
		b.t.Fatalf("%s answered %d, want %d: %s", path, status, want, body)
	}
}

// recorded returns who did what and why, from the audit log.
func (r *rig) recorded(action string) string {
	return strings.Join(r.Column(`SELECT concat_ws(' ', actor, detail->>'reason') FROM a2a.audit_log
		WHERE action = '`+action+`' ORDER BY id`), "; ")
}

func TestAgentsArePausedFromTheirPage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := r.key(everything...)
	b := r.serve()
	b.mustSignIn(k)
	r.NewTask()
	form := func(reason string) url.Values { return url.Values{"name": {storetest.Agent}, "reason": {reason}} }
	b.act(http.StatusUnprocessableEntity, "/console/agents", "/console/agents/pause", form(" "))
	b.act(http.StatusSeeOther, "/console/agents", "/console/agents/pause", form("bad release"))
	page := b.page("/console/agents")
	if !strings.Contains(page, "paused</span>") || !strings.Contains(page, "key "+k.ID()+": bad release") {
		t.Errorf("the page shows no pause: %s", page)
	}
	if leases, err := r.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 1, time.Minute, 0); err != nil ||
		len(leases) > 0 {
		t.Errorf("claimed %d tasks of the paused agent, %v", len(leases), err)
	}
	b.act(http.StatusSeeOther, "/console/agents", "/console/agents/resume", form("rolled back"))
	if page := b.page("/console/agents"); strings.Contains(page, "paused</span>") {
		t.Errorf("the page still shows a pause: %s", page)
	}
	if got, want := r.recorded("agent.pause")+"; "+r.recorded("agent.resume"),
		"key "+k.ID()+" bad release; key "+k.ID()+" rolled back"; got != want {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
}

func TestWorkersThatHangAreDrainedFromTheirPage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve()
	b.mustSignIn(r.key(everything...))
	lease := r.RunningTask()
	form := url.Values{"name": {"r1"}, "reason": {"it hangs"}, "expire": {"yes"}}
	b.act(http.StatusSeeOther, "/console/workers", "/console/workers/drain", form)
	page := b.page("/console/workers")
	if row := tableRow(t, page, "it hangs"); !strings.Contains(row, "r1") {
		t.Errorf("the drained worker is shown as %q", row)
	}
	r.Rescue(1) // the lease has ended
	leases, err := r.Tasks.NewClaimer().ClaimFor(t.Context(), tasks.ClaimRequest{
		Agent: storetest.Agent, Worker: "r2", Slots: 1, TTL: time.Minute,
	})
	if err != nil || len(leases) != 1 || leases[0].TaskID != lease.TaskID {
		t.Errorf("another worker has %+v, %v", leases, err)
	}
	form = url.Values{"name": {"r1"}, "reason": {"restarted"}}
	b.act(http.StatusSeeOther, "/console/workers", "/console/workers/resume", form)
	if page := b.page("/console/workers"); strings.Contains(page, "Drained workers") {
		t.Errorf("the page still shows a drained worker: %s", page)
	}
}

func TestMissedWebhooksAreDeliveredAgainFromTheirPage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := r.key(everything...)
	b := r.serve()
	b.mustSignIn(k)
	r.NewTaskWithWebhook("h")
	d := r.DueWebhook()
	r.Failed(d, webhooks.Failure{Fate: "dead"})
	const active = `SELECT state FROM a2a.push_configs`
	if got := r.Column(active); got[0] == "active" {
		t.Fatalf("the webhook is %q", got)
	}
	id := r.Column(`SELECT id::text FROM a2a.push_configs`)[0]
	form := url.Values{"name": {id}, "reason": {"it is back"}}
	b.act(http.StatusSeeOther, "/console/webhooks", "/console/webhooks/replay", form)
	if got := r.Column(active); got[0] != "active" {
		t.Errorf("the webhook is %q", got)
	}
	r.Exec(`INSERT INTO a2a.push_destinations (tenant, origin, fails, disabled_at)
		SELECT tenant, origin, 9, now() FROM a2a.push_configs
		ON CONFLICT (tenant, origin) DO UPDATE SET disabled_at = now()`)
	place := r.Column(`SELECT tenant FROM a2a.push_destinations`)[0]
	origin := r.Column(`SELECT origin FROM a2a.push_destinations`)[0]
	form = url.Values{"tenant": {place}, "origin": {origin}, "reason": {"it is back"}}
	b.act(http.StatusSeeOther, "/console/webhooks", "/console/destinations/enable", form)
	if left := r.Column(`SELECT origin FROM a2a.push_destinations WHERE disabled_at IS NOT NULL`); len(left) > 0 {
		t.Errorf("%q is still disabled", left)
	}
	form.Set("hours", "0")
	b.act(http.StatusUnprocessableEntity, "/console/webhooks", "/console/destinations/replay", form)
	form.Set("hours", "2")
	b.act(http.StatusSeeOther, "/console/webhooks", "/console/destinations/replay", form)
	if got := r.recorded("push.replay"); strings.Count(got, "key "+k.ID()+" it is back") != 2 {
		t.Errorf("the audit log has %q", got)
	}
}

// TestActionsOnTheServiceNeedItsScopes: support staff of a tenant, readers, and forms of other pages change nothing.
func TestActionsOnTheServiceNeedItsScopes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	paths := []string{
		"/agents/pause", "/agents/resume", "/workers/drain", "/workers/resume", "/destinations/enable",
		"/destinations/replay", "/webhooks/replay",
	}
	for name, scopes := range map[string][]auth.Scope{
		"a reader": {auth.ScopeOperatorRead}, "support": {auth.ScopeTenantRead, auth.ScopeOperatorWrite},
	} {
		b := r.serve()
		b.mustSignIn(r.key(scopes...))
		for _, path := range paths {
			form := url.Values{
				"name": {"x"}, "tenant": {"acme"}, "origin": {"https://x:443"}, "hours": {"1"}, "reason": {"x"},
			}
			if status, _ := b.post("/console/tasks", "/console"+path, form); status != http.StatusForbidden {
				t.Errorf("%s, %s: %d", name, path, status)
			}
		}
	}
	b := r.serve()
	b.mustSignIn(r.key(everything...))
	for _, path := range paths {
		form := url.Values{"name": {"x"}, "reason": {"x"}}
		if status, _ := b.send(http.MethodPost, "/console"+path, form); status != http.StatusForbidden {
			t.Errorf("without the token of the form, %s: %d", path, status)
		}
	}
	if got := r.Column(`SELECT action FROM a2a.audit_log
		WHERE action NOT IN ('key.create', 'session.open')`); len(got) > 0 {
		t.Errorf("the audit log has %q", got)
	}
}
