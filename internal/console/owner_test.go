package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
)

// ownerRoute is what a route answers to a session with the scope tasks:write alone.
type ownerRoute struct {
	path   string // below the console; ID is the task of the owner
	status int
	scope  string // that the answer names
}

// ownerRoutes has a row for each route.
var ownerRoutes = map[string]ownerRoute{
	"GET /console":                      {"", 302, ""},
	"GET /console/assets/{file}":        {"/assets/none", 404, ""},
	"GET /console/sign-in":              {"/sign-in", 200, ""},
	"POST /console/sign-in":             {"/sign-in", 403, ""}, // its form is that of a stranger
	"GET /console/sign-in/provider":     {"/sign-in/provider", 404, ""},
	"GET /console/sign-in/callback":     {"/sign-in/callback", 404, ""},
	"GET /console/sign-in/again":        {"/sign-in/again", 200, ""},
	"POST /console/sign-in/again":       {"/sign-in/again", 401, ""},
	"POST /console/theme":               {"/theme", 400, ""},
	"POST /console/sign-out":            {"", 0, ""}, // it ends the session: the other tests sign out
	"GET /console/{$}":                  {"/", 302, ""},
	"GET /console/live":                 {"/live", 0, ""}, // it does not end: TestOwnerFollowsItsOwnTasks
	"GET /console/tasks/{id}/live":      {"/tasks/ID/live", 0, ""},
	"GET /console/tasks":                {"/tasks", 200, ""},
	"GET /console/tasks/{id}":           {"/tasks/ID", 200, ""},
	"GET /console/tasks/{id}/raw":       {"/tasks/ID/raw", 403, "operator:read or tenant:read"},
	"GET /console/inbox":                {"/inbox", 200, ""},
	"GET /console/playground":           {"/playground", 200, ""},
	"POST /console/playground":          {"/playground", 422, ""}, // permitted, and empty
	"GET /console/playground/{id}":      {"/playground/ID", 200, ""},
	"GET /console/tasks/bulk":           {"/tasks/bulk", 403, "operator:read or tenant:read"},
	"POST /console/tasks/bulk":          {"/tasks/bulk", 403, "operator:write"},
	"POST /console/tasks/views":         {"/tasks/views", 403, "operator:write"},
	"POST /console/tasks/views/remove":  {"/tasks/views/remove", 403, "operator:write"},
	"POST /console/tasks/{id}/retry":    {"/tasks/ID/retry", 403, "operator:write"},
	"POST /console/tasks/{id}/assign":   {"/tasks/ID/assign", 403, "operator:write"},
	"POST /console/tasks/{id}/resume":   {"/tasks/ID/resume", 403, "operator:write"},
	"POST /console/agents/pause":        {"/agents/pause", 403, "operator:write"},
	"POST /console/agents/resume":       {"/agents/resume", 403, "operator:write"},
	"POST /console/workers/drain":       {"/workers/drain", 403, "operator:write"},
	"POST /console/workers/resume":      {"/workers/resume", 403, "operator:write"},
	"POST /console/destinations/enable": {"/destinations/enable", 403, "operator:write"},
	"POST /console/destinations/replay": {"/destinations/replay", 403, "operator:write"},
	"POST /console/webhooks/replay":     {"/webhooks/replay", 403, "operator:write"},
	"GET /console/keys/new":             {"/keys/new", 403, "operator:write"},
	"POST /console/keys/new":            {"/keys/new", 403, "operator:write"},
	"GET /console/keys/revoke":          {"/keys/revoke", 403, "operator:write"},
	"POST /console/keys/revoke":         {"/keys/revoke", 403, "operator:write"},
	"GET /console/sessions/end":         {"/sessions/end", 403, "operator:write"},
	"POST /console/sessions/end":        {"/sessions/end", 403, "operator:write"},
	"GET /console/tasks/{id}/purge":     {"/tasks/ID/purge", 403, "operator:write"},
	"POST /console/tasks/{id}/purge":    {"/tasks/ID/purge", 403, "operator:write"},
	"GET /console/jobs":                 {"/jobs", 403, "operator:read"},
	"GET /console/jobs/{id}":            {"/jobs/ID", 403, "operator:read or tenant:read"},
	"POST /console/jobs/{id}/stop":      {"/jobs/ID/stop", 403, "operator:write"},
	"GET /console/jobs/{id}/live":       {"/jobs/ID/live", 403, "operator:read or tenant:read"},
	"GET /console/agents":               {"/agents", 403, "operator:read"},
	"GET /console/workers":              {"/workers", 403, "operator:read"},
	"GET /console/webhooks":             {"/webhooks", 403, "operator:read"},
	"GET /console/schedules":            {"/schedules", 403, "operator:read"},
	"GET /console/audit":                {"/audit", 403, "operator:read"},
	"GET /console/keys":                 {"/keys", 403, "operator:read"},
	"GET /console/doctor":               {"/doctor", 403, "operator:read"},
	"/console/":                         {"/none", 404, ""},

	"GET /console/tasks/{id}/files/{artifact}/{part}":  {"/tasks/ID/files/0/0", 404, ""}, // it has none
	"GET /console/tasks/{id}/images/{artifact}/{part}": {"/tasks/ID/images/0/0", 404, ""},

	"POST /console/tasks/{id}/answer": {"/tasks/ID/answer", 409, ""}, // permitted, and to another question
	"POST /console/tasks/{id}/cancel": {"/tasks/ID/cancel", 303, ""}, // the last one: it ends the task
}

// TestOwnerSeesItsOwnTasksAlone asks each route as a person and as a key that may only write tasks of their own.
func TestOwnerSeesItsOwnTasksAlone(t *testing.T) {
	t.Parallel()
	for _, method := range []auth.Method{auth.MethodAPIKey, auth.MethodOIDC} {
		t.Run(string(method), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			b := r.signedInOwner(method)
			own, foreign := r.asking("ann"), r.asking("bob")
			elsewhere := r.asking("ann")
			r.Exec(`UPDATE a2a.tasks SET tenant = 'globex' WHERE id = $1`, elsewhere.String())
			for _, pattern := range r.patterns {
				if _, ok := ownerRoutes[pattern]; !ok {
					t.Errorf("ownerRoutes has no row for %q: may an owner use it?", pattern)
				}
			}
			for pattern, want := range ownerRoutes {
				if !slices.Contains(r.patterns, pattern) {
					t.Errorf("there is no route %q", pattern)
				}
				if method == auth.MethodOIDC && strings.Contains(pattern, "/sign-in") {
					continue // a provider is there, and asks: see provider_test.go
				}
				ask := func(id a2a.ID) (int, string) {
					path := "/console" + strings.ReplaceAll(want.path, "ID", id.String())
					if strings.HasPrefix(pattern, "POST ") {
						return b.post("/console/inbox", path, url.Values{"text": {""}, "agent": {"words"}})
					}
					return b.get(path)
				}
				if want.status == 0 {
					continue
				}
				if strings.HasSuffix(pattern, "/cancel") {
					continue
				}
				status, body := ask(own)
				if status != want.status || !strings.Contains(body, want.scope) ||
					want.scope != "" && !strings.Contains(body, "This needs the scope "+want.scope) {
					t.Errorf("%s answered %d, want %d with %q: %s", pattern, status, want.status, want.scope, body)
				}
				if status == http.StatusOK && (strings.Contains(body, foreign.String()) || strings.Contains(body,
					elsewhere.String())) {
					t.Errorf("%s shows the task of another owner", pattern)
				}
				if strings.Contains(want.path, "ID") && status != http.StatusForbidden {
					for _, id := range []a2a.ID{foreign, elsewhere} {
						if status, _ := ask(id); status != http.StatusNotFound {
							t.Errorf("%s on the task of another owner answered %d, want 404", pattern, status)
						}
					}
				}
			}
			for _, id := range []a2a.ID{foreign, elsewhere} {
				status, _ := b.post("/console/inbox", "/console/tasks/"+id.String()+"/cancel", url.Values{})
				if status != http.StatusNotFound {
					t.Errorf("a cancel of the task of another owner answered %d", status)
				}
			}
			if status, _ := b.post("/console/inbox", "/console/tasks/"+own.String()+"/cancel", url.Values{}); status !=
				http.StatusSeeOther || r.Snapshot(own).Status.State != a2a.StateCanceled {
				t.Errorf("a cancel of its own task answered %d", status)
			}
		})
	}
}

// signedInOwner returns the browser of ann of acme, who has only the scope tasks:write.
func (r *rig) signedInOwner(method auth.Method) *browser {
	r.T.Helper()
	if method == auth.MethodAPIKey {
		b := r.serve()
		b.mustSignIn(r.keyOf("ann", auth.ScopeTasksWrite))
		return b
	}
	p := r.newPeople(auth.ScopeTasksWrite)
	b := r.serve(p.change)
	if status, body := b.comeBack(b.begin(p, "")); status != http.StatusOK {
		r.T.Fatalf("sign-in answered %d: %s", status, body)
	}
	return b
}

func TestOwnerSeesOnlyItsPagesInTheNavigation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.signedInOwner(auth.MethodAPIKey)
	status, _ := b.get("/console/")
	if at := b.last.Header.Get("Location"); status != http.StatusFound || at != "/console/inbox" {
		t.Errorf("the start page answered %d to %s", status, at)
	}
	var shown []string
	for _, m := range regexp.MustCompile(`<a href="/console/([a-z]*)" data-key`).FindAllStringSubmatch(
		b.page("/console/inbox"), -1) {
		shown = append(shown, m[1])
	}
	if want := []string{"tasks", "inbox", "playground"}; !slices.Equal(shown, want) {
		t.Errorf("the navigation has %q, want %q", shown, want)
	}
}

// TestOwnerAnswersInItsOwnName: the answer is a message as its client would send it, and no action of an operator.
func TestOwnerAnswersInItsOwnName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, own := r.signedInOwner(auth.MethodAPIKey), r.asking("ann")
	path := "/console/tasks/" + own.String()
	asked := regexp.MustCompile(`name="asked" value="(\d+)"`).FindStringSubmatch(b.page("/console/inbox"))
	form := url.Values{"text": {"yes"}, "asked": {asked[1]}}
	if status, body := b.post(path, path+"/answer", form); status != http.StatusSeeOther {
		t.Fatalf("the answer got %d: %s", status, body)
	}
	task := r.Snapshot(own)
	if last := task.History[len(task.History)-1]; last.Role != a2a.RoleUser || last.Parts[0].Text != "yes" {
		t.Errorf("the last message is %+v", last)
	}
	if got := r.Column(`SELECT action FROM a2a.audit_log WHERE action LIKE 'task.%'`); len(got) > 0 {
		t.Errorf("the audit log has %q, want nothing", got)
	}
}

// TestOwnerSeesNothingOfTheInside: which worker has a task, and why attempts failed, is not for its owner.
func TestOwnerSeesNothingOfTheInside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, own := r.signedInOwner(auth.MethodAPIKey), r.asking("ann")
	r.Exec(`UPDATE a2a.task_attempts SET worker = 'w-secret', error = 'secret-error'`)
	for _, path := range []string{
		"/tasks", "/tasks?error=secret", "/tasks?failure=x", "/tasks/" + own.String(), "/inbox",
	} {
		body := b.page("/console" + path)
		for _, inside := range []string{"w-secret", "secret-error", "Timeline", "/raw", "Where the time went"} {
			if strings.Contains(body, inside) {
				t.Errorf("%s shows %q", path, inside)
			}
		}
		if !strings.Contains(body, own.String()) {
			t.Errorf("%s does not show the task of the owner: %s", path, body)
		}
	}
}

func TestOwnerFollowsItsOwnTasks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b, own, foreign := r.signedInOwner(auth.MethodAPIKey), r.asking("ann"), r.asking("bob")
	if status, _ := b.get("/console/tasks/" + foreign.String() + "/live"); status != http.StatusNotFound {
		t.Errorf("the task of another owner is followed: %d", status)
	}
	for _, path := range []string{"/console/live", "/console/tasks/" + own.String() + "/live"} {
		if status := b.begins(path); status != http.StatusOK {
			t.Errorf("GET %s answered %d", path, status)
		}
	}
}
