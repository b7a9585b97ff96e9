package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/e2e/check"
)

// chaosWorld is what is outside a2ad: an agent behind a URL and a receiver of webhooks. Both record what they
// receive.
type chaosWorld struct {
	agent *chaosAgent
	hooks *httptest.Server

	mu         sync.Mutex
	executions []check.Execution // guarded by mu
	requests   map[string]int64  // guarded by mu; that the agents have reported, by task
	delivered  []string          // guarded by mu; tasks
	hooked     []hooked          // guarded by mu; the same, as received
	odd        []string          // guarded by mu; requests that could not be parsed
}

func newChaosWorld(t *testing.T) *chaosWorld {
	t.Helper()
	w := &chaosWorld{requests: make(map[string]int64)}
	agents := http.NewServeMux()
	agents.HandleFunc("/run", w.run)
	agents.HandleFunc("/fragile", w.fragile)
	agents.HandleFunc("/sleeps", w.sleeps)
	agents.HandleFunc("/calls", w.calls)
	w.agent = newChaosAgent(t, agents)
	w.hooks = httptest.NewServer(http.HandlerFunc(w.receive))
	t.Cleanup(func() {
		w.agent.stop()
		w.hooks.CloseClientConnections()
		w.hooks.Close()
	})
	return w
}

// chaosAgent is the server of the agent. It can be stopped, so that the address refuses connections, and started again.
type chaosAgent struct {
	addr    string
	handler http.Handler
	server  *http.Server // of one goroutine: the one of the faults
	served  chan struct{}
}

func newChaosAgent(t *testing.T, handler http.Handler) *chaosAgent {
	t.Helper()
	a := &chaosAgent{addr: "127.0.0.1:0", handler: handler}
	if err := a.start(); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *chaosAgent) start() error {
	l, err := net.Listen("tcp", a.addr)
	if err != nil {
		return err
	}
	a.addr, a.server, a.served = l.Addr().String(), &http.Server{Handler: a.handler}, make(chan struct{})
	server, served := a.server, a.served
	go func() {
		defer close(served)
		_ = server.Serve(l) // until stop
	}()
	return nil
}

// stop closes the address and cuts all connections.
func (a *chaosAgent) stop() {
	_ = a.server.Close()
	<-a.served
}

// run is the agent. "N MS" makes it report N chunks, MS milliseconds apart, each with the usage of one request, a step
// and a checkpoint.
func (w *chaosWorld) run(out http.ResponseWriter, r *http.Request) {
	var run agentRun
	if w.begin(r, &run) {
		w.count(out, r, &run)
	}
}

// begin reads a run, and records that it was executed. It returns false if there is none.
func (w *chaosWorld) begin(r *http.Request, run *agentRun) bool {
	if err := json.NewDecoder(r.Body).Decode(run); err != nil {
		return false // its sender was killed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executions = append(w.executions, check.Execution{Task: run.TaskID, Token: run.Epoch})
	return true
}

func (w *chaosWorld) count(out http.ResponseWriter, r *http.Request, run *agentRun) {
	var n, ms int
	if _, err := fmt.Sscanf(run.Messages[0].Parts[0].Text, "%d %d", &n, &ms); err != nil {
		w.note("a run of %q: %v", run.Messages[0].Parts[0].Text, err)
	}
	out.Header().Set("Content-Type", "application/x-ndjson")
	tick := time.NewTicker(time.Duration(max(ms, 1)) * time.Millisecond)
	defer tick.Stop()
	flush := http.NewResponseController(out)
	for k := run.Checkpoint.N; k < n; k++ {
		w.useModel(out, run, k)
		fmt.Fprintf(out, "{\"checkpoint\":{\"n\":%d}}\n", k+1)
		fmt.Fprintf(out,
			`{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":%q}]},"append":%t,"lastChunk":%t}}`+"\n",
			chunkText("a", k), k > 0, k == n-1)
		if flush.Flush() != nil || r.Context().Err() != nil {
			return
		}
		<-tick.C
	}
	fmt.Fprintln(out, `{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`)
}

// useModel reports a request to a model and records the step that it was for, unless the step is recorded.
func (w *chaosWorld) useModel(out io.Writer, run *agentRun, k int) {
	key := fmt.Sprintf("chunk#%d", k)
	if slices.ContainsFunc(run.Steps, func(s agentStep) bool { return s.Key == key }) {
		return
	}
	w.mu.Lock()
	w.requests[run.TaskID]++
	w.mu.Unlock()
	fmt.Fprintln(out, `{"usage":{"model":"m","inputTokens":3,"outputTokens":2,"requests":1}}`)
	fmt.Fprintf(out, `{"step":{"key":%q,"name":"chunk","result":{}}}`+"\n", key)
}

// receive is the receiver of webhooks. It refuses one in eight.
func (w *chaosWorld) receive(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // its sender was killed
	}
	var task struct{ ID string }
	if err := json.Unmarshal(body, &task); err != nil || task.ID == "" {
		w.note("a webhook: %s", body)
	}
	w.mu.Lock()
	w.delivered = append(w.delivered, task.ID)
	deny := len(w.delivered)%8 == 0
	w.hooked = append(w.hooked, hooked{id: r.Header.Get("Webhook-Id"), body: string(body), accepted: !deny})
	w.mu.Unlock()
	if deny {
		out.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (w *chaosWorld) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.odd = append(w.odd, fmt.Sprintf(format, args...))
}

// chaosLimits allow as many attempts as there are faults, and deadlines that a clock jump of one hour does not end.
const chaosLimits = "limits: {max_attempts: 1000, deadline: 24h, backoff: {base: 50ms, max: 200ms}}\n"

// agentFile is the agent file of an agent at a path.
func (w *chaosWorld) agentFile(name, path, limits string) string {
	return fmt.Sprintf("name: %s\ndescription: Works.\nskills: [{id: w, name: W, description: Works, tags: [test]}]\n"+
		"executor: {http: {url: %q}}\n%s", name, "http://"+w.agent.addr+path, limits)
}

// oneLine joins the lines of text.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
