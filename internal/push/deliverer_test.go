package push

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/wire/v03"
)

const patience = 30 * time.Second

var ann = store.Caller{Tenant: "acme", Owner: "ann"}

// bed is a store with webhooks, and a log of what deliverers say.
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
	db := storetest.New(t)
	b := &bed{t: t, url: db.URL, sql: db.Pool(t), hub: new(notify.Hub), ring: newRing(t, "k1")}
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
		URL: b.url, Replica: name, PoolSize: 8, Committed: func(a2a.ID, []a2a.Entry) {},
		Wake: func(keys ...string) {
			for _, k := range keys {
				b.hub.Wake(k)
			}
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(s.Close)
	return s
}

// Write is where deliverers log to.
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

// keys returns the keys of a server with a ring.
func (b *bed) keys(s *store.Store, ring seal.Ring) *Keys {
	b.t.Helper()
	k := NewKeys(KeysConfig{Store: s, Ring: ring, Issuer: "https://a2ad.example",
		Logger: slog.New(slog.DiscardHandler)})
	if err := k.Load(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return k
}

// deliver runs a deliverer until the test ends or stop is called. Its pauses are none.
func (b *bed) deliver(change ...func(*DelivererConfig)) (stop func()) {
	b.t.Helper()
	cfg := DelivererConfig{
		Store: b.Store, Hub: b.hub, Client: newClient(b.t, ClientConfig{Policy: dev}), Keys: b.keys(b.Store,
			b.ring), Ring: b.ring,
		Lease: patience, Schedule: Schedule{Waits: make([]time.Duration, 5)},
		Breaker: store.Breaker{Fails: 100, FirstOpen: time.Hour, MaxOpen: time.Hour, DisableAfter: 100 * time.Hour},
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
	out, err := b.Submit(b.t.Context(), store.Submission{
		Caller: ann, Agent: "words", ContextID: "ctx", Message: a2a.Message{ID: "m", Role: a2a.RoleUser,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}},
		Push: b.newPush(c),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out.Task
}

func (b *bed) newPush(c a2a.PushConfig) *store.NewPush {
	b.t.Helper()
	u, err := dev.CheckURL(c.URL)
	if err != nil {
		b.t.Fatal(err)
	}
	return &store.NewPush{
		ConfigID: "default", URL: c.URL, Origin: Origin(u), Schemes: c.Schemes, Version: a2a.PushV03,
		Seal: func(row a2a.ID) (token, credentials []byte, err error) { return SealSecrets(b.ring, row, &c) },
	}
}

// run claims a task and reports events of it.
func (b *bed) run(task a2a.ID, events ...a2a.Event) *store.Lease {
	b.t.Helper()
	leases, err := b.NewClaimer().Claim(b.t.Context(), "words", 100, time.Minute, time.Hour)
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

func (b *bed) append(l *store.Lease, events ...a2a.Event) {
	b.t.Helper()
	for _, e := range events {
		if _, err := b.Append(b.t.Context(), l, store.Batch{Events: []a2a.Event{e}}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func status(s a2a.State) *a2a.StatusUpdate { return &a2a.StatusUpdate{Status: a2a.Status{State: s}} }

func whole(id, text string) *a2a.ArtifactUpdate {
	return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: id, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}}
}

// await waits until a webhook is as a test wants it.
func (b *bed) await(task a2a.ID, what string, holds func(store.PushRow) bool) store.PushRow {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := b.ListPushes(ctx, store.PushFilter{Task: task, Limit: 10})
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

func (b *bed) awaitState(task a2a.ID, state string) store.PushRow {
	b.t.Helper()
	return b.await(task, state, func(p store.PushRow) bool { return p.State == state })
}

func (b *bed) settled(task a2a.ID, seq int64) store.PushRow {
	b.t.Helper()
	return b.await(task, "at cursor "+strconv.FormatInt(seq, 10), func(p store.PushRow) bool { return p.Cursor >= seq })
}

func (b *bed) tries(p store.PushRow) []store.PushTry {
	b.t.Helper()
	tries, err := b.PushTries(b.t.Context(), p.Row, 100)
	if err != nil {
		b.t.Fatal(err)
	}
	return tries
}

// times answers by how often a notification came before.
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

// inOrder checks that notifications arrived in order, each with the same body, and returns their seqs.
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

func TestEveryStateThatMattersArrivesInOrder(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, times(func(n int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader([]int{500, 404, 200}[n])
	}))
	task := b.task(a2a.PushConfig{URL: s.URL, Token: "tok", Schemes: []string{"Bearer"}, Credentials: "cred"})
	b.deliver()
	l := b.run(task, whole("a", "x"), status(a2a.StateInputRequired))
	b.settled(task, l.LastSeq)
	in := store.Submission{Caller: ann, Agent: "words", Task: task,
		Message: a2a.Message{ID: "m2", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "go on"}}}}
	if _, err := b.Submit(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	l = b.run(task, whole("b", "y"), status(a2a.StateCompleted))
	p := b.awaitState(task, "done")
	got := s.requests()
	seqs := inOrder(t, got)
	if !containsInt(seqs, 4) || seqs[len(seqs)-1] != int(l.LastSeq) || len(got) != 3*len(seqs) {
		t.Errorf("%d requests for events %v, want three each, for 4 and %d among them", len(got), seqs, l.LastSeq)
	}
	for _, r := range got {
		if r.header.Get("Authorization") != "Bearer cred" || r.header.Get("X-A2a-Notification-Token") != "tok" ||
			r.header.Get("A2a-Notification-Token") != "tok" ||
			r.header.Get("Webhook-Signature") == "" || r.header.Get("A2a-Version") != "0.3" {
			t.Errorf("headers %v", r.header)
		}
	}
	var last struct{ ID, Kind string }
	if err := json.Unmarshal([]byte(got[len(got)-1].body), &last); err != nil || last.Kind != "task" ||
		last.ID != task.String() {
		t.Errorf("body %s", got[len(got)-1].body)
	}
	if tries := b.tries(p); len(tries) != len(got) || tries[0].Outcome != "delivered" || tries[0].Attempt != 3 ||
		tries[1].Status != 404 || tries[2].Status != 500 {
		t.Errorf("ledger %+v", tries)
	}
	if text := b.logged(); strings.Contains(text, "cred\"") || strings.Contains(text, "=tok") ||
		strings.Contains(text, "Bearer") {
		t.Errorf("log with secrets:\n%s", text)
	}
}

func containsInt(list []int, n int) bool {
	for _, x := range list {
		if x == n {
			return true
		}
	}
	return false
}

func TestReceiversThatWantNoMore(t *testing.T) {
	t.Parallel()
	directive := func(d string, code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Webhook-Delivery", d)
			w.WriteHeader(code)
		}
	}
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		state   string
		tries   int
		outcome string
		reason  string
	}{
		"410":           {answer(410, ""), "disabled", 1, "failed", "answered 410 Gone"},
		"disable":       {directive("disable", 400), "disabled", 1, "failed", "answered 400 Bad Request"},
		"abort-message": {directive("abort-message", 400), "done", 1, "skipped", ""},
		"exhausted": {answer(503, ""), "dead", 5, "failed",
			"5 tries failed, the last one with: answered 503 Service Unavailable"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, "dead", 5, "failed", "5 tries failed, the last one with: answered 307 Temporary Redirect to http://127.0.0.1:1; redirects are not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			s := newSink(t, tt.handler)
			task := b.task(a2a.PushConfig{URL: s.URL})
			b.run(task, status(a2a.StateCompleted))
			b.deliver()
			p := b.awaitState(task, tt.state)
			tries := b.tries(p)
			if p.Reason != tt.reason || len(tries) != tt.tries || len(s.requests()) != tt.tries ||
				tries[0].Outcome != tt.outcome {
				t.Errorf("reason %q, %d requests, ledger %+v", p.Reason, len(s.requests()), tries)
			}
		})
	}
}

func TestUnreadableSecretIsNotRetried(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	task := b.task(a2a.PushConfig{URL: s.URL, Token: "canary"})
	b.deliver(func(c *DelivererConfig) { c.Ring = newRing(t, "k2") })
	p := b.awaitState(task, "dead")
	tries := b.tries(p)
	if len(s.requests()) != 0 || !strings.Contains(p.Reason, "not in A2AD_KEYS") || len(tries) != 1 ||
		tries[0].Class != "secret" {
		t.Errorf("%d requests, reason %q, ledger %+v", len(s.requests()), p.Reason, tries)
	}
	// With the key back, a replay delivers.
	if err := b.ReplayPush(t.Context(), p.Row, 1<<62); err != nil {
		t.Fatal(err)
	}
}

func TestBodyKeepsTheLimit(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	task := b.task(a2a.PushConfig{URL: s.URL})
	b.run(task, whole("a", strings.Repeat("x", 3000)), status(a2a.StateCompleted))
	b.deliver(func(c *DelivererConfig) { c.MaxBody = 2000 })
	b.awaitState(task, "done")
	got := s.requests()
	if len(got) != 1 || len(got[0].body) > 2000 || !strings.Contains(got[0].body, `"completed"`) ||
		strings.Contains(got[0].body, "xxx") {
		t.Errorf("%d requests, the first with %d bytes: %.300s", len(got), len(got[0].body), got[0].body)
	}
}

// If only the status message is too large, the receiver still gets the state.
func TestBodyKeepsTheLimitWithoutTheStatusMessage(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	task := b.task(a2a.PushConfig{URL: s.URL})
	done := status(a2a.StateCompleted)
	done.Status.Message = &a2a.Message{ID: "m2", Role: a2a.RoleAgent,
		Parts: []a2a.Part{{Kind: a2a.PartText, Text: strings.Repeat("x", 3000)}}}
	b.run(task, done)
	b.deliver(func(c *DelivererConfig) { c.MaxBody = 2000 })
	b.awaitState(task, "done")
	got := s.requests()
	if len(got) != 1 || len(got[0].body) > 2000 || !strings.Contains(got[0].body, `"completed"`) {
		t.Errorf("%d requests, the first with %d bytes: %.300s", len(got), len(got[0].body), got[0].body)
	}
}

// Every request is a step of its own in the client's trace.
func TestRequestsBelongToTheTraceOfTheClient(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, times(func(n int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader([]int{500, 200}[n]) }))
	in := store.Submission{
		Caller: ann, Agent: "words", ContextID: "ctx", Message: a2a.Message{ID: "m", Role: a2a.RoleUser,
			Parts: []a2a.Part{{Kind: a2a.PartText, Text: "hello"}}},
		Push:        b.newPush(a2a.PushConfig{URL: s.URL}),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	out, err := b.Submit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	b.deliver()
	b.settled(out.Task, 1)
	form := regexp.MustCompile("^00-0af7651916cd43dd8448eb211c80319c-([0-9a-f]{16})-01$")
	parents := map[string]bool{"b7ad6b7169203331": true}
	for _, r := range s.requests() {
		m := form.FindStringSubmatch(r.header.Get("Traceparent"))
		if m == nil || parents[m[1]] {
			t.Fatalf("traceparent %q after %v", r.header.Get("Traceparent"), parents)
		}
		parents[m[1]] = true
	}
	if len(parents) != 3 {
		t.Errorf("%d requests, want 2", len(parents)-1)
	}
	without := newSink(t, ok)
	b.settled(b.task(a2a.PushConfig{URL: without.URL}), 1)
	if h := without.requests()[0].header; h.Get("Traceparent") != "" {
		t.Errorf("a task without a trace gives %q", h.Get("Traceparent"))
	}
}

// A notification that was accepted and not recorded is sent again unchanged.
func TestLostRecordIsADuplicate(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, times(func(n int, _ http.ResponseWriter, _ *http.Request) {
		if n == 0 { // the deliverer dies before it gets the answer
			if _, err := b.sql.Exec(context.Background(),
				"UPDATE a2a.push_configs SET lease_epoch = lease_epoch + 1, lease_until = clock_timestamp() - interval '1 second'"); err != nil {
				t.Error(err)
			}
		}
	}))
	task := b.task(a2a.PushConfig{URL: s.URL})
	l := b.run(task, whole("a", "x"))
	b.deliver()
	b.settled(task, 3)
	b.append(l, whole("b", "y"), status(a2a.StateCompleted))
	p := b.awaitState(task, "done")
	got := s.requests()
	seqs := inOrder(t, got)
	if len(got) != 2*len(seqs) {
		t.Errorf("%d requests for events %v, want each twice", len(got), seqs)
	}
	if tries := b.tries(p); len(tries) != len(seqs) {
		t.Errorf("ledger %+v, want only the recorded ones", tries)
	}
}

// A hanging destination uses only its share of the slots.
func TestHangingDestinationDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	entered := make(chan struct{}, 100)
	slow := newSink(t, func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		select {
		case <-released:
		case <-r.Context().Done():
		}
	})
	fast := newSink(t, ok)
	var hung, healthy []a2a.ID
	for range 6 {
		hung = append(hung, b.task(a2a.PushConfig{URL: slow.URL}))
	}
	for range 6 {
		healthy = append(healthy, b.task(a2a.PushConfig{URL: fast.URL}))
	}
	b.deliver(func(c *DelivererConfig) { c.Slots, c.PerOrigin = 3, 2 })
	for _, task := range healthy {
		b.settled(task, 1)
	}
	<-entered
	<-entered
	if n := len(slow.requests()); n != 2 {
		t.Errorf("the hanging destination has %d requests at once, want its cap of 2", n)
	}
	release()
	for _, task := range hung {
		b.settled(task, 1)
	}
}

func TestDeleteDuringARetry(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	entered, released := make(chan struct{}, 10), make(chan struct{})
	s := newSink(t, times(func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			entered <- struct{}{}
			<-released
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	task := b.task(a2a.PushConfig{URL: s.URL})
	b.deliver()
	<-entered
	deleted := make(chan error, 1)
	go func() { deleted <- b.DeletePush(t.Context(), ann, task, "default") }()
	b.await(task, "deleted", func(p store.PushRow) bool { return !p.DeletedAt.IsZero() })
	select {
	case err := <-deleted:
		t.Errorf("the delete was over before the request: %v", err)
	default:
	}
	close(released)
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	n := len(s.requests())
	// Another one, on the same destination, is delivered; the deleted one is never tried again.
	other := b.task(a2a.PushConfig{URL: s.URL + "/other"})
	b.await(other, "dead", func(p store.PushRow) bool { return p.State == "dead" })
	for _, r := range s.requests()[n:] {
		if r.target != "/other" {
			t.Errorf("a request to %s after the delete", r.target)
		}
	}
}

// TestReplicasShareTheWork: each notification is sent once by one of them.
func TestReplicasShareTheWork(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	b.deliver()
	r2 := b.replica("r2")
	b.deliver(func(c *DelivererConfig) { c.Store = r2 })
	var tasks []a2a.ID
	for range 30 {
		tasks = append(tasks, b.task(a2a.PushConfig{URL: s.URL}))
	}
	for _, task := range tasks {
		b.settled(task, 1)
	}
	ids := map[string]int{}
	for _, r := range s.requests() {
		ids[r.header.Get("Webhook-Id")]++
	}
	if len(ids) != 30 || len(s.requests()) != 30 {
		t.Errorf("%d requests with %d ids, want 30 of each", len(s.requests()), len(ids))
	}
}

// TestDeliveryHasATokenOfTheServer: without credentials, Bearer is a token of ours, which the
// published keys verify.
func TestDeliveryHasATokenOfTheServer(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	task := b.task(a2a.PushConfig{URL: s.URL, Schemes: []string{"Bearer"}})
	b.deliver()
	b.settled(task, 1)
	r := s.requests()[0]
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(b.keys(b.Store, b.ring).JWKS(), &set); err != nil || len(set.Keys) != 2 {
		t.Fatalf("%d keys, %v, want two", len(set.Keys), err)
	}
	parsed, err := jwt.ParseSigned(strings.TrimPrefix(r.header.Get("Authorization"), "Bearer "),
		[]jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	var c jwt.Claims
	if err := parsed.Claims(set, &c); err != nil {
		t.Fatal(err)
	}
	err = c.Validate(jwt.Expected{Issuer: "https://a2ad.example", AnyAudience: jwt.Audience{s.URL},
		Subject: task.String(), ID: r.header.Get("Webhook-Id")})
	if err != nil {
		t.Errorf("claims %+v: %v", c, err)
	}
}

func TestReplicasMakeOneSetOfKeys(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	stores := []*store.Store{b.Store, b.replica("r2"), b.replica("r3")}
	sets := make([]string, len(stores))
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			k := NewKeys(KeysConfig{Store: s, Ring: b.ring, Issuer: "https://a2ad.example",
				Logger: slog.New(slog.DiscardHandler)})
			if err := k.Load(t.Context()); err != nil {
				t.Error(err)
				return
			}
			sets[i] = string(k.JWKS())
		})
	}
	wg.Wait()
	if sets[0] != sets[1] || sets[0] != sets[2] || strings.Count(sets[0], `"kid"`) != 2 {
		t.Errorf("sets %s", strings.Join(sets, "\n"))
	}
	// A server with another ring does not see these keys, and makes its own.
	other := b.keys(b.Store, newRing(t, "k2"))
	if got := string(other.JWKS()); got == sets[0] || strings.Count(got, `"kid"`) != 2 {
		t.Errorf("with another ring: %s", got)
	}
	if again := b.keys(b.Store, b.ring); string(again.JWKS()) != sets[0] {
		t.Errorf("the first ring now has %s", again.JWKS())
	}
	// Without a ring there are none, and still a set.
	none := b.keys(b.Store, seal.Ring{})
	if none.Issuer() != nil || string(none.JWKS()) != `{"keys":[]}` {
		t.Errorf("without a ring: %s", none.JWKS())
	}
}

func TestKeysAndSecretsMoveToAnotherRing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s := newSink(t, ok)
	old := b.keys(b.Store, b.ring)
	oldText, newText := seal.Generate("old"), seal.Generate("new")
	both, err := seal.Parse(newText + "," + oldText)
	if err != nil {
		t.Fatal(err)
	}
	if b.ring, err = seal.Parse(oldText); err != nil {
		t.Fatal(err)
	}
	task := b.task(a2a.PushConfig{URL: s.URL, Token: "tok"})
	before := b.keys(b.Store, b.ring)
	n, err := b.ResealPushes(t.Context(), func(row a2a.ID, s store.PushSecrets) (store.PushSecrets, bool, error) {
		return Reseal(both, row, s)
	})
	if n != 1 || err != nil {
		t.Errorf("%d webhooks resealed, %v", n, err)
	}
	// Keys of the first ring, which is not available here, must not stop the others.
	if n, err := ResealKeys(t.Context(), b.Store, both); n != 2 || err != nil {
		t.Errorf("%d keys resealed, %v, want 2", n, err)
	}
	if b.ring, err = seal.Parse(newText); err != nil {
		t.Fatal(err)
	}
	if after := b.keys(b.Store, b.ring); string(after.JWKS()) != string(before.JWKS()) ||
		string(after.JWKS()) == string(old.JWKS()) {
		t.Errorf("keys %s, want %s", after.JWKS(), before.JWKS())
	}
	b.deliver()
	b.settled(task, 1)
	if got := s.requests()[0].header.Get("A2a-Notification-Token"); got != "tok" {
		t.Errorf("token %q", got)
	}
}

// TestStoppingDelivererLetsRequestsEnd: their answers are recorded.
func TestStoppingDelivererLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	entered, released := make(chan struct{}), make(chan struct{})
	s := newSink(t, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-released
	})
	task := b.task(a2a.PushConfig{URL: s.URL})
	stop := b.deliver()
	<-entered
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	close(released)
	<-stopped
	if p := b.settled(task, 1); len(b.tries(p)) != 1 {
		t.Errorf("ledger %+v", b.tries(p))
	}
}

// Without a schedule an unreadable task would be claimed and released in a busy loop. So a failed read counts as an
// attempt, and the next one is delayed.
func TestUnreadableTaskIsRetriedByTheSchedule(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	task := b.task(a2a.PushConfig{URL: "http://127.0.0.1:1/hook"})
	b.run(task, status(a2a.StateWorking))
	if _, err := b.sql.Exec(t.Context(), "DELETE FROM a2a.task_events WHERE task_id = $1", task); err != nil {
		t.Fatal(err)
	}
	b.deliver(func(c *DelivererConfig) { c.Schedule.Waits = []time.Duration{0, time.Hour, time.Hour} })
	p := b.await(task, "tried", func(p store.PushRow) bool {
		if n := strings.Count(b.logged(), "msg=webhook"); n > 20 {
			t.Fatalf("%d tries to read it", n)
		}
		return p.Attempt > 0
	})
	b.await(task, "free", func(p store.PushRow) bool { return p.State == "active" && p.Attempt == 1 })
	if tries := b.tries(p); len(tries) != 1 || tries[0].Class != string(ClassInternal) || tries[0].Reason == "" ||
		strings.Contains(tries[0].Reason, "not found") {
		t.Errorf("the ledger has %+v", tries)
	}
}
