package admin_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// tooMuch is a body that is refused because of its reason.
var tooMuch = `{"reason":"` + strings.Repeat("x", 1001) + `"}`

// asked is a request of each route, on a task.
var asked = map[string]func(task string) (path, body string){
	"GET /tasks":               func(string) (string, string) { return "/tasks", "" },
	"GET /tasks/tail":          func(string) (string, string) { return "/tasks/tail", "" },
	"GET /tasks/{task}":        func(id string) (string, string) { return "/tasks/" + id, "" },
	"GET /tasks/{task}/tree":   func(id string) (string, string) { return "/tasks/" + id + "/tree", "" },
	"GET /tasks/{task}/events": func(id string) (string, string) { return "/tasks/" + id + "/events", "" },
	"GET /actions":             func(string) (string, string) { return "/actions", "" },
	"POST /tasks/{task}/retry": func(id string) (string, string) { return "/tasks/" + id + "/retry", `{}` },
	"POST /tasks/{task}/signal": func(id string) (string, string) {
		return "/tasks/" + id + "/signal", `{"name":"go"}`
	},
	"POST /tasks/{task}/answer": func(id string) (string, string) {
		return "/tasks/" + id + "/answer", `{"text":"yes"}`
	},
	"POST /tasks/{task}/assign": func(id string) (string, string) {
		return "/tasks/" + id + "/assign", `{"assignee":"Carl"}`
	},
	"GET /sessions": func(string) (string, string) { return "/sessions", "" },
	"POST /sessions/revoke": func(string) (string, string) {
		return "/sessions/revoke", `{"id":"none"}`
	},
	"POST /tasks/{task}/resume": func(id string) (string, string) { return "/tasks/" + id + "/resume", `{}` },
	"POST /tasks/{task}/cancel": func(id string) (string, string) { return "/tasks/" + id + "/cancel", `{}` },
	"POST /tasks/{task}/purge": func(id string) (string, string) {
		return "/tasks/" + id + "/purge", `{"reason":"asked to"}`
	},
	"POST /purges": func(string) (string, string) {
		return "/purges", `{"reason":"asked to","tenant":"acme","owner":"none"}`
	},
	"GET /webhooks": func(string) (string, string) { return "/webhooks", "" },
	"GET /webhooks/{webhook}/attempts": func(id string) (string, string) {
		return "/webhooks/" + id + "/attempts", ""
	},
	"POST /webhooks/{webhook}/replay": func(id string) (string, string) { return "/webhooks/" + id + "/replay", `{}` },
	"GET /destinations":               func(string) (string, string) { return "/destinations", "" },
	"POST /destinations/enable": func(string) (string, string) {
		return "/destinations/enable", `{"tenant":"acme","origin":"https://none:443"}`
	},
	"POST /destinations/replay": func(string) (string, string) {
		return "/destinations/replay", `{"tenant":"acme","origin":"https://none:443","since":"2026-01-01T00:00:00Z"}`
	},
	"GET /queues":  func(string) (string, string) { return "/queues", "" },
	"GET /agents":  func(string) (string, string) { return "/agents", "" },
	"GET /workers": func(string) (string, string) { return "/workers", "" },
	"POST /agents/{agent}/pause": func(string) (string, string) {
		return "/agents/words/pause", tooMuch
	},
	"POST /agents/{agent}/resume":   func(string) (string, string) { return "/agents/words/resume", `{}` },
	"POST /workers/{worker}/drain":  func(string) (string, string) { return "/workers/w1/drain", tooMuch },
	"POST /workers/{worker}/resume": func(string) (string, string) { return "/workers/w1/resume", `{}` },

	"GET /jobs":             func(string) (string, string) { return "/jobs", "" },
	"GET /jobs/{job}":       func(id string) (string, string) { return "/jobs/" + id, "" },
	"GET /jobs/{job}/tasks": func(id string) (string, string) { return "/jobs/" + id + "/tasks", "" },
	"POST /jobs": func(string) (string, string) {
		return "/jobs", `{"action":"cancel","filter":{},"dryRun":true}`
	},
	"POST /jobs/{job}/stop": func(id string) (string, string) { return "/jobs/" + id + "/stop", `{}` },

	"GET /doctor": func(string) (string, string) { return "/doctor", "" },
	"GET /keys":   func(string) (string, string) { return "/keys", "" },
	"POST /keys": func(string) (string, string) {
		return "/keys", `{"tenant":"t","owner":"o","scopes":["x"]}`
	},
	"POST /keys/{key}/revoke": func(string) (string, string) { return "/keys/none/revoke", `{}` },
	"GET /stats":              func(string) (string, string) { return "/stats", "" },
	"GET /usage":              func(string) (string, string) { return "/usage", "" },
	"GET /schedules":          func(string) (string, string) { return "/schedules", "" },
	"GET /schedules/{agent}/{name}/ticks": func(string) (string, string) {
		return "/schedules/words/daily/ticks", ""
	},
	"POST /schedules/{agent}/{name}/run": func(string) (string, string) { return "/schedules/words/daily/run", `{}` },
	"POST /schedules/{agent}/{name}/pause": func(string) (string, string) {
		return "/schedules/words/daily/pause", `{}`
	},
	"POST /schedules/{agent}/{name}/resume": func(string) (string, string) {
		return "/schedules/words/daily/resume", `{}`
	},
}

var (
	// forOperators are the routes that need operator:read: tenant:read is not enough.
	forOperators = []string{
		"POST /agents/{agent}/pause", "POST /agents/{agent}/resume", "POST /workers/{worker}/drain",
		"POST /workers/{worker}/resume", "POST /jobs", "POST /jobs/{job}/stop", "POST /keys", "POST /keys/{key}/revoke",
		"POST /sessions/revoke",
		"GET /agents", "GET /workers", "GET /doctor", "GET /stats", "GET /usage", "GET /keys", "GET /sessions",
		"GET /queues", "GET /jobs", "GET /jobs/{job}", "GET /jobs/{job}/tasks",
	}
	// ofAllAgents are refused to credentials for certain agents.
	ofAllAgents = []string{
		"GET /actions", "GET /stats", "GET /usage", "GET /keys", "GET /sessions", "GET /webhooks",
		"GET /webhooks/{webhook}/attempts",
		"GET /destinations", "GET /doctor", "GET /workers", "GET /jobs", "GET /jobs/{job}", "GET /jobs/{job}/tasks",
	}
)

// permitted returns the callers that a route permits.
func permitted(route string) (may []string) {
	everywhere := slices.Contains(forOperators, route)
	switch {
	case strings.HasPrefix(route, "POST ") && everywhere:
		return []string{"both"}
	case strings.HasPrefix(route, "POST "):
		return []string{"both", "support"}
	case everywhere:
		may = []string{"reader", "both"}
	default:
		may = []string{"reader", "both", "acme", "corp", "support"}
	}
	if !slices.Contains(ofAllAgents, route) {
		may = append(may, "one")
	}
	return may
}

// TestEachScopeAgainstEachRoute: a caller without the scope gets 403, whatever exists, and changes nothing.
func TestEachScopeAgainstEachRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if routes := admin.Routes(); !slices.Equal(routes, slices.Sorted(maps.Keys(asked))) {
		t.Fatalf("the routes are %q: add a request of each to this test", routes)
	}
	task := f.submit("acme", "ann", "words", "x").String()
	for route, request := range asked {
		method, _, _ := strings.Cut(route, " ")
		may := permitted(route)
		for caller := range callers {
			path, body := request(db.NewTaskID().String())
			if !slices.Contains(may, caller) {
				path, body = request(task) // that it exists must make no difference
			}
			got := f.ask(caller, method, path, body)
			if forbidden := got.status == http.StatusForbidden; forbidden == slices.Contains(may, caller) {
				t.Errorf("%s as %s: %d %s", route, caller, got.status, got.body)
			}
			if got.status == http.StatusForbidden && caller != "one" &&
				!strings.Contains(got.header.Get("WWW-Authenticate"), `error="insufficient_scope"`) {
				t.Errorf("%s as %s: WWW-Authenticate %q", route, caller, got.header.Get("WWW-Authenticate"))
			}
		}
		path, body := request(task)
		got := f.ask("a stranger", method, path, body)
		if got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s without credentials: %d %s", route, got.status, got.body)
		}
	}
	if actions := f.Actions(); len(actions) > 0 {
		t.Errorf("the audit log has %q, want nothing", actions)
	}
}

// TestSupportOfATenantSeesNothingOfOthers: the answers to tenant:read are those of a server on which the other tenants
// do not exist.
func TestSupportOfATenantSeesNothingOfOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	own, foreign := f.submit("acme", "ann", "words", "mine"), f.submit("corp", "carl", "words", "secret")
	for _, id := range []a2a.ID{own, foreign} {
		if got := f.post("both", "/tasks/"+id.String()+"/cancel", `{}`); got.status != http.StatusOK {
			t.Fatalf("cancel: %d %s", got.status, got.body)
		}
	}
	list := read[admin.TaskList](f, f.get("acme", "/tasks"))
	if len(list.Tasks) != 1 || list.Tasks[0].ID != own.String() {
		t.Errorf("acme lists %+v, want its own task", list.Tasks)
	}
	actions := read[admin.ActionList](f, f.get("acme", "/actions"))
	if len(actions.Actions) != 1 || actions.Actions[0].TaskID != own.String() {
		t.Errorf("acme sees the actions %+v, want that on its own task", actions.Actions)
	}
	for _, path := range []string{
		"/tasks?tenant=corp", "/tasks?id=" + foreign.String(), "/tasks?text=secret", "/tasks?owner=carl",
		"/actions?tenant=corp", "/actions?task=" + foreign.String(),
	} {
		got := f.get("acme", path)
		secret := strings.Contains(got.body, "corp") || strings.Contains(got.body, foreign.String())
		if got.status != http.StatusOK || secret {
			t.Errorf("GET %s: %d %s", path, got.status, got.body)
		}
	}
	for _, path := range []string{"", "/tree"} {
		there := f.get("acme", "/tasks/"+foreign.String()+path)
		missing := f.get("acme", "/tasks/"+db.NewTaskID().String()+path)
		if there.status != http.StatusNotFound || there.body != missing.body {
			t.Errorf("a task of another tenant: %d %s; an unknown one: %s", there.status, there.body, missing.body)
		}
		if got := f.get("acme", "/tasks/"+own.String()+path); got.status != http.StatusOK {
			t.Errorf("its own task: %d %s", got.status, got.body)
		}
	}
}

// TestSupportOfATenantChangesNothingOfOthers: operator:write permits no change of what the caller may not see.
func TestSupportOfATenantChangesNothingOfOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	own, foreign := f.submit("acme", "ann", "words", "mine").String(), f.submit("corp", "carl", "words", "x").String()
	for route, request := range asked {
		if !strings.HasPrefix(route, "POST /tasks/{task}/") {
			continue
		}
		path, body := request(foreign)
		there := f.post("support", path, body)
		path, body = request(db.NewTaskID().String())
		if missing := f.post("support", path, body); there.status != http.StatusNotFound || there.body != missing.body {
			t.Errorf("%s on a task of another tenant: %d %s; an unknown one: %s",
				route, there.status, there.body, missing.body)
		}
	}
	for path, body := range map[string]string{
		"/purges":              `{"reason":"x","tenant":"corp","owner":"carl"}`,
		"/destinations/enable": `{"tenant":"corp","origin":"https://none:443"}`,
		"/destinations/replay": `{"tenant":"corp","origin":"https://none:443","since":"2026-01-01T00:00:00Z"}`,
	} {
		if got := f.post("support", path, body); got.status != http.StatusForbidden {
			t.Errorf("POST %s for another tenant: %d %s", path, got.status, got.body)
		}
	}
	if actions := f.Actions(); len(actions) > 0 {
		t.Errorf("the audit log has %q, want nothing", actions)
	}
	if got := f.post("support", "/tasks/"+own+"/cancel", `{}`); got.status != http.StatusOK {
		t.Errorf("cancel a task of its own tenant: %d %s", got.status, got.body)
	}
}

// TestTaskByTheBeginningOfItsID: a beginning names the only task that the caller may know of. Ids of the same moment
// begin alike.
func TestTaskByTheBeginningOfItsID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	own := f.submit("acme", "ann", "words", "mine").String()
	f.submit("corp", "carl", "words", "theirs")
	beginning := own[:4]
	if d := read[admin.TaskDetail](f, f.get("acme", "/tasks/"+beginning)); d.ID != own {
		t.Errorf("%q: task %s, want %s", beginning, d.ID, own)
	}
	if list := read[admin.TaskList](f, f.get("acme", "/tasks?before="+beginning)); len(list.Tasks) != 0 {
		t.Errorf("before=%s: %+v", beginning, list.Tasks)
	}
	for _, got := range []reply{
		f.get("reader", "/tasks/"+beginning), f.post("both", "/tasks/"+beginning+"/cancel", `{}`),
		f.post("both", "/tasks/"+beginning+"/purge", `{"reason":"x"}`),
	} {
		if got.status != http.StatusConflict || got.reason() != "AMBIGUOUS_ID" {
			t.Errorf("a beginning of two ids: %d %s", got.status, got.body)
		}
	}
	for _, text := range []string{own[:3], "ffff", "no-id", "%25", strings.Repeat("0", 100)} {
		if got := f.get("reader", "/tasks/"+text); got.status != http.StatusNotFound {
			t.Errorf("%q: %d %s", text, got.status, got.body)
		}
	}
	if got := f.get("reader", "/tasks?before="+beginning); got.status != http.StatusBadRequest {
		t.Errorf("before the beginning of two ids: %d %s", got.status, got.body)
	}
}

func TestCredentialsForCertainAgentsSeeNoOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hidden, shown := f.submit("acme", "ann", "words", "x"), f.submit("acme", "ann", "other", "y")
	for _, path := range []string{"/tasks", "/tasks?agent=other&agent=words"} {
		list := read[admin.TaskList](f, f.get("one", path))
		if len(list.Tasks) != 1 || list.Tasks[0].ID != shown.String() {
			t.Errorf("GET %s: %+v, want the task of the agent", path, list.Tasks)
		}
	}
	if list := read[admin.TaskList](f, f.get("one", "/tasks?agent=words")); len(list.Tasks) > 0 {
		t.Errorf("tasks of another agent: %+v", list.Tasks)
	}
	if got := f.get("one", "/tasks/"+hidden.String()); got.status != http.StatusNotFound {
		t.Errorf("a task of another agent: %d %s", got.status, got.body)
	}
}

// TestCredentialsForCertainAgentsSeeNoCallsOfOthers: a task of the agent "other" calls itself and "words". The
// latter calls "other".
func TestCredentialsForCertainAgentsSeeNoCallsOfOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call := func(task a2a.ID, from string, to ...string) (made []a2a.ID) {
		t.Helper()
		leases, err := f.Tasks.NewClaimer().Claim(t.Context(), from, 10, storetest.TTL, time.Hour)
		i := slices.IndexFunc(leases, func(l tasks.Lease) bool { return l.TaskID == task })
		if err != nil || i < 0 {
			t.Fatalf("the task %s is not among %v: %v", task, leases, err)
		}
		b := tasks.Batch{ContextID: "ctx"}
		for n, agent := range to {
			c := &a2a.Call{Key: "to-" + agent, Agent: agent, Message: storetest.Message("m", "x")}
			made = append(made, db.NewTaskID())
			b.Steps = append(b.Steps, a2a.StepRecord{
				Step: a2a.Step{Key: c.Key, Name: agent}, Seq: n + 1, Kind: a2a.StepCall, Child: made[n], Call: c,
			})
		}
		if _, err := f.Tasks.Append(t.Context(), &leases[i], b); err != nil {
			t.Fatal(err)
		}
		return made
	}
	root := f.submit("acme", "ann", "other", "x")
	children := call(root, "other", "words", "other")
	hidden, shown := children[0], children[1]
	below := call(hidden, "words", "other")[0]

	for caller, all := range map[string]bool{"reader": true, "one": false} {
		if got := f.get(caller, "/tasks/"+root.String()); strings.Contains(got.body, hidden.String()) != all ||
			!strings.Contains(got.body, shown.String()) {
			t.Errorf("the timeline for %s: %d %s", caller, got.status, got.body)
		}
		tree := read[admin.Tree](f, f.get(caller, "/tasks/"+root.String()+"/tree")).Tasks
		got := make([]string, len(tree))
		for i := range tree {
			got[i] = tree[i].ID
		}
		want := []string{root.String(), hidden.String(), below.String(), shown.String()}
		if !all {
			want = []string{root.String(), shown.String()}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the tree for %s has %v, want %v", caller, got, want)
		}
	}
}

func TestRequestsAreCountedAsReadsAndWrites(t *testing.T) {
	t.Parallel()
	var counted []bool
	f := newFixture(t, func(c *admin.Config) {
		c.Admit = func(_ auth.Principal, write bool) error {
			counted = append(counted, write)
			if len(counted) > 2 {
				return a2a.Errorf(a2a.CodeRateLimited, "too many reads")
			}
			return nil
		}
	})
	f.get("both", "/tasks")
	f.post("both", "/tasks/x/cancel", `{}`)
	got := f.get("both", "/tasks")
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("over the limit: %d %s", got.status, got.body)
	}
	if !slices.Equal(counted, []bool{false, true, false}) {
		t.Errorf("counted %v", counted)
	}
}
