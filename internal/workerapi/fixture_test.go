package workerapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/workerapi"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// callers authenticates the callers of the tests by a bearer token, which is the caller's name.
type callers struct{}

func (callers) Authenticate(r *http.Request) (auth.Principal, error) {
	p := auth.Principal{Tenant: "workers", Owner: "fleet", Kind: auth.KindService,
		Scopes: []auth.Scope{auth.ScopeWorker}}
	switch strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") {
	case "all":
	case "words":
		p.Agents = []string{"words"}
	case "signaler":
		p.Scopes = []auth.Scope{auth.ScopeSignal}
	case "words signaler":
		p.Agents, p.Scopes = []string{"words"}, []auth.Scope{auth.ScopeSignal}
	case "client":
		p.Scopes = []auth.Scope{auth.ScopeTasksRead, auth.ScopeTasksWrite}
	case "broken":
		return p, fmt.Errorf("the table of keys is upside down")
	default:
		return p, auth.ErrNoCredential
	}
	return p, nil
}

func (callers) Challenges() []string          { return []string{`Bearer realm="a2ad"`} }
func (callers) Schemes() []a2a.SecurityScheme { return nil }

// fixture is a database of its own with one replica that serves workers.
type fixture struct {
	*store.Store
	t      testing.TB
	url    string
	sql    *pgxpool.Pool
	hub    *notify.Hub
	at     string // base URL of the replica
	tracer pgx.QueryTracer
	claims *firstClaim // nil if the test has a tracer of its own
	api    *workerapi.API
}

var testLimits = a2a.Limits{MaxAttempts: 3, LeaseTTL: time.Hour, BackoffBase: time.Millisecond,
	BackoffMax: 2 * time.Millisecond}

// newFixture serves the agents words and other. It never polls, so only wake-ups make it claim.
func newFixture(t testing.TB, change ...func(*workerapi.Config)) *fixture {
	t.Helper()
	claims := &firstClaim{ended: make(chan struct{})}
	f := newTracedFixture(t, claims, change...)
	f.claims = claims
	return f
}

// newTracedFixture is newFixture with a tracer of the store's statements.
func newTracedFixture(t testing.TB, tracer pgx.QueryTracer, change ...func(*workerapi.Config)) *fixture {
	t.Helper()
	pg := storetest.New(t)
	f := &fixture{t: t, url: pg.URL, sql: pg.Pool(t), tracer: tracer}
	f.Store, f.hub, f.at = f.replica("r1", change...)
	return f
}

// watchedHub reports when the API has subscribed to the wake-ups of all agents, which shows that it
// runs.
type watchedHub struct {
	*notify.Hub
	missing atomic.Int64
	running chan struct{}
}

func (h *watchedHub) Watch(key string, wake func()) (stop func()) {
	defer func() {
		if h.missing.Add(-1) == 0 {
			close(h.running)
		}
	}()
	return h.Hub.Watch(key, wake)
}

// replica starts another server on the same database. It only receives its own wake-ups.
func (f *fixture) replica(name string, change ...func(*workerapi.Config)) (*store.Store, *notify.Hub, string) {
	f.t.Helper()
	hub := &notify.Hub{}
	s, err := store.Open(f.t.Context(),
		store.Config{Config: db.Config{URL: f.url, Replica: name, PoolSize: 8, Wake: hub.Wake,
			Tracer: f.tracer}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(s.Close)
	cfg := workerapi.Config{
		Authenticator: auth.Chain{callers{}}, Agents: []*a2a.Agent{{Name: "words"}, {Name: "other"}},
		Limits: testLimits, Poll: time.Hour, MaxBody: 1 << 20, Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	watched := &watchedHub{Hub: hub, running: make(chan struct{})}
	watched.missing.Store(int64(len(cfg.Agents)))
	api := workerapi.New(s.Tasks, watched, cfg)
	f.api = api
	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = api.Run(ctx) })
	server := httptest.NewServer(api)
	f.t.Cleanup(func() { server.CloseClientConnections(); stop(); wg.Wait(); server.Close() })
	if len(cfg.Agents) > 0 { // until Run runs, claims are answered without tasks
		select {
		case <-watched.running:
		case <-f.t.Context().Done():
			f.t.Fatal("the API does not run")
		}
	}
	return s, hub, server.URL
}

func (f *fixture) submit(agent, owner string) a2a.ID {
	f.t.Helper()
	out, err := f.Tasks.Submit(f.t.Context(), tasks.Submission{
		Caller: db.Caller{Tenant: "acme", Owner: owner}, Agent: agent, ContextID: "ctx",
		Message: a2a.Message{ID: "m-1", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return out.Task
}

// reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	body   string
	json   map[string]any
}

func (r reply) reason() string {
	e, _ := r.json["error"].(map[string]any)
	s, _ := e["reason"].(string)
	return s
}

// post sends a request as the worker that may serve all agents. Every answer must match
// openapi.json.
func (f *fixture) post(path, body string) reply {
	f.t.Helper()
	return f.ask(f.at, "all", "POST", path, body)
}

func (f *fixture) ask(base, key, method, path, body string) reply {
	f.t.Helper()
	r, err := f.tryAsk(f.t.Context(), base, key, method, path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

func (f *fixture) tryAsk(ctx context.Context, base, key, method, path, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, base+"/worker/v1"+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return f.send(req)
}

func (f *fixture) send(req *http.Request) (reply, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{status: resp.StatusCode, header: resp.Header, body: string(b)}
	if err := json.Unmarshal(b, &r.json); err != nil {
		return r, fmt.Errorf("%s: %q: %w", resp.Status, b, err)
	}
	f.documented(req.Method, strings.TrimPrefix(req.URL.Path, "/worker/v1"), r)
	return r, nil
}

// run is a run that a worker has claimed.
type run struct {
	TaskID     string
	ContextID  string
	ContextKey string
	Tenant     string
	Owner      string
	Agent      string
	Epoch      int64
	Attempt    int
	Checkpoint json.RawMessage
	StepCount  int
	Steps      json.RawMessage
	Messages   []any
	path       string
}

func runsOf(t testing.TB, r reply) []run {
	t.Helper()
	var answer struct{ Runs []run }
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil || r.status != http.StatusOK {
		t.Fatalf("claim: status %d: %v: %s", r.status, err, r.body)
	}
	for i := range answer.Runs {
		answer.Runs[i].path = fmt.Sprintf("/runs/%s/%d/", answer.Runs[i].TaskID, answer.Runs[i].Epoch)
	}
	return answer.Runs
}

// claim claims up to n runs of an agent, and waits for the first.
func (f *fixture) claim(agent string, n int) []run {
	f.t.Helper()
	return runsOf(f.t, f.post("/claim", fmt.Sprintf(`{"worker":"w1","agents":[%q],"max":%d,"waitSeconds":30}`, agent,
		n)))
}

// claimed submits a task and claims it.
func (f *fixture) claimed() run {
	f.t.Helper()
	f.submit("words", "ann")
	runs := f.claim("words", 1)
	if len(runs) != 1 {
		f.t.Fatalf("claimed %d runs, want 1", len(runs))
	}
	return runs[0]
}

func (f *fixture) id(r run) a2a.ID {
	f.t.Helper()
	id, err := a2a.ParseID(r.TaskID)
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

func (f *fixture) snapshot(id a2a.ID) *a2a.Task {
	f.t.Helper()
	task, err := f.Tasks.SnapshotOfAny(f.t.Context(), id, tasks.Want{Artifacts: true})
	if err != nil {
		f.t.Fatal(err)
	}
	return task
}

func (f *fixture) wantState(id a2a.ID, want a2a.State) {
	f.t.Helper()
	if got := f.snapshot(id).Status.State; got != want {
		f.t.Errorf("task %s is %s, want %s", id, got, want)
	}
}

func (f *fixture) logLength(id a2a.ID) int {
	f.t.Helper()
	entries, err := f.Tasks.EventsAfter(f.t.Context(), id, 0, 100_000)
	if err != nil {
		f.t.Fatal(err)
	}
	return len(entries)
}

func (f *fixture) outcomes(id a2a.ID) (out []string) {
	f.t.Helper()
	rows, err := f.Operate.Attempts(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range rows {
		out = append(out, r.Worker+" "+r.Outcome+" "+r.Error)
	}
	return out
}

func (f *fixture) exec(query string, args ...any) {
	f.t.Helper()
	if _, err := f.sql.Exec(f.t.Context(), query, args...); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
}

// expire makes a lease end in the past. The replica that was started last has forgotten it, as if the time had passed.
func (f *fixture) expire(r run) {
	f.t.Helper()
	f.api.ForgetRuns()
	f.exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second' WHERE task_id = $1",
		f.id(r))
}

func want(t testing.TB, r reply, status int, reason string) {
	t.Helper()
	if r.status != status || r.reason() != reason {
		t.Errorf("status %d %s, want %d %s: %s", r.status, r.reason(), status, reason, r.body)
	}
}

const (
	completed = `{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`
	working   = `{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING","message":{"parts":[{"text":"half done"}]}}}}`
	artifact  = `{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"one"}]}}}`
)

func events(list ...string) string { return `{"events":[` + strings.Join(list, ",") + `]}` }
