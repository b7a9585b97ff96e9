package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/executor/script"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wake"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
	"github.com/a2ad/a2ad/internal/worker"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// site is a whole server with one agent, which plays scripts.
type site struct {
	*httptest.Server
	rpc    *rpc.Server
	pool   *worker.Pool
	path   string // path of the agent; empty for the one at /
	engine *engine.Engine
	db     *storetest.DB
}

func newSite(t *testing.T) *site { return newSiteWith(t, nil) }

// newSiteWith is newSite with changes to the configuration.
func newSiteWith(t *testing.T, change func(*engine.Config, *rpc.Config)) *site {
	t.Helper()
	hub := &notify.Hub{}
	var follower *stream.Follower
	database := storetest.New(t)
	pg, err := store.Open(t.Context(), store.Config{
		Config: db.Config{URL: database.URL, Replica: "r", PoolSize: 8, StatementTimeout: time.Minute,
			Wake: hub.Wake},
		Committed: func(task a2a.ID, events []a2a.Entry) {
			if !follower.Offer(task, events) {
				hub.Wake(wake.Task(task))
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pg.Close)
	logger := slog.New(slog.DiscardHandler)
	follower = stream.New(pg.Tasks, hub, time.Second, logger)
	player := script.New(script.Config{})
	agent := &a2a.Agent{Name: "script", Default: true, DirectReply: true, RepliesTo: player.Replies}
	pool := worker.New(pg.Tasks, hub, worker.Config{
		Worker: "r", Slots: 8, Agents: []worker.Agent{{Agent: agent, Executor: player}}, Poll: time.Second,
		Limits: a2a.Limits{LeaseTTL: time.Minute, MaxAttempts: 3}, Logger: logger,
	})
	limits := engine.Config{PageKey: make([]byte, 32), Push: engine.PushRules{
		Check:  func(*a2a.PushConfig) error { return nil },
		Origin: func(url string) string { return url },
		Seal:   func(a2a.ID, *a2a.PushConfig) (token, credentials []byte, err error) { return nil, nil, nil },
	}}
	cfg := rpc.Config{
		Authenticator: auth.Anonymous{}, V03: v03.Codec{Lenient: true}, V1: v1.Codec{}, Agents: []*a2a.Agent{agent},
		PublicURL: "http://h",
	}
	if change != nil {
		change(&limits, &cfg)
	}
	cfg.Engine, err = engine.New(pg, follower, limits)
	if err != nil {
		t.Fatal(err)
	}
	s, err := rpc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var parts sync.WaitGroup
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	for _, run := range []func(context.Context) error{follower.Run, pool.Run} {
		parts.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { stop(); parts.Wait() })
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return &site{Server: server, rpc: s, pool: pool, engine: cfg.Engine, db: database}
}

// client speaks one version to a site.
type client struct {
	*site
	t *testing.T
	dialect
}

// dialect is how a version expresses the requests of the tests.
type dialect struct {
	version                                    string
	send, stream, get, list, cancel, subscribe string // methods
	pushSet, pushGet, pushList, pushDelete     string
	role, working                              string
	pushParams                                 func(task, config string) string // params of the methods for one webhook
	pushConfig                                 func(task, members, scheme string) string
	part                                       func(data string) string // a data part with any JSON in it
	configuration                              func(wait bool) string
}

var dialects = []dialect{
	{
		version: "0.3", send: "message/send", stream: "message/stream", get: "tasks/get", list: "tasks/list",
		cancel: "tasks/cancel", subscribe: "tasks/resubscribe",
		pushSet: "tasks/pushNotificationConfig/set", pushGet: "tasks/pushNotificationConfig/get",
		pushList: "tasks/pushNotificationConfig/list", pushDelete: "tasks/pushNotificationConfig/delete",
		pushParams: func(task, config string) string {
			return `{"id":"` + task + `","pushNotificationConfigId":"` + config + `"}`
		},
		pushConfig: func(task, members, scheme string) string {
			return `{"taskId":"` + task + `","pushNotificationConfig":{` + members + `,"authentication":{"schemes":["` +
				scheme + `"]}}}`
		},
		role: "user", working: "working",
		part: func(data string) string { return `{"kind":"data","data":` + data + `}` },
		configuration: func(wait bool) string {
			return `{"blocking":` + map[bool]string{true: "true", false: "false"}[wait] + `}`
		},
	},
	{
		version: "1.0", send: "SendMessage", stream: "SendStreamingMessage", get: "GetTask", list: "ListTasks",
		cancel: "CancelTask", subscribe: "SubscribeToTask",
		pushSet: "CreateTaskPushNotificationConfig", pushGet: "GetTaskPushNotificationConfig",
		pushList: "ListTaskPushNotificationConfigs", pushDelete: "DeleteTaskPushNotificationConfig",
		pushParams: func(task, config string) string { return `{"taskId":"` + task + `","id":"` + config + `"}` },
		pushConfig: func(task, members, scheme string) string {
			return `{"taskId":"` + task + `",` + members + `,"authentication":{"scheme":"` + scheme + `"}}`
		},
		role: "ROLE_USER", working: "TASK_STATE_WORKING",
		part: func(data string) string { return `{"data":` + data + `}` },
		configuration: func(wait bool) string {
			return `{"returnImmediately":` + map[bool]string{true: "false", false: "true"}[wait] + `}`
		},
	},
}

// message returns the params that send a script, as a new task or to an existing one.
func (c client) message(task, context, ops string, wait bool) string {
	m := `{"message":{"messageId":"m-` + c.version + `","role":"` + c.role + `","parts":[` +
		c.part(`{"script":[`+ops+`],"n":9007199254740993}`) + `]`
	if task != "" {
		m += `,"taskId":"` + task + `"`
	}
	if context != "" {
		m += `,"contextId":"` + context + `"`
	}
	return m + `},"configuration":` + c.configuration(wait) + `}`
}

func (c client) post(method, params string, header http.Header) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost,
		c.URL+c.path, strings.NewReader(`{"jsonrpc":"2.0","id":"x","method":"`+method+`","params":`+params+`}`))
	if err != nil {
		c.t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	if c.version != "0.3" {
		req.Header.Set("A2A-Version", c.version)
	}
	resp, err := c.Client().Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// call returns the result of a method, or the code of its error.
func (c client) call(method, params string, header ...http.Header) (result []byte, code int64) {
	c.t.Helper()
	resp := c.post(method, params, append(header, nil)[0])
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || rawjson.Check(body, 64) != nil || string(rawjson.Get(body, "id")) != `"x"` {
		c.t.Fatalf("%s: %s, %v\n%s", method, resp.Status, err, body)
	}
	code, _ = rawjson.Int(rawjson.Get(rawjson.Get(body, "error"), "code"))
	return rawjson.Get(body, "result"), code
}

// task is call for methods that answer with a task, in the words of 1.0.
func (c client) task(method, params string, header ...http.Header) map[string]any {
	c.t.Helper()
	result, code := c.call(method, params, header...)
	if code != 0 {
		c.t.Fatalf("%s %s %s: error %d", c.version, method, params, code)
	}
	t := object(c.t, modern(parse(c.t, result)))
	if wrapped, ok := t["task"]; ok {
		return object(c.t, wrapped)
	}
	return t
}

// events is an open stream.
type events struct {
	t      *testing.T
	reader *sse.Reader
	raw    [][]byte // results as received
	ids    []string
}

// follow opens a stream. It fails if the answer is not a stream.
func (c client) follow(method, params string, header ...http.Header) *events {
	c.t.Helper()
	resp := c.post(method, params, append(header, nil)[0])
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		c.t.Fatalf("%s %s %s: %s\n%s", c.version, method, params, kind, body)
	}
	c.t.Cleanup(func() { resp.Body.Close() })
	return &events{t: c.t, reader: sse.NewReader(resp.Body, sse.ReaderOptions{})}
}

// next returns the next item in the words of 1.0, or nil at the end.
func (e *events) next() map[string]any {
	e.t.Helper()
	ev, err := e.reader.Next()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		e.t.Fatal(err)
	}
	result := rawjson.Get(ev.Data, "result")
	if result == nil {
		e.t.Fatalf("not a result: %s", ev.Data)
	}
	e.raw, e.ids = append(e.raw, bytes.Clone(result)), append(e.ids, ev.ID)
	item := object(e.t, modern(parse(e.t, result)))
	if item["status"] != nil && item["id"] != nil {
		item = map[string]any{"task": item} // 0.3 does not wrap
	}
	return item
}

// until reads up to the item that reports the state, or to the end if state is empty, and returns
// all items.
func (e *events) until(state string) []map[string]any {
	e.t.Helper()
	var items []map[string]any
	for item := e.next(); item != nil; item = e.next() {
		items = append(items, item)
		if state != "" && stateOf(item) == state {
			return items
		}
	}
	if state != "" {
		e.t.Fatalf("the stream ended without %s: %v", state, items)
	}
	return items
}

// untilArtifact reads up to the first piece of an artifact.
func (e *events) untilArtifact() {
	e.t.Helper()
	for {
		if item := e.next(); item == nil {
			e.t.Fatal("the stream ended without an artifact")
		} else if item["artifactUpdate"] != nil {
			return
		}
	}
}

// stateOf returns the state that an item reports, if any.
func stateOf(item map[string]any) string {
	for _, member := range []string{"task", "statusUpdate"} {
		if holder, ok := item[member].(map[string]any); ok {
			return holder["status"].(map[string]any)["state"].(string)
		}
	}
	return ""
}

func parse(t *testing.T, doc []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	return v
}

func object(t *testing.T, v any) map[string]any {
	t.Helper()
	m, ok := v.(map[string]any)
	if !ok {
		t.Fatalf("not an object: %v", v)
	}
	return m
}

var modernWords = map[string]string{
	"submitted": "TASK_STATE_SUBMITTED", "working": "TASK_STATE_WORKING", "completed": "TASK_STATE_COMPLETED",
	"failed":   "TASK_STATE_FAILED",
	"canceled": "TASK_STATE_CANCELED", "input-required": "TASK_STATE_INPUT_REQUIRED", "rejected": "TASK_STATE_REJECTED",
	"auth-required": "TASK_STATE_AUTH_REQUIRED", "user": "ROLE_USER", "agent": "ROLE_AGENT",
}

// modern rewrites an answer of 0.3 into the words of 1.0. It does not change answers of 1.0.
func modern(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = modern(v[i])
		}
	case map[string]any:
		kind, _ := v["kind"].(string)
		delete(v, "kind")
		if kind != "data" {
			for name, member := range v {
				v[name] = modern(member)
			}
		}
		for _, name := range []string{"state", "role"} {
			if word, ok := v[name].(string); ok && modernWords[word] != "" {
				v[name] = modernWords[word]
			}
		}
		switch kind {
		case "status-update":
			delete(v, "final")
			return map[string]any{"statusUpdate": v}
		case "artifact-update":
			for _, flag := range []string{"append", "lastChunk"} {
				if v[flag] == false {
					delete(v, flag)
				}
			}
			return map[string]any{"artifactUpdate": v}
		}
	}
	return v
}
