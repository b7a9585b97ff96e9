package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// assign assigns the question of a task that the inbox shows.
func (b *browser) assign(id a2a.ID, to string) (status int, body string) {
	b.t.Helper()
	link := questionLink(b.page("/console/inbox"), id)
	return b.post("/console/inbox", "/console/tasks/"+id.String()+"/assign", url.Values{
		"asked": {link.Query().Get("asked")}, "assignee": {to}, "from": {"inbox"}, "reason": {""},
	})
}

// questionLink returns the link to the question of a task on a page; nil: there is none.
func questionLink(page string, id a2a.ID) *url.URL {
	m := regexp.MustCompile(`href="(/console/inbox\?task=` + id.String() + `[^"]*)"`).FindStringSubmatch(page)
	if m == nil {
		return nil
	}
	u, err := url.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
	if err != nil {
		return nil
	}
	return u
}

func TestQuestionIsAssignedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, k := r.serve(), r.key(everything...)
	b.mustSignIn(k)
	mine, other := r.asking("ann"), r.asking("bob")
	if status, body := b.assign(mine, " Carl Øst "); status != http.StatusSeeOther {
		t.Fatalf("got %d: %s", status, body)
	}
	shows := func(query string, want ...a2a.ID) {
		t.Helper()
		page := b.page("/console/inbox" + query)
		for _, id := range []a2a.ID{mine, other} {
			shown, wanted := strings.Contains(page, `id="q-`+id.String()), false
			for _, w := range want {
				wanted = wanted || w == id
			}
			if shown != wanted {
				t.Errorf("%s shows %s: %t, want %t", query, id, shown, wanted)
			}
		}
	}
	shows("", mine, other)
	shows("?assignee=Carl+%C3%98st", mine)
	shows("?assignee=Carl")
	shows("?assignee=unassigned", other)
	for _, page := range []string{"/console/inbox", "/console/tasks/" + mine.String()} {
		if body := b.page(page); !strings.Contains(body, "For <b>Carl Øst</b>, by key "+k.ID()) {
			t.Errorf("%s does not show who is to answer: %s", page, body)
		}
	}
	link := questionLink(b.page("/console/tasks/"+mine.String()), mine)
	shows("?"+link.RawQuery, mine)

	b.post("/console/inbox", "/console/tasks/"+mine.String()+"/answer", url.Values{"text": {"yes"},
		"asked": {link.Query().Get("asked")}})
	if page := b.page(link.RequestURI()); !strings.Contains(page, "no longer open") {
		t.Errorf("the link to an answered question shows %s", page)
	}
	r.Append(r.ClaimTask(mine), storetest.Status(a2a.StateInputRequired, "And now?"))
	shows("?assignee=unassigned", mine, other)
	if page := b.page(link.RequestURI()); !strings.Contains(page, "no longer open") {
		t.Errorf("the link to the first question shows the second: %s", page)
	}
	got := r.Column(`SELECT actor || ' ' || (detail->>'assignee') FROM a2a.audit_log WHERE action = 'task.assign'`)
	if len(got) != 1 || got[0] != "key "+k.ID()+" Carl Øst" {
		t.Errorf("the audit log has %q", got)
	}
}

func TestAssignmentsAreChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.serve()
	b.mustSignIn(r.key(everything...))
	id := r.asking("ann")
	for _, name := range []string{strings.Repeat("ø", 101), "unassigned", "a\x00b"} {
		if status, body := b.assign(id, name); status != http.StatusUnprocessableEntity {
			t.Errorf("the name %q got %d: %s", name, status, body)
		}
	}
	if status, _ := b.assign(id, strings.Repeat("ø", 100)); status != http.StatusSeeOther {
		t.Errorf("a name of 100 characters got %d", status)
	}
	if status, _ := b.assign(id, ""); status != http.StatusSeeOther {
		t.Errorf("nobody got %d", status)
	}
	if n := r.Column(`SELECT count(*)::text FROM a2a.task_assignments`)[0]; n != "0" {
		t.Errorf("%s assignments are left", n)
	}
	form := url.Values{"asked": {"1"}, "assignee": {"Carl"}}
	if status, _ := b.post("/console/inbox", "/console/tasks/"+id.String()+"/assign", form); status !=
		http.StatusConflict {
		t.Errorf("another question got %d", status)
	}
	reader := r.serve()
	reader.mustSignIn(r.key(auth.ScopeOperatorRead))
	if page := reader.page("/console/inbox"); strings.Contains(page, "/assign") || questionLink(page, id) == nil {
		t.Errorf("a reader sees %s", page)
	}
	if status, _ := reader.assign(id, "Carl"); status != http.StatusForbidden {
		t.Errorf("a reader may assign: %d", status)
	}
	if status, _ := b.assign(id, "Carl"); status != http.StatusSeeOther {
		t.Fatalf("got %d", status)
	}
	owner := r.signedInOwner(auth.MethodAPIKey)
	for _, page := range []string{"/console/inbox", "/console/tasks/" + id.String(), "/console/inbox?assignee=x"} {
		if body := owner.page(page); strings.Contains(body, "Carl") || !strings.Contains(body, id.String()) {
			t.Errorf("%s shows the owner of the task %s", page, body)
		}
	}
}
