package push

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
)

// patience ends a test that hangs. It is no measure: nothing that works comes near it, however busy the machine.
const patience = 5 * time.Minute

var ann = db.Caller{Tenant: "acme", Owner: "ann"}

// bed is a store with webhooks, and the log of its deliverers.
type bed struct {
	*store.Store
	t    *testing.T
	url  string
	sql  *pgxpool.Pool
	hub  *notify.Hub
	ring seal.Ring

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

func newBed(t *testing.T) *bed {
	t.Helper()
	pg := storetest.New(t)
	b := &bed{t: t, url: pg.URL, sql: pg.Pool(t), hub: new(notify.Hub), ring: newRing(t, "k1")}
	b.Store = b.replica("r1")
	return b
}

func newRing(t *testing.T, id string) seal.Ring {
	t.Helper()
	ring, err := seal.Parse(seal.Generate(id))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func (b *bed) replica(name string) *store.Store {
	b.t.Helper()
	s, err := store.Open(b.t.Context(), store.Config{
		Config: db.Config{
			URL: b.url, Replica: name, PoolSize: 8,
			Wake: func(keys ...string) {
				for _, k := range keys {
					b.hub.Wake(k)
				}
			},
		},
		Committed: func(a2a.ID, []a2a.Entry) {},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(s.Close)
	return s
}

// Write appends to the log of the deliverers.
func (b *bed) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

func (b *bed) logged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.String()
}

// keys returns the keys of a server with a key ring.
func (b *bed) keys(s *store.Store, ring seal.Ring) *Keys {
	b.t.Helper()
	k := NewKeys(KeysConfig{Store: s, Ring: ring, Issuer: "https://a2ad.example",
		Logger: slog.New(slog.DiscardHandler)})
	if err := k.Load(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return k
}

// deliver runs a deliverer until the test ends or stop is called. It does not pause between polls.
func (b *bed) deliver(change ...func(*DelivererConfig)) (stop func()) {
	b.t.Helper()
	cfg := DelivererConfig{
		Store: b.Store, Hub: b.hub, Client: newClient(b.t, ClientConfig{Policy: dev}), Keys: b.keys(b.Store,
			b.ring), Ring: b.ring,
		Lease: patience, Schedule: Schedule{Waits: make([]time.Duration, 5)},
		Breaker: webhooks.Breaker{Fails: 100, FirstOpen: time.Hour, MaxOpen: time.Hour, DisableAfter: 100 * time.Hour},
		Render:  map[int16]Render{a2a.PushV03: func(t *a2a.Task) []byte { return v03.Codec{}.AppendTask(nil, t) }},
		Slots:   16, PerOrigin: 8, Poll: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(b, nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = NewDeliverer(cfg).Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	b.t.Cleanup(stop)
	return stop
}

// task submits a task with a webhook.
func (b *bed) task(c a2a.PushConfig) a2a.ID {
	b.t.Helper()
	out, err := b.Tasks.Submit(b.t.Context(), tasks.Submission{
		Caller: ann, Agent: "words", ContextID: "ctx", Message: a2a.Message{ID: "m", Role: a2a.RoleUser,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}},
		Push: b.newPush(c),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out.Task
}

func (b *bed) newPush(c a2a.PushConfig) *webhooks.NewWebhook {
	b.t.Helper()
	u, err := dev.CheckURL(c.URL)
	if err != nil {
		b.t.Fatal(err)
	}
	return &webhooks.NewWebhook{
		ConfigID: "default", URL: c.URL, Origin: Origin(u), Schemes: c.Schemes, Version: a2a.PushV03,
		Seal: func(row a2a.ID) (token, credentials []byte, err error) { return SealSecrets(b.ring, row, &c) },
	}
}

// run claims a task and reports events of it.
func (b *bed) run(task a2a.ID, events ...a2a.Event) *tasks.Lease {
	b.t.Helper()
	leases, err := b.Tasks.NewClaimer().Claim(b.t.Context(), "words", 100, time.Minute, time.Hour)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range leases {
		if leases[i].TaskID == task {
			b.append(&leases[i], events...)
			return &leases[i]
		}
	}
	b.t.Fatalf("task %s is not to be had", task)
	return nil
}

func (b *bed) append(l *tasks.Lease, events ...a2a.Event) {
	b.t.Helper()
	for _, e := range events {
		if _, err := b.Tasks.Append(b.t.Context(), l, tasks.Batch{Events: []a2a.Event{e}}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func status(s a2a.State) *a2a.StatusUpdate { return &a2a.StatusUpdate{Status: a2a.Status{State: s}} }

func whole(id, text string) *a2a.ArtifactUpdate {
	return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: id, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}}
}

// await waits until a condition is true for a webhook.
func (b *bed) await(task a2a.ID, what string, holds func(webhooks.Row) bool) webhooks.Row {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := b.Webhooks.List(ctx, webhooks.Filter{Task: task, Limit: 10})
		if err != nil || len(list) != 1 {
			b.t.Fatalf("%d webhooks, %v, while waiting until it is %s", len(list), err, what)
		}
		if holds(list[0]) {
			return list[0]
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("it is %+v, and not %s:\n%s", list[0], what, b.logged())
		}
	}
}

func (b *bed) awaitState(task a2a.ID, state string) webhooks.Row {
	b.t.Helper()
	return b.await(task, state, func(p webhooks.Row) bool { return p.State == state })
}

func (b *bed) awaitDelivered(task a2a.ID, seq int64) webhooks.Row {
	b.t.Helper()
	return b.await(task, "at cursor "+strconv.FormatInt(seq, 10), func(p webhooks.Row) bool { return p.Cursor >= seq })
}

func (b *bed) tries(p webhooks.Row) []webhooks.LedgerEntry {
	b.t.Helper()
	tries, err := b.Webhooks.Attempts(b.t.Context(), p.Row, 100)
	if err != nil {
		b.t.Fatal(err)
	}
	return tries
}

// times answers by how often the same notification came before.
func times(handle func(n int, w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	var mu sync.Mutex
	seen := map[string]int{}
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n := seen[r.Header.Get("Webhook-Id")]
		seen[r.Header.Get("Webhook-Id")]++
		mu.Unlock()
		handle(n, w, r)
	}
}

// inOrder checks that notifications arrived in order, each with one body, and returns their seqs.
func inOrder(t *testing.T, got []seenRequest) (seqs []int) {
	t.Helper()
	bodies := map[int]string{}
	for _, r := range got {
		id := r.header.Get("Webhook-Id")
		seq, err := strconv.Atoi(id[strings.LastIndex(id, "_")+1:])
		if err != nil {
			t.Fatalf("id %q", id)
		}
		if body, again := bodies[seq]; again && body != r.body {
			t.Errorf("%s has two bodies:\n%s\n%s", id, body, r.body)
		}
		bodies[seq] = r.body
		if len(seqs) > 0 && seq < seqs[len(seqs)-1] {
			t.Errorf("event %d came after %d", seq, seqs[len(seqs)-1])
		}
		if len(seqs) == 0 || seq != seqs[len(seqs)-1] {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

func containsInt(list []int, n int) bool {
	for _, x := range list {
		if x == n {
			return true
		}
	}
	return false
}
