package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/store/db"
)

// This file holds every operation over every binding against everybody who may not do it: what
// they are told of something that is another's is, byte for byte, what they are told of
// something that nobody has.

// teller is a speaker that can say what it is told as it came over the network: status, headers
// and body, but for what differs from one request to the next anyhow. A stream is read to its
// end, or up to its first item if brief.
type teller interface {
	speaker
	tell(t *testing.T, op *operation, brief bool) told
}

// told is an answer.
type told struct {
	failed   bool   // it is an error
	unsigned bool   // one that says that nobody knows who is calling
	notFound bool   // one that says that there is no such thing
	raw      string // as it came
	text     string // with ids numbered
}

// tellers are the clients of every version and binding. A new binding joins the matrix here.
func tellers(s *site, conn *grpc.ClientConn) map[string]teller {
	return map[string]teller{
		"1.0 JSON-RPC":    overRPC{s, dialects[1]},
		"0.3 JSON-RPC":    overRPC{s, dialects[0]},
		"1.0 REST":        overREST{s, "", wordsV1},
		"0.3 REST":        overREST{s, "/v1", wordsSchema},
		"0.3 REST, proto": overREST{s, "/v1", wordsProto},
		"1.0 gRPC":        overGRPC{conn, service1, wordsV1},
		"0.3 gRPC":        overGRPC{conn, service03, wordsProto},
	}
}

func (s overRPC) tell(t *testing.T, op *operation, brief bool) told {
	t.Helper()
	method, params := s.request(op)
	if op.name == "GetExtendedAgentCard" {
		method, params = map[bool]string{true: "GetExtendedAgentCard", false: "agent/getAuthenticatedExtendedCard"}[s.modern()], "{}"
	}
	return tellHTTP(t, client{s.site, t, s.dialect}.post(method, params, op.header()), brief) //nolint:bodyclose // tellHTTP does
}

func (s overREST) tell(t *testing.T, op *operation, brief bool) told {
	t.Helper()
	if op.name == "GetExtendedAgentCard" {
		path := map[bool]string{true: "/extendedAgentCard", false: "/card"}[s.modern()]
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+s.prefix+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = op.header()
		if s.modern() {
			req.Header.Set("A2A-Version", "1.0")
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return tellHTTP(t, resp, brief)
	}
	resp, _ := s.send(t, op)
	return tellHTTP(t, resp, brief)
}

func (s overGRPC) tell(t *testing.T, op *operation, brief bool) told {
	t.Helper()
	c := caller{t, s.conn, s.service}
	method, params := s.request(op)
	if op.name == "GetExtendedAgentCard" {
		method, params = map[bool]string{true: "GetExtendedAgentCard", false: "GetAgentCard"}[s.modern()], "{}"
	}
	var raw strings.Builder
	var beside reply
	var end *status.Status
	if op.name == "SubscribeToTask" || op.name == "SendStreamingMessage" {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		m := c.follow(ctx, method, params, s.metadata(op)...)
		for item := m.next(); item != nil; item = m.next() {
			raw.Write(keySorted(t, item))
			if brief {
				m.end = status.New(codes.OK, "")
				break
			}
		}
		end = m.end
		if !brief || end.Code() != codes.OK {
			beside.trailer = m.stream.Trailer()
		}
		if end.Code() != codes.OK { // net/http sends challenges in no trailer
			beside.header, _ = m.stream.Header()
		}
	} else {
		var answer map[string]any
		if answer, beside, end = c.try(method, params, s.metadata(op)...); end.Code() == codes.OK {
			raw.Write(keySorted(t, answer))
		}
	}
	if end.Code() != codes.OK {
		fmt.Fprintf(&raw, "%s %s %v\n", end.Code(), end.Message(), end.Details())
	}
	header := make(http.Header)
	for name, values := range metadata.Join(beside.header, beside.trailer) {
		if name != "x-request-id" && name != "content-type" {
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	var text strings.Builder
	fmt.Fprintln(&text, map[codes.Code]int{codes.OK: 200, codes.ResourceExhausted: 429}[end.Code()])
	if err := header.Write(&text); err != nil {
		t.Fatal(err)
	}
	text.WriteString(raw.String())
	return told{
		failed: end.Code() != codes.OK, unsigned: end.Code() == codes.Unauthenticated, notFound: grpcReason(end) == "TASK_NOT_FOUND",
		raw: raw.String(), text: numbered(text.String()),
	}
}

// keySorted writes an answer that has no order of its own.
func keySorted(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

var (
	anyTime    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	anyEventID = regexp.MustCompile(`(?m)((?:^id: ?|^Last-Event-Id: |"eventId":")\d+)-[0-9a-f]{8}("|\r?$)`)
	firstItem  = regexp.MustCompile(`(?m)^data:.*\n\n`)
	anyToken   = regexp.MustCompile(`("next_?[pP]age_?[tT]oken": ?)"[^"]+"`)
)

// tellHTTP reads an answer. Ids are numbered in the order in which they come up.
func tellHTTP(t *testing.T, resp *http.Response, brief bool) told {
	t.Helper()
	defer resp.Body.Close()
	var body bytes.Buffer
	stream := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	buf := make([]byte, 4096)
	for !brief || !stream || !firstItem.Match(body.Bytes()) {
		n, err := resp.Body.Read(buf)
		body.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, own := range []string{"Date", "X-Request-Id"} {
		resp.Header.Del(own)
	}
	var text strings.Builder
	fmt.Fprintln(&text, resp.StatusCode)
	if err := resp.Header.Write(&text); err != nil {
		t.Fatal(err)
	}
	text.Write(body.Bytes())
	words := body.String()
	return told{
		failed:   resp.StatusCode >= 400 || strings.Contains(words, `"error":{`),
		unsigned: resp.StatusCode == http.StatusUnauthorized,
		notFound: strings.Contains(words, "TASK_NOT_FOUND"),
		raw:      words,
		text:     numbered(text.String()),
	}
}

// numbered returns text without what no two requests have in common.
func numbered(text string) string {
	var ids []string
	text = uuids.ReplaceAllStringFunc(text, func(id string) string {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		return fmt.Sprint("#", slices.Index(ids, id))
	})
	text = anyEventID.ReplaceAllString(anyTime.ReplaceAllString(text, "time"), "$1-uid$2")
	return anyToken.ReplaceAllString(text, `$1"token"`)
}

// thing is what somebody may ask about: a task and what belongs to it.
type thing struct {
	task, context, config, event, key, key2, token string
}

// probe is one thing that a caller may try, about a thing and with a task of its own.
type probe struct {
	name string
	op   func(x thing, own string) operation
	// fresh: the operation makes something of the caller's own, whatever x is.
	fresh bool
}

var probes = []probe{
	{"GetTask", func(x thing, _ string) operation { return operation{name: "GetTask", task: x.task} }, false},
	{"GetTask with history", func(x thing, _ string) operation { return operation{name: "GetTask", task: x.task, history: "1"} }, false},
	{"CancelTask", func(x thing, _ string) operation { return operation{name: "CancelTask", task: x.task} }, false},
	{"SubscribeToTask", func(x thing, _ string) operation { return operation{name: "SubscribeToTask", task: x.task} }, false},
	{"SubscribeToTask, Last-Event-ID", func(x thing, _ string) operation {
		return operation{name: "SubscribeToTask", task: x.task, lastID: x.event}
	}, false},
	{"SendMessage to it", func(x thing, _ string) operation {
		return operation{name: "SendMessage", task: x.task, script: `{"op":"complete"}`}
	}, false},
	{"SendMessage to it in its context", func(x thing, _ string) operation {
		return operation{name: "SendMessage", task: x.task, context: x.context, script: `{"op":"complete"}`}
	}, false},
	{"SendMessage to it with a key", func(x thing, _ string) operation {
		return operation{name: "SendMessage", task: x.task, key: x.key + "-other", script: `{"op":"complete"}`}
	}, false},
	{"SendStreamingMessage to it", func(x thing, _ string) operation {
		return operation{name: "SendStreamingMessage", task: x.task, script: `{"op":"complete"}`}
	}, false},
	{"SendStreamingMessage to it, Last-Event-ID", func(x thing, _ string) operation {
		return operation{name: "SendStreamingMessage", task: x.task, lastID: x.event, script: `{"op":"complete"}`}
	}, false},
	{"CreatePushConfig", func(x thing, _ string) operation {
		return operation{name: "CreateTaskPushNotificationConfig", task: x.task, config: x.config}
	}, false},
	{"GetPushConfig", func(x thing, _ string) operation {
		return operation{name: "GetTaskPushNotificationConfig", task: x.task, config: x.config}
	}, false},
	{"ListPushConfigs", func(x thing, _ string) operation {
		return operation{name: "ListTaskPushNotificationConfigs", task: x.task}
	}, false},
	{"DeletePushConfig", func(x thing, _ string) operation {
		return operation{name: "DeleteTaskPushNotificationConfig", task: x.task, config: x.config}
	}, false},

	// About a task of the caller's own, with something of another's beside it.
	{"GetPushConfig of my task, its id", func(x thing, own string) operation {
		return operation{name: "GetTaskPushNotificationConfig", task: own, config: x.config}
	}, true},
	{"DeletePushConfig of my task, its id", func(x thing, own string) operation {
		return operation{name: "DeleteTaskPushNotificationConfig", task: own, config: x.config}
	}, true},
	{"SubscribeToTask mine, its Last-Event-ID", func(x thing, own string) operation {
		return operation{name: "SubscribeToTask", task: own, lastID: x.event}
	}, true},
	{"SendMessage to my task in its context", func(x thing, own string) operation {
		return operation{name: "SendMessage", task: own, context: x.context, script: `{"op":"input"}`}
	}, true},

	// Lists, before the caller has a context of that name too.
	{"ListTasks of its context", func(x thing, _ string) operation {
		return operation{name: "ListTasks", context: x.context, size: "1"}
	}, true},
	{"ListTasks with its page token", func(x thing, _ string) operation {
		return operation{name: "ListTasks", context: x.context, size: "1", token: x.token}
	}, true},

	// New things of the caller's own, beside those of another.
	{"SendMessage in its context", func(x thing, _ string) operation {
		return operation{name: "SendMessage", context: x.context, script: `{"op":"complete"}`}
	}, true},
	{"SendMessage that refers to it", func(x thing, _ string) operation {
		return operation{name: "SendMessage", refs: x.task, script: `{"op":"complete"}`}
	}, true},
	{"SendMessage with its key", func(x thing, _ string) operation {
		return operation{name: "SendMessage", key: x.key, script: `{"op":"complete"}`}
	}, true},
	{"SendStreamingMessage with its key", func(x thing, _ string) operation {
		return operation{name: "SendStreamingMessage", key: x.key2, lastID: x.event, script: `{"op":"complete"}`}
	}, true},
	{"ListTasks", func(thing, string) operation { return operation{name: "ListTasks", size: "1"} }, true},
	{"GetExtendedCard", func(thing, string) operation { return operation{name: "GetExtendedAgentCard"} }, true},
}

// matrix is a site where callers sign in.
type matrix struct {
	*site
	conn *grpc.ClientConn
	keys map[string]string // of each caller, by who that is
}

// with names the owner with some of the scopes alone.
func with(scopes ...auth.Scope) string { return fmt.Sprint("owner with ", scopes) }

func newMatrix(t *testing.T, changes ...func(*engine.Config, *rpc.Config)) *matrix {
	t.Helper()
	stored := make(map[string]auth.StoredKey)
	m := &matrix{keys: map[string]string{"no key": "", "bad key": "hunter2"}}
	scopes := map[string][]auth.Scope{}
	callers := []struct{ name, tenant, owner string }{
		{"owner", "acme", "ann"}, {"other user", "acme", "bob"}, {"other tenant", "corp", "ann"}, {"revoked", "acme", "ann"}, {"unknown key", "", ""},
	}
	for set := range 1 << len(auth.Scopes()) { // the owner, with some of the scopes alone
		var some []auth.Scope
		for i, scope := range auth.Scopes() {
			if set>>i&1 == 1 {
				some = append(some, scope)
			}
		}
		scopes[with(some...)] = some
		callers = append(callers, struct{ name, tenant, owner string }{with(some...), "acme", "ann"})
	}
	for _, who := range callers {
		key, err := auth.NewKey("test", nil)
		if err != nil {
			t.Fatal(err)
		}
		m.keys[who.name] = key.Reveal()
		if who.tenant == "" {
			continue
		}
		hash := key.SecretHash()
		k := auth.StoredKey{SecretHash: hash[:], Tenant: who.tenant, Owner: who.owner, Kind: auth.KindUser, Scopes: auth.Scopes()}
		if some, ok := scopes[who.name]; ok {
			k.Scopes = some
		}
		if who.name == "revoked" {
			k.RevokedAt = time.Now().Add(-time.Hour)
		}
		stored[key.ID()] = k
	}
	keys, err := auth.NewKeys(auth.KeysConfig{Lookup: func(_ context.Context, id string) (auth.StoredKey, error) {
		if k, ok := stored[id]; ok {
			return k, nil
		}
		return auth.StoredKey{}, auth.ErrUnknownKey
	}})
	if err != nil {
		t.Fatal(err)
	}
	m.site = newSiteWith(t, func(e *engine.Config, c *rpc.Config) {
		c.Authenticator = auth.Chain{keys}
		for _, change := range changes {
			change(e, c)
		}
	})
	m.conn, _ = serveGRPC(t, m.site)
	return m
}

func (m *matrix) tellers() map[string]teller { return tellers(m.site, m.conn) }

// make has somebody make a task with everything that a task can have, in a context with a
// second one, so that its list has a second page.
func (m *matrix) make(t *testing.T, as teller, who string) thing {
	t.Helper()
	key := m.keys[who]
	x := thing{context: "context-" + db.NewUID().String(), config: "config-" + db.NewUID().String(), key: "key-" + db.NewUID().String()}
	x.key2 = "key-" + db.NewUID().String()
	do := func(op operation) any {
		t.Helper()
		op.apiKey = key
		answer, reason := as.do(t, &op)
		if reason != "" {
			t.Fatalf("%s by %s: %s", op.name, who, reason)
		}
		return answer
	}
	do(operation{name: "SendMessage", context: x.context, key: x.key2, script: `{"op":"complete"}`})
	f := as.follow(t, &operation{name: "SendStreamingMessage", context: x.context, key: x.key, script: `{"op":"chunk","id":"a","n":1},{"op":"input","text":"told to ` + who + `"}`, apiKey: key})
	item, event := f.next(t)
	x.task = id(object(t, item["task"]))
	for ; item != nil; item, _ = f.next(t) { //nolint:revive // to its end
	}
	x.event = event
	do(operation{name: "CreateTaskPushNotificationConfig", task: x.task, config: x.config})
	x.token, _ = object(t, do(operation{name: "ListTasks", context: x.context, size: "1"}))["nextPageToken"].(string)
	if x.token == "" {
		t.Fatal("the list has one page")
	}
	return x
}

// nobodys returns a thing that is nowhere, with ids of the same form.
func nobodys(x thing) thing {
	return thing{
		task: db.NewTaskID().String(), context: "context-" + db.NewUID().String(), config: "config-" + db.NewUID().String(),
		event: "1-" + db.NewUID().Short(), key: "key-" + db.NewUID().String(), key2: "key-" + db.NewUID().String(),
		token: strings.Repeat("A", len(x.token)), // of the same length, and never sealed by the server
	}
}

// sight is all that an owner sees of a thing.
func (m *matrix) sight(t *testing.T, as teller, x thing) string {
	t.Helper()
	var all strings.Builder
	for _, op := range []operation{
		{name: "GetTask", task: x.task}, {name: "ListTaskPushNotificationConfigs", task: x.task},
		{name: "GetTaskPushNotificationConfig", task: x.task, config: x.config}, {name: "ListTasks", context: x.context, size: "10"},
	} {
		op.apiKey = m.keys["owner"]
		got := as.tell(t, &op, false)
		if got.failed {
			t.Errorf("%s by the owner: %s", op.name, got.text)
		}
		all.WriteString(got.text)
	}
	return all.String()
}

// TestNobodyLearnsOfWhatIsAnothers is the matrix: callers × operations × bindings.
func TestNobodyLearnsOfWhatIsAnothers(t *testing.T) {
	t.Parallel()
	for _, binding := range slices.Sorted(maps.Keys(tellers(nil, nil))) {
		t.Run(binding, func(t *testing.T) {
			t.Parallel()
			m := newMatrix(t)
			as := m.tellers()[binding]
			x := m.make(t, as, "owner")
			before := m.sight(t, as, x)
			for _, who := range []string{"no key", "bad key", "unknown key", "revoked"} {
				for _, p := range probes {
					m.stranger(t, as, who, p, x, x.task)
				}
			}
			for _, who := range []string{"other tenant", "other user"} {
				for _, p := range probes {
					m.signedIn(t, as, who, p, x)
				}
			}
			if after := m.sight(t, as, x); after != before {
				t.Errorf("what the owner sees has changed from\n%s\nto\n%s", before, after)
			}
			// The probes are live: the owner gets what the others were refused.
			for _, p := range probes {
				if p.fresh {
					continue
				}
				x := m.make(t, as, "owner")
				op := p.op(x, x.task)
				op.apiKey = m.keys["owner"]
				if got := as.tell(t, &op, true); got.failed {
					t.Errorf("%s by the owner: %s", p.name, got.text)
				}
				none := p.op(nobodys(x), x.task)
				none.apiKey = op.apiKey
				if got := as.tell(t, &none, true); !got.notFound {
					t.Errorf("%s of what nobody has, by the owner: %s", p.name, got.text)
				}
			}
		})
	}
}

// stranger has somebody try who is not signed in.
func (m *matrix) stranger(t *testing.T, as teller, who string, p probe, x thing, own string) {
	t.Helper()
	theirs, none := p.op(x, own), p.op(nobodys(x), own)
	theirs.apiKey, none.apiKey = m.keys[who], m.keys[who]
	got, want := as.tell(t, &theirs, false), as.tell(t, &none, false)
	if !got.unsigned || got.text != want.text {
		t.Errorf("%s by %s: is told\n%s\nand of what nobody has\n%s", p.name, who, got.text, want.text)
	}
}

// signedIn has somebody try who may do the same with what is their own.
func (m *matrix) signedIn(t *testing.T, as teller, who string, p probe, x thing) {
	t.Helper()
	var own [2]string
	if p.fresh { // each of the two requests finds a task of its own in the same state
		for i := range own {
			own[i] = m.make(t, as, who).task
		}
	}
	theirs, none := p.op(x, own[0]), p.op(nobodys(x), own[1])
	theirs.apiKey, none.apiKey = m.keys[who], m.keys[who]
	brief := theirs.name == "SubscribeToTask"
	got, want := as.tell(t, &theirs, brief), as.tell(t, &none, brief)
	if got.text != want.text {
		t.Errorf("%s by %s: is told\n%s\nand of what nobody has\n%s", p.name, who, got.text, want.text)
	}
	if !p.fresh && !got.notFound {
		t.Errorf("%s by %s: %s", p.name, who, got.text)
	}
	for _, secret := range []string{x.task, "told to owner"} {
		if secret != theirs.refs && secret != theirs.task && strings.Contains(got.raw, secret) {
			t.Errorf("%s by %s shows %q: %s", p.name, who, secret, got.raw)
		}
	}
}
