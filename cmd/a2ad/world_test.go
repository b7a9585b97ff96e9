package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// world is a database with tasks, and the commands on it.
type world struct {
	*testing.T
	store *store.Store
	env   []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pg := storetest.New(t)
	s, err := openStore(t.Context(), pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &world{t, s, []string{"A2AD_DATABASE_URL=" + pg.URL}}
}

// submit makes a task of agent words with a given id, and with a webhook if hook is not nil.
func (w *world) submit(id, owner string, hook *webhooks.NewWebhook) a2a.ID {
	w.Helper()
	task, err := a2a.ParseID(id)
	if err != nil {
		w.Fatal(err)
	}
	made, err := w.store.Tasks.Submit(w.Context(), tasks.Submission{
		Caller: db.Caller{Tenant: "acme", Owner: owner}, Agent: "words",
		NewTask: task, ContextID: "c-" + owner, Push: hook,
		Message: a2a.Message{ID: "m-" + id, Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}},
	})
	if err != nil {
		w.Fatal(err)
	}
	return made.Task
}

// claim gives the oldest queued task of agent words to a worker.
func (w *world) claim() *tasks.Lease {
	w.Helper()
	leases, err := w.store.Tasks.NewClaimer().Claim(w.Context(), "words", 1, time.Minute, time.Hour)
	if err != nil || len(leases) != 1 {
		w.Fatalf("claim: %d leases, %v", len(leases), err)
	}
	return &leases[0]
}

func (w *world) append(lease *tasks.Lease, events ...a2a.Event) {
	w.Helper()
	if _, err := w.store.Tasks.Append(w.Context(), lease, tasks.Batch{Events: events}); err != nil {
		w.Fatal(err)
	}
}

// complete runs the oldest queued task: it says "two" in an artifact and completes.
func (w *world) complete() {
	w.Helper()
	artifact := a2a.Artifact{ID: "count", Parts: []a2a.Part{{Kind: a2a.PartText, Text: "two\n"}}}
	w.append(w.claim(), &a2a.ArtifactUpdate{Artifact: artifact, LastChunk: true}, statusUpdate(a2a.StateCompleted))
}

func statusUpdate(s a2a.State) *a2a.StatusUpdate {
	return &a2a.StatusUpdate{Status: a2a.Status{State: s}}
}

// run runs a command and checks its exit code.
func (w *world) run(code int, args ...string) *invocation {
	w.Helper()
	i := &invocation{env: w.env}
	if i.run(w.T, args...); i.code != code {
		w.Errorf("a2ad %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), i.code, code, i.stdout, i.stderr)
	}
	return i
}

// rows reads lines of JSON.
func rows[R any](t *testing.T, i *invocation) (list []R) {
	t.Helper()
	for line := range strings.Lines(i.stdout) {
		var row R
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, row)
	}
	return list
}

var (
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`)
	stamps = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:\d\d)`)
	uids   = regexp.MustCompile(`"id":"(\d+)-[0-9a-f]{8}"`)
)

// steady replaces times and the uids of events.
func steady(text string) string {
	text = times.ReplaceAllString(text, "2026-01-02 03:04:05Z")
	text = stamps.ReplaceAllString(text, "2026-01-02T03:04:05Z")
	return uids.ReplaceAllString(text, `"id":"$1-aaaaaaaa"`)
}
