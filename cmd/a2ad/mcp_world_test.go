package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// mcpAgents are the agent files of mcpWorld. The agent clerk asks for what its client names, and completes after the
// answer.
var mcpAgents = map[string]string{
	"echo.yaml":   "name: echo\ndescription: Says what it is told.\nexecutor: {echo: {}}\n",
	"script.yaml": "name: script\ndescription: Plays scripts.\nexecutor: {script: {}}\n",
	"talker.yaml": "name: talker\ndescription: Replies.\ndirect_reply: true\nexecutor: {script: {}}\n",
	"clerk.yaml": `name: clerk
description: Asks for an answer of a given form.
executor: {exec: {command: [sh, ./clerk.sh]}}
card:
  skills:
  - {id: ask, name: Ask, description: Asks., tags: [test], examples: [Ask me.], input_schema: {type: object}}
`,
	"clerk.sh": `run=$(cat)
case "$run" in
*'"q#1"'*) echo '{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}'; exit ;;
*choices*) expects='{"choices":["yes","no"]}' ;;
*flat*) expects='{"schema":{"type":"object","properties":{"days":{"type":"integer"}},"required":["days"]}}' ;;
*) expects='{"schema":{"type":"array"}}' ;;
esac
echo '{"wait":{"key":"q#1","message":true,"status":{"state":"TASK_STATE_INPUT_REQUIRED",
"message":{"parts":[{"text":"How?"}]}},"expects":'"$expects"'}}' | tr -d '\n'
echo
`,
}

// mcpWorld is a server whose callers sign in, and two callers.
type mcpWorld struct {
	*testing.T
	url        string
	alice, bob string // keys
}

func newMCPWorld(t *testing.T) *mcpWorld {
	t.Helper()
	dir := t.TempDir()
	for name, text := range mcpAgents {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pg := storetest.New(t)
	w := &mcpWorld{T: t}
	started := w.start([]string{
		"A2AD_DATABASE_URL=" + pg.URL, "A2AD_AGENTS=" + dir, "A2AD_LISTEN=127.0.0.1:0", "A2AD_ADMIN_LISTEN=off",
		"A2AD_AUTH=required", "A2AD_LOG_FORMAT=json", "A2AD_DB_POOL=8", "A2AD_PUSH_ALLOW_CIDRS=127.0.0.0/8",
		"PATH=" + os.Getenv("PATH"), "A2AD_POLL_INTERVAL=500ms", "A2AD_DEFAULT_AGENT=echo",
	}, regexp.MustCompile(`"msg":"ready".*"api":"([^"]+)"`), "serve")
	w.url = "http://" + started
	w.alice, w.bob = w.key(pg.URL, "alice"), w.key(pg.URL, "bob")
	return w
}

// start runs a command until the test ends. It returns what ready finds on stderr.
func (w *mcpWorld) start(env []string, ready *regexp.Regexp, args ...string) string {
	w.Helper()
	ctx, stop := context.WithCancel(context.Background())
	log, stderr := io.Pipe()
	var wg sync.WaitGroup
	code := 0
	wg.Go(func() {
		code = run(ctx, args, env, strings.NewReader(""), io.Discard, stderr)
		stderr.Close()
	})
	found := make(chan string, 1)
	var all strings.Builder
	wg.Go(func() {
		defer close(found)
		lines := bufio.NewScanner(log)
		lines.Buffer(nil, 1<<20)
		for waiting := true; lines.Scan(); {
			fmt.Fprintln(&all, lines.Text())
			if m := ready.FindStringSubmatch(lines.Text()); m != nil && waiting {
				found <- m[1]
				waiting = false
			}
		}
		_, _ = io.Copy(io.Discard, log)
	})
	w.Cleanup(func() {
		stop()
		wg.Wait()
		if code != exitOK {
			w.Errorf("a2ad %s: exit code %d\n%s", strings.Join(args, " "), code, all.String())
		}
	})
	line, ok := <-found
	if !ok {
		w.Fatalf("a2ad %s did not start:\n%s", strings.Join(args, " "), all.String())
	}
	return line
}

func (w *mcpWorld) key(database, owner string) string {
	w.Helper()
	i := &invocation{env: []string{"A2AD_DATABASE_URL=" + database}}
	i.run(w.T, "apikey", "create", "-o", "json", "--tenant", "t", "--owner", owner,
		"--scopes", "tasks:read,tasks:write")
	var made struct{ Key string }
	if err := json.Unmarshal([]byte(i.stdout), &made); err != nil || made.Key == "" {
		w.Fatalf("%v: %s%s", err, i.stdout, i.stderr)
	}
	return made.Key
}

var mcpServes = []string{"--agent", "echo", "--agent", "script", "--agent", "clerk", "--agent", "talker"}

// serveHTTP starts `a2ad mcp --listen` and returns its URL.
func (w *mcpWorld) serveHTTP(args ...string) string {
	w.Helper()
	args = append(append([]string{"mcp", "--listen", "127.0.0.1:0", "--url", w.url}, mcpServes...), args...)
	return w.start(nil, regexp.MustCompile(`serving MCP at (\S+)`), args...)
}

// stdio is how a desktop client starts `a2ad mcp`.
func (w *mcpWorld) stdio(key string) *sdk.CommandTransport {
	file := filepath.Join(w.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], append([]string{"mcp", "--url", w.url}, mcpServes...)...)
	cmd.Env = []string{asProgram + "=1", "A2AD_API_KEY_FILE=" + file}
	return &sdk.CommandTransport{Command: cmd, TerminateDuration: patience}
}

// bearerOf signs each request in with a key.
type bearerOf string

func (b bearerOf) RoundTrip(r *http.Request) (*http.Response, error) {
	if b != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

func overHTTP(url, key string) *sdk.StreamableClientTransport {
	h := &http.Client{Transport: bearerOf(key)}
	return &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: h, MaxRetries: -1}
}

// patience bounds every wait for something that must happen.
const patience = time.Minute

// peer is an MCP client.
type peer struct {
	*testing.T
	*sdk.ClientSession
	answers  chan *sdk.ElicitResult // of its user, to the questions that it gets
	asked    chan string            // the questions
	progress chan progressed
}

// progressed is what a client hears of a call before its result.
type progressed struct{ tool, message string }

// dial connects a client. With users it can ask one.
func dial(t *testing.T, transport sdk.Transport, version string, users bool) *peer {
	t.Helper()
	p := &peer{
		T: t, answers: make(chan *sdk.ElicitResult, 10), asked: make(chan string, 10),
		progress: make(chan progressed, 1000),
	}
	o := &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			p.progress <- progressed{fmt.Sprint(r.Params.ProgressToken), r.Params.Message}
		},
	}
	if users {
		o.ElicitationHandler = func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			form, err := json.Marshal(r.Params.RequestedSchema)
			if err != nil {
				return nil, err
			}
			p.asked <- r.Params.Message + " " + string(form)
			select {
			case a := <-p.answers:
				return a, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	session, err := c.Connect(p.wait(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	p.ClientSession = session
	return p
}

func (p *peer) wait() context.Context {
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	p.Cleanup(cancel)
	return ctx
}

// answeredCall is the result of a tool as its caller reads it.
type answeredCall struct {
	TaskID    string
	ContextID string
	Agent     string
	State     string
	Message   string
	Expects   json.RawMessage
	Tasks     []struct{ TaskID, State string }
	Artifacts []struct {
		Text string
		Data []json.RawMessage
	}
	NextPageToken string

	isError bool
	text    string
}

// call calls a tool. The arguments are pairs of a name and a value.
func (p *peer) call(tool string, pairs ...any) answeredCall {
	p.Helper()
	a, err := p.try(p.wait(), tool, pairs...)
	if err != nil {
		p.Fatalf("%s %v: %v", tool, pairs, err)
	}
	return a
}

// inState is call, and checks the state of the task.
func (p *peer) inState(want, tool string, pairs ...any) answeredCall {
	p.Helper()
	a := p.call(tool, pairs...)
	if a.State != want {
		p.Errorf("%s %v: %+v, want %s", tool, pairs, a, want)
	}
	return a
}

func (p *peer) try(ctx context.Context, tool string, pairs ...any) (a answeredCall, err error) {
	arguments := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		arguments[pairs[i].(string)] = pairs[i+1]
	}
	res, err := p.CallTool(ctx, &sdk.CallToolParams{
		Meta: sdk.Meta{"progressToken": tool}, Name: tool, Arguments: arguments,
	})
	if err != nil {
		return a, err
	}
	structured, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(structured, &a)
	}
	var texts []string
	for _, c := range res.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	a.isError, a.text = res.IsError, strings.Join(texts, "\n")
	return a, err
}

// awaitProgress returns the messages about calls of a tool, up to the first that contains a text.
func (p *peer) awaitProgress(tool, text string) (messages []string) {
	p.Helper()
	ctx := p.wait()
	for {
		select {
		case m := <-p.progress:
			if m.tool != tool {
				continue
			}
			if messages = append(messages, m.message); strings.Contains(m.message, text) {
				return messages
			}
		case <-ctx.Done():
			p.Fatalf("no progress with %q: %q", text, messages)
		}
	}
}

// question returns the next question that the user was asked.
func (p *peer) question() string {
	p.Helper()
	select {
	case q := <-p.asked:
		return q
	case <-p.wait().Done():
		p.Fatal("the user was not asked")
		return ""
	}
}

// script is the data of a message to the agent script.
func script(ops ...map[string]any) map[string]any { return map[string]any{"script": ops} }

type op = map[string]any

// gate is a point in a script where the agent waits for the test.
type gate struct {
	op      op
	reached chan struct{}
	open    func()
}

func newGate(t *testing.T) *gate {
	t.Helper()
	opened := make(chan struct{})
	g := &gate{reached: make(chan struct{}), open: sync.OnceFunc(func() { close(opened) })}
	arrive := sync.OnceFunc(func() { close(g.reached) })
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrive()
		select {
		case <-opened:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		g.open()
		s.Close()
	})
	g.op = op{"op": "effect", "url": s.URL, "key": "gate"}
	return g
}

func (g *gate) waitReached(t *testing.T) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(patience):
		t.Fatal("the agent has not come to the gate")
	}
}

// history returns the task with all its messages, as its owner reads it without MCP.
func (w *mcpWorld) history(key, agent, task string) string {
	w.Helper()
	c := &client.Client{URL: w.url + "/agents/" + agent, APIKey: key}
	res, err := c.Get(w.Context(), task, -1)
	if err != nil {
		w.Fatal(err)
	}
	return string(res.Raw)
}
