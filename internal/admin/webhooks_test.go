package admin_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// withWebhook makes a task of a tenant with a webhook, and returns the webhook's id.
func (f *fixture) withWebhook(tenant, origin string) (task a2a.ID, webhook string) {
	f.T.Helper()
	hook := storetest.NewWebhook("default")
	hook.Origin, hook.URL = origin, origin+"/hook?token=secret"
	in := storetest.Submission("x")
	in.Tenant, in.Owner, in.Push = tenant, "ann", &hook
	task = f.Submit(in).Task
	found, err := f.Webhooks.List(f.T.Context(), webhooks.Filter{Task: task, Limit: 1})
	if err != nil || len(found) != 1 {
		f.T.Fatalf("%+v, %v", found, err)
	}
	return task, found[0].Row.String()
}

const (
	originA = "https://a.example:443"
	originB = "https://b.example:443"
)

func TestWebhooksAreOfTheCallersTenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task, own := f.withWebhook("acme", originA)
	_, foreign := f.withWebhook("corp", originB)
	for path, want := range map[string][]string{
		"/webhooks": {own}, "/webhooks?tenant=acme": {own}, "/webhooks?tenant=corp": nil,
		"/webhooks?origin=" + originB:     nil,
		"/webhooks?task=" + task.String(): {own}, "/webhooks?state=dead": nil, "/webhooks?cursor=" + own: nil,
	} {
		got := f.get("acme", path)
		var ids []string
		for _, w := range read[admin.WebhookList](f, got).Webhooks {
			ids = append(ids, w.ID)
		}
		if !slices.Equal(ids, want) || strings.Contains(got.body, "secret") {
			t.Errorf("GET %s: %s, want %q", path, got.body, want)
		}
	}
	for path, want := range map[string][]string{
		"/destinations": {originA}, "/destinations?tenant=corp": nil, "/destinations?origin=" + originB: nil,
	} {
		var origins []string
		for _, d := range read[admin.DestinationList](f, f.get("acme", path)).Destinations {
			origins = append(origins, d.Origin)
		}
		if !slices.Equal(origins, want) {
			t.Errorf("GET %s: %q, want %q", path, origins, want)
		}
	}
	there := f.get("acme", "/webhooks/"+foreign+"/attempts")
	missing := f.get("acme", "/webhooks/"+db.NewTaskID().String()+"/attempts")
	if there.status != http.StatusNotFound || there.body != missing.body {
		t.Errorf("a webhook of another tenant: %d %s; an unknown one: %s", there.status, there.body, missing.body)
	}
	if got := f.get("acme", "/webhooks/"+own+"/attempts"); got.status != http.StatusOK {
		t.Errorf("its own webhook: %d %s", got.status, got.body)
	}
	page := read[admin.WebhookList](f, f.get("reader", "/webhooks?limit=1"))
	rest := read[admin.WebhookList](f, f.get("reader", "/webhooks?limit=1&cursor="+page.Next))
	if page.Webhooks[0].ID != foreign || rest.Webhooks[0].ID != own || rest.Next != "" {
		t.Errorf("pages %+v, %+v", page, rest)
	}
}

func TestDestinationsShowWhyTheyAreNotCalled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.withWebhook("acme", originA)
	f.withWebhook("acme", originA)
	_, dead := f.withWebhook("acme", originB)
	f.Exec(`UPDATE a2a.push_configs SET state = 'dead' WHERE id = $1`, dead)
	f.Exec(`INSERT INTO a2a.push_destinations (tenant, origin, fails, open_until, last_error)
		VALUES ('acme', $1, 7, clock_timestamp() + interval '1 hour', 'answered 500')`, originA)
	page := read[admin.DestinationList](f, f.get("reader", "/destinations?limit=1"))
	rest := read[admin.DestinationList](f, f.get("reader", "/destinations?limit=1&cursor="+page.Next))
	if len(page.Destinations) != 1 || len(rest.Destinations) != 1 || rest.Next != "" {
		t.Fatalf("pages %+v, %+v", page, rest)
	}
	a, b := page.Destinations[0], rest.Destinations[0]
	if a.Origin != originA || a.Active != 2 || a.Backlog != 2 || a.Failures != 7 || a.LastError != "answered 500" ||
		a.OpenUntil == nil || a.NextAt == nil || !a.NextAt.Equal(*a.OpenUntil) {
		t.Errorf("the destination that fails: %+v", a)
	}
	if b.Origin != originB || b.Dead != 1 || b.Active != 0 || b.Backlog != 0 || b.NextAt != nil {
		t.Errorf("the destination of the dead webhook: %+v", b)
	}
	f.Exec(`UPDATE a2a.push_destinations SET disabled_at = clock_timestamp()`)
	body := `{"tenant":"acme","origin":"` + originA + `","reason":"it is back"}`
	if d := f.firstDestination(); d.DisabledAt == nil || d.NextAt != nil {
		t.Errorf("a disabled destination: %+v", d)
	}
	enabled := read[admin.EnabledDestination](f, f.post("both", "/destinations/enable", body))
	if !enabled.Enabled || enabled.Origin != originA {
		t.Errorf("%+v", enabled)
	}
	if d := f.firstDestination(); d.Failures != 0 || d.OpenUntil != nil {
		t.Errorf("an enabled destination: %+v", d)
	}
	again := f.post("both", "/destinations/enable", strings.ReplaceAll(body, originA, originB))
	if again.status != http.StatusConflict || again.reason() != admin.ReasonAlreadyEnabled {
		t.Errorf("an enabled one: %d %s", again.status, again.body)
	}
	want := []string{`key k1 push.enable acme/ {"destination":"` + originA + `","reason":"it is back"}`}
	if got := f.Actions(); !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
}

func (f *fixture) firstDestination() admin.Destination {
	f.T.Helper()
	return read[admin.DestinationList](f, f.get("reader", "/destinations")).Destinations[0]
}

// deliver delivers everything that is due.
func (f *fixture) deliver() {
	f.T.Helper()
	for {
		due := f.ClaimWebhooks(100)
		if len(due) == 0 {
			return
		}
		for i := range due {
			f.Delivered(&due[i], false)
		}
	}
}

// TestDestinationIsReplayedSinceATime: every webhook of the destination delivers again what came since then, and no
// older events; webhooks of other destinations and tenants deliver nothing.
func TestDestinationIsReplayedSinceATime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task, hook := f.withWebhook("acme", originA)
	old, _ := f.withWebhook("acme", originA)
	other, _ := f.withWebhook("acme", originB)
	foreign, _ := f.withWebhook("corp", originA)
	f.Append(f.ClaimTask(task), storetest.Status(a2a.StateWorking, "a"))
	f.deliver()
	f.Exec(`UPDATE a2a.task_events SET committed_at = committed_at - interval '1 day' WHERE task_id = $1 OR seq = 1`,
		db.PGID(old))
	before := map[a2a.ID]storetest.Progress{}
	for _, id := range []a2a.ID{task, old, other, foreign} {
		before[id] = f.Progress(id, "default")
	}
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	body := fmt.Sprintf(`{"tenant":"acme","origin":%q,"since":%q,"reason":"it lost them"}`, originA, since)
	done := read[admin.ReplayedDestination](f, f.post("both", "/destinations/replay", body))
	if done.Webhooks != 1 || done.Next != "" {
		t.Errorf("%+v, want one webhook", done)
	}
	if p := f.Progress(task, "default"); p.Cursor != 1 || before[task].Cursor <= 1 {
		t.Errorf("the webhook continues after event %d, want 1 (before: %d)", p.Cursor, before[task].Cursor)
	}
	for _, id := range []a2a.ID{old, other, foreign} {
		if p := f.Progress(id, "default"); p != before[id] {
			t.Errorf("a webhook that was not asked for is at %+v, before: %+v", p, before[id])
		}
	}
	want := []string{`key k1 push.replay acme/ann {"after":1,"reason":"it lost them","webhook":"` + hook + `"}`}
	if got := f.Actions(); !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
}

func TestReplaysThatAStateDoesNotPermit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task, hook := f.withWebhook("acme", originA)
	f.Append(f.ClaimTask(task), storetest.Status(a2a.StateCompleted, "a"))
	due := f.ClaimWebhooks(1)
	f.Delivered(&due[0], true)
	f.deliver()
	for _, tt := range []struct {
		path, body, reason string
		status             int
	}{
		{"/webhooks/" + hook + "/replay", `{}`, admin.ReasonNothingToReplay, 409},
		{"/webhooks/" + task.String() + "/replay", `{}`, "NOT_FOUND", 404},
		{"/webhooks/x/replay", `{}`, "NOT_FOUND", 404},
		{"/webhooks/" + hook + "/replay", `{"after":-1}`, "INVALID_PARAMS", 400},
		{"/destinations/replay", `{"tenant":"acme","origin":"x"}`, "INVALID_PARAMS", 400},
		{"/destinations/replay", `{"tenant":"a","origin":"x","since":"2026-01-01T00:00:00Z","cursor":"x"}`,
			"INVALID_PARAMS", 400},
	} {
		if got := f.post("both", tt.path, tt.body); got.status != tt.status || got.reason() != tt.reason {
			t.Errorf("POST %s %s: %d %s, want %d %s", tt.path, tt.body, got.status, got.body, tt.status, tt.reason)
		}
	}
	got := read[admin.ReplayedWebhook](f, f.post("both", "/webhooks/"+hook+"/replay", `{"after":0}`))
	if got.ID != hook {
		t.Errorf("%+v", got)
	}
}
