package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/store/access"
)

func TestViewIsSavedForAllOperators(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := r.key(everything...)
	ann := r.serve()
	ann.mustSignIn(k)
	const filtered = "/console/tasks?state=rejected&owner=ann&state=failed&since=&before=x"
	status, _ := ann.post(filtered, "/console/tasks/views", url.Values{
		"name": {" What failed <b> "}, "query": {"state=rejected&owner=ann&state=failed&since=&before=x&evil=1"},
	})
	const query = "owner=ann&state=failed&state=rejected"
	if at := ann.last.Header.Get("Location"); status != http.StatusSeeOther || at != "/console/tasks?"+query {
		t.Fatalf("saving answered %d to %q", status, at)
	}
	bob := r.serve()
	bob.mustSignIn(r.key(everything...))
	page := bob.page("/console/tasks")
	link := `href="/console/tasks?` + strings.ReplaceAll(query, "&", "&amp;") + `">What failed &lt;b&gt;</a>`
	if !strings.Contains(page, link) {
		t.Errorf("another operator does not see %s", link)
	}
	page = bob.page(filtered)
	if !strings.Contains(page, "by key "+k.ID()) || strings.Contains(page, "Save this view") {
		t.Error("the filters of a view are not recognized, or the page does not name who saved it")
	}
	if status, _ := bob.post("/console/tasks?owner=bob", "/console/tasks/views", url.Values{
		"name": {"What failed <b>"}, "query": {"owner=bob"},
	}); status != http.StatusConflict {
		t.Errorf("a second view with the name answered %d, want 409", status)
	}
	if status, _ := bob.post(filtered, "/console/tasks/views/remove", url.Values{
		"name": {"What failed <b>"},
	}); status != http.StatusSeeOther {
		t.Errorf("removing answered %d", status)
	}
	if strings.Contains(ann.page("/console/tasks"), "What failed") {
		t.Error("the view is still there")
	}
	if status, _ := ann.post(filtered, "/console/tasks/views/remove",
		url.Values{"name": {"What failed <b>"}}); status != http.StatusNotFound {
		t.Errorf("removing it again answered %d, want 404", status)
	}
	log := r.Column(`SELECT action || ' ' || (detail->>'query') FROM a2a.audit_log
		WHERE action LIKE 'view.%' ORDER BY id`)
	if fmt.Sprint(log) != "[view.save "+query+" view.remove "+query+"]" {
		t.Errorf("the audit log has %q", log)
	}
}

func TestViewsThatAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve(open)
	for name, form := range map[string]url.Values{
		"no name":       {"name": {"  "}, "query": {"owner=ann"}},
		"a long name":   {"name": {strings.Repeat("é", 61)}, "query": {"owner=ann"}},
		"no filter":     {"name": {"x"}, "query": {"before=x"}},
		"a long filter": {"name": {"x"}, "query": {"owner=" + strings.Repeat("a", 2000)}},
	} {
		status, _ := b.post("/console/tasks?owner=x", "/console/tasks/views", form)
		if status != http.StatusUnprocessableEntity {
			t.Errorf("%s answered %d, want 422", name, status)
		}
	}
	for i := range access.MaxSavedViews {
		if err := r.Access.SaveView(t.Context(), fmt.Sprint(i), "owner=ann"); err != nil {
			t.Fatal(err)
		}
	}
	if status, _ := b.post("/console/tasks?owner=x", "/console/tasks/views",
		url.Values{"name": {"one more"}, "query": {"owner=ann"}}); status != http.StatusConflict {
		t.Errorf("a view too many answered %d, want 409", status)
	}
}

func TestViewsNeedTheScopesOfAnOperator(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.Access.SaveView(t.Context(), "of another tenant", "tenant=globex"); err != nil {
		t.Fatal(err)
	}
	form := url.Values{"name": {"of another tenant"}, "query": {"owner=ann"}}
	for name, c := range map[string]struct {
		scopes []auth.Scope
		sees   bool
	}{
		"support":              {[]auth.Scope{auth.ScopeTenantRead}, false},
		"support that repairs": {[]auth.Scope{auth.ScopeTenantRead, auth.ScopeOperatorWrite}, false},
		"reader":               {[]auth.Scope{auth.ScopeOperatorRead}, true},
	} {
		b := r.serve(func(*console.Config) {})
		b.mustSignIn(r.key(c.scopes...))
		if page := b.page("/console/tasks?owner=x"); strings.Contains(page, "of another tenant") != c.sees ||
			strings.Contains(page, "Save this view") {
			t.Errorf("%s: sees the views: %v, or may save one", name, !c.sees)
		}
		for _, path := range []string{"/console/tasks/views", "/console/tasks/views/remove"} {
			if status, _ := b.post("/console/tasks", path, form); status != http.StatusForbidden {
				t.Errorf("%s: %s answered %d, want 403", name, path, status)
			}
		}
	}
	if n := r.Column(`SELECT count(*)::text FROM a2a.saved_views`)[0]; n != "1" {
		t.Errorf("there are %s views, want 1", n)
	}
}
