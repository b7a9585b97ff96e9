package rpc_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/store/db"
)

// This file tries every operation over every binding as every caller without access. The answer
// about a foreign thing must be, byte for byte, the answer about a thing that does not exist.

// thing is a task and what belongs to it.
type thing struct {
	task, context, config, event, key, key2, token string
}

// probe is one operation that a caller may try. It is about a thing, and may use a task of the
// caller's own.
type probe struct {
	name string
	op   func(x thing, own string) operation
	// fresh: the operation creates something of the caller's own, whatever x is.
	fresh bool
}

var probes = []probe{
	{"GetTask", func(x thing, _ string) operation { return operation{name: "GetTask", task: x.task} }, false},
	{"GetTask with history", func(x thing, _ string) operation {
		return operation{name: "GetTask", task: x.task, history: "1"}
	}, false},
	{"CancelTask", func(x thing, _ string) operation { return operation{name: "CancelTask", task: x.task} }, false},
	{"SubscribeToTask", func(x thing, _ string) operation {
		return operation{name: "SubscribeToTask", task: x.task}
	}, false},
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

	// These name a task of the caller's own, and something of another caller.
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

	// These come before the caller has a context of that name.
	{"ListTasks of its context", func(x thing, _ string) operation {
		return operation{name: "ListTasks", context: x.context, size: "1"}
	}, true},
	{"ListTasks with its page token", func(x thing, _ string) operation {
		return operation{name: "ListTasks", context: x.context, size: "1", token: x.token}
	}, true},

	// These create things of the caller's own, next to those of another.
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

// matrix is a site whose callers sign in.
type matrix struct {
	*site
	conn *grpc.ClientConn
	keys map[string]string // by the name of the caller
}

// with names the owner with only some of the scopes.
func with(scopes ...auth.Scope) string { return fmt.Sprint("owner with ", scopes) }

func newMatrix(t *testing.T, changes ...func(*engine.Config, *rpc.Config)) *matrix {
	t.Helper()
	stored := make(map[string]auth.StoredKey)
	m := &matrix{keys: map[string]string{"no key": "", "bad key": "hunter2"}}
	scopes := map[string][]auth.Scope{}
	callers := []struct{ name, tenant, owner string }{
		{"owner", "acme", "ann"}, {"other user", "acme", "bob"}, {"other tenant", "corp", "ann"},
		{"revoked", "acme", "ann"}, {"unknown key", "", ""},
	}
	for set := range 1 << len(auth.Scopes()) { // the owner, with every set of scopes
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
		k := auth.StoredKey{SecretHash: hash[:], Tenant: who.tenant, Owner: who.owner, Kind: auth.KindUser,
			Scopes: auth.Scopes()}
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

// make creates a task with everything that a task can have. Its context has a second task, so that
// the list has a second page.
func (m *matrix) make(t *testing.T, as teller, who string) thing {
	t.Helper()
	key := m.keys[who]
	x := thing{context: "context-" + db.NewUID().String(), config: "config-" + db.NewUID().String(),
		key: "key-" + db.NewUID().String()}
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
	f := as.follow(t, &operation{name: "SendStreamingMessage", context: x.context, key: x.key,
		script: `{"op":"chunk","id":"a","n":1},{"op":"input","text":"told to ` + who + `"}`, apiKey: key})
	item, event := f.next(t)
	x.task = id(object(t, item["task"]))
	for ; item != nil; item, _ = f.next(t) { //nolint:revive // reads the stream to its end
	}
	x.event = event
	do(operation{name: "CreateTaskPushNotificationConfig", task: x.task, config: x.config})
	x.token, _ = object(t, do(operation{name: "ListTasks", context: x.context, size: "1"}))["nextPageToken"].(string)
	if x.token == "" {
		t.Fatal("the list has one page, want two")
	}
	return x
}

// unknownThing returns a thing that does not exist, with ids of the same form.
func unknownThing(x thing) thing {
	return thing{
		task:    db.NewTaskID().String(),
		context: "context-" + db.NewUID().String(),
		config:  "config-" + db.NewUID().String(),
		event:   "1-" + db.NewUID().Short(),
		key:     "key-" + db.NewUID().String(),
		key2:    "key-" + db.NewUID().String(),
		token:   strings.Repeat("A", len(x.token)), // of the same length, but the server did not make it
	}
}

// view is everything that an owner sees of a thing.
func (m *matrix) view(t *testing.T, as teller, x thing) string {
	t.Helper()
	var all strings.Builder
	for _, op := range []operation{
		{name: "GetTask", task: x.task}, {name: "ListTaskPushNotificationConfigs", task: x.task},
		{name: "GetTaskPushNotificationConfig", task: x.task, config: x.config},
		{name: "ListTasks", context: x.context, size: "10"},
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

// TestForeignThingsLookLikeUnknownOnes is the matrix: callers × operations × bindings.
func TestForeignThingsLookLikeUnknownOnes(t *testing.T) {
	t.Parallel()
	for _, binding := range slices.Sorted(maps.Keys(tellers(nil, nil))) {
		t.Run(binding, func(t *testing.T) {
			t.Parallel()
			m := newMatrix(t)
			as := m.tellers()[binding]
			x := m.make(t, as, "owner")
			before := m.view(t, as, x)
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
			if after := m.view(t, as, x); after != before {
				t.Errorf("the owner's view changed from\n%s\nto\n%s", before, after)
			}
			// The probes work: the owner succeeds where the others were refused.
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
				none := p.op(unknownThing(x), x.task)
				none.apiKey = op.apiKey
				if got := as.tell(t, &none, true); !got.notFound {
					t.Errorf("%s of an unknown thing, by the owner: %s", p.name, got.text)
				}
			}
		})
	}
}

// stranger tries the probes without credentials.
func (m *matrix) stranger(t *testing.T, as teller, who string, p probe, x thing, own string) {
	t.Helper()
	theirs, none := p.op(x, own), p.op(unknownThing(x), own)
	theirs.apiKey, none.apiKey = m.keys[who], m.keys[who]
	got, want := as.tell(t, &theirs, false), as.tell(t, &none, false)
	if !got.unsigned || got.text != want.text {
		t.Errorf("%s by %s: got\n%s\nand for an unknown thing\n%s", p.name, who, got.text, want.text)
	}
}

// signedIn tries the probes as a caller who may do the same with things of their own.
func (m *matrix) signedIn(t *testing.T, as teller, who string, p probe, x thing) {
	t.Helper()
	var own [2]string
	if p.fresh { // each of the two requests finds a task of its own in the same state
		for i := range own {
			own[i] = m.make(t, as, who).task
		}
	}
	theirs, none := p.op(x, own[0]), p.op(unknownThing(x), own[1])
	theirs.apiKey, none.apiKey = m.keys[who], m.keys[who]
	brief := theirs.name == "SubscribeToTask"
	got, want := as.tell(t, &theirs, brief), as.tell(t, &none, brief)
	if got.text != want.text {
		t.Errorf("%s by %s: got\n%s\nand for an unknown thing\n%s", p.name, who, got.text, want.text)
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
