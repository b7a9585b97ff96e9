package admin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// callers are the callers of the tests, by their bearer tokens.
var callers = map[string]auth.Principal{
	"reader": {Tenant: "ops", Owner: "olga", Scopes: []auth.Scope{auth.ScopeOperatorRead}},
	"writer": {Tenant: "ops", Owner: "olga", Scopes: []auth.Scope{auth.ScopeOperatorWrite}},
	"both": {
		Tenant: "ops", Owner: "olga", Scopes: []auth.Scope{auth.ScopeOperatorRead, auth.ScopeOperatorWrite},
		Method: auth.MethodAPIKey, KeyID: "k1",
	},
	"support": {
		Tenant: "acme", Owner: "sally", Scopes: []auth.Scope{auth.ScopeTenantRead, auth.ScopeOperatorWrite},
	},
	"acme":     {Tenant: "acme", Owner: "sam", Scopes: []auth.Scope{auth.ScopeTenantRead}},
	"corp":     {Tenant: "corp", Owner: "sue", Scopes: []auth.Scope{auth.ScopeTenantRead}},
	"one":      {Tenant: "ops", Owner: "olga", Scopes: []auth.Scope{auth.ScopeOperatorRead}, Agents: []string{"other"}},
	"client":   {Tenant: "acme", Owner: "ann", Scopes: []auth.Scope{auth.ScopeTasksRead, auth.ScopeTasksWrite}},
	"worker":   {Tenant: "acme", Owner: "w", Scopes: []auth.Scope{auth.ScopeWorker, auth.ScopeSignal}},
	"nobody":   {Tenant: "acme", Owner: "n"},
	"pushover": {Tenant: "acme", Owner: "p", Scopes: []auth.Scope{auth.ScopePushWrite}},
}

// bearer authenticates the callers of the tests.
type bearer struct{}

func (bearer) Authenticate(r *http.Request) (auth.Principal, error) {
	p, ok := callers[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if !ok {
		return p, auth.ErrNoCredential
	}
	return p, nil
}

func (bearer) Challenges() []string          { return []string{`Bearer realm="a2ad"`} }
func (bearer) Schemes() []a2a.SecurityScheme { return nil }

// fixture is an API on a database of its own.
type fixture struct {
	*storetest.Fixture
	api *admin.API
}

func newFixture(t *testing.T, change ...func(*admin.Config)) *fixture {
	t.Helper()
	f := &fixture{Fixture: storetest.Open(t)}
	cfg := admin.Config{Store: f.Store, SignIn: auth.Chain{bearer{}}.Authenticate}
	for _, c := range change {
		c(&cfg)
	}
	f.api = admin.New(cfg)
	return f
}

// reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r *reply) reason() string {
	var f admin.Failure
	if json.Unmarshal([]byte(r.body), &f) != nil {
		return "no failure: " + r.body
	}
	return f.Error.Reason
}

// read decodes a successful answer.
func read[A any](f *fixture, r reply) (a A) {
	f.T.Helper()
	if r.status != http.StatusOK {
		f.T.Fatalf("status %d: %s", r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), &a); err != nil {
		f.T.Fatal(err)
	}
	return a
}

func (f *fixture) get(caller, path string) reply { return f.ask(caller, "GET", path, "") }

func (f *fixture) post(caller, path, body string) reply { return f.ask(caller, "POST", path, body) }

// ask sends a request. The document must describe the answer.
func (f *fixture) ask(caller, method, path, body string) reply {
	f.T.Helper()
	r := httptest.NewRequestWithContext(f.T.Context(), method, admin.Prefix+path, strings.NewReader(body))
	if method == "POST" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Authorization", "Bearer "+caller)
	w := httptest.NewRecorder()
	f.api.ServeHTTP(w, r)
	got := reply{w.Code, w.Header(), w.Body.String()}
	if got.header.Get("Cache-Control") != "no-store" {
		f.T.Errorf("%s %s may be stored: Cache-Control %q", method, path, got.header.Get("Cache-Control"))
	}
	if err := documented(method, r.URL.EscapedPath(), got); err != nil {
		f.T.Errorf("%s %s: %v\n%s", method, path, err, got.body)
	}
	return got
}

var (
	document = sync.OnceValue(func() map[string]any {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(admin.Document()))
		if err != nil {
			panic(err)
		}
		return doc.(map[string]any)
	})
	compiler = sync.OnceValue(func() *jsonschema.Compiler {
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("mem:///openapi.json", document()); err != nil {
			panic(err)
		}
		return c
	})
	compiling   sync.Mutex // guards the compiler
	placeholder = regexp.MustCompile(`\\\{\w+\\\}`)
)

// template returns the path of the document that describes a path.
func template(path string) string {
	paths := document()["paths"].(map[string]any)
	if paths[path] != nil {
		return path
	}
	for known := range paths {
		pattern := placeholder.ReplaceAllString(regexp.QuoteMeta(known), `[^/]+`)
		if regexp.MustCompile("^" + pattern + "$").MatchString(path) {
			return known
		}
	}
	return path
}

// documented returns an error if the document does not describe an answer.
func documented(method, path string, r reply) error {
	path = template(strings.TrimPrefix(path, admin.Prefix))
	if path == "/openapi.json" {
		return nil // it does not describe itself
	}
	item, _ := document()["paths"].(map[string]any)[path].(map[string]any)
	pointer := "/components/schemas/Failure"
	if op, ok := item[strings.ToLower(method)].(map[string]any); ok {
		if op["responses"].(map[string]any)[fmt.Sprint(r.status)] == nil {
			return fmt.Errorf("the document lacks the status %d", r.status)
		}
		escaped := strings.NewReplacer("/", "~1", "{", "%7B", "}", "%7D").Replace(path)
		pointer = fmt.Sprintf("/paths/%s/%s/responses/%d/content/application~1json/schema",
			escaped, strings.ToLower(method), r.status)
	}
	compiling.Lock()
	s, err := compiler().Compile("mem:///openapi.json#" + pointer)
	compiling.Unlock()
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(r.body))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// submit makes a task of a tenant's owner.
func (f *fixture) submit(tenant, owner, agent, text string, metadata ...string) a2a.ID {
	f.T.Helper()
	in := storetest.Submission(text)
	in.Tenant, in.Owner, in.Agent = tenant, owner, agent
	if len(metadata) > 0 {
		in.Message.Metadata = a2a.Raw(metadata[0])
	}
	return f.Submit(in).Task
}
