package admin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// open opens a session of the console, and returns its token.
func (f *fixture) open(s access.Session) string {
	f.T.Helper()
	token := s.Tenant + s.Owner + s.KeyID
	err := f.Access.OpenSession(f.T.Context(), access.NewSession{Session: s, Token: token, Life: time.Hour})
	if err != nil {
		f.T.Fatal(err)
	}
	return token
}

func TestSessionsAreListedAndEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.open(access.Session{
		Tenant: "acme", Owner: "ann", Subject: "a-1", Scopes: []string{"operator:read"},
	})
	f.open(access.Session{Tenant: "acme", Owner: "bob", KeyID: "k7"})
	f.open(access.Session{Tenant: "corp", Owner: "ann", KeyID: "k8"})
	idle := f.open(access.Session{Tenant: "corp", Owner: "carl", KeyID: "k9"})
	f.Exec(`UPDATE a2a.browser_sessions SET used_at = used_at - interval '31 minutes' WHERE key_id = 'k9'`)
	list := read[admin.SessionList](f, f.get("reader", "/sessions")).Sessions
	if len(list) != 3 {
		t.Fatalf("%+v", list)
	}
	one := read[admin.SessionList](f, f.get("reader", "/sessions?tenant=acme&owner=ann")).Sessions
	if len(one) != 1 || one[0].Actor != "oidc a-1" || strings.Join(one[0].Scopes, ",") != "operator:read" ||
		one[0].ID == "" {
		t.Fatalf("%+v", one)
	}
	for _, body := range []string{`{}`, `{"tenant":"acme"}`, `{"owner":"ann"}`, `{"id":"x","tenant":"a","owner":"b"}`} {
		if got := f.post("both", "/sessions/revoke", body); got.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	end := func(body string, want int) {
		t.Helper()
		got := read[admin.RevokedSessions](f, f.post("both", "/sessions/revoke", body))
		if got.Sessions != want {
			t.Errorf("%s ended %d sessions, want %d", body, got.Sessions, want)
		}
	}
	end(`{"id":"none"}`, 0)
	end(`{"id":"`+one[0].ID+`","reason":"left"}`, 1)
	if _, err := f.Access.FindSession(t.Context(), ann, time.Minute); err == nil {
		t.Error("the session still works")
	}
	end(`{"tenant":"acme","owner":"bob"}`, 1)
	if _, err := f.Access.FindSession(t.Context(), idle, time.Minute); err == nil {
		t.Error("a session that was not used works")
	}
	left := read[admin.SessionList](f, f.get("reader", "/sessions")).Sessions
	if len(left) != 1 || left[0].Owner != "ann" {
		t.Errorf("%+v are left", left)
	}
	if got := f.Actions(); !strings.Contains(strings.Join(got, "\n"), "key k1 session.revoke acme/ann ") ||
		!strings.Contains(strings.Join(got, "\n"), `"reason":"left"`) {
		t.Errorf("the audit log has %q", got)
	}
}

func TestQuestionsAreAssigned(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.RunningTask()
	path := "/tasks/" + l.TaskID.String()
	if got := f.post("both", path+"/assign", `{"assignee":"Carl"}`); got.status != http.StatusConflict {
		t.Errorf("a task that asks nothing: %d %s", got.status, got.body)
	}
	f.Append(l, storetest.Status(a2a.StateInputRequired))
	row := read[admin.Task](f, f.post("both", path+"/assign", `{"assignee":"Carl","reason":"knows it"}`))
	list := read[admin.TaskList](f, f.get("reader", "/tasks")).Tasks
	if row.Assignee != "Carl" || len(list) != 1 || list[0].Assignee != "Carl" {
		t.Errorf("the answer is %+v, the list %+v", row, list)
	}
	if got := f.post("both", path+"/assign", `{"assignee":"unassigned"}`); got.status != http.StatusBadRequest {
		t.Errorf("%d %s", got.status, got.body)
	}
	if row := read[admin.Task](f, f.post("both", path+"/assign", `{"assignee":""}`)); row.Assignee != "" {
		t.Errorf("%+v", row)
	}
	f.post("both", path+"/assign", `{"assignee":"Carl"}`)
	f.post("both", path+"/answer", `{"text":"yes"}`)
	if d := read[admin.TaskDetail](f, f.get("reader", path)); d.Assignee != "" {
		t.Errorf("after the answer it is still for %q", d.Assignee)
	}
}
