package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/tracing"
)

// Hub tells when to look again.
type Hub interface {
	Wait(key string) (wake <-chan struct{}, stop func())
}

// Render writes the body of a delivery: the task as of the event that it brings the
// receiver up to. The same task gives the same bytes.
type Render func(t *a2a.Task) []byte

// DelivererConfig sets a Deliverer up. All but Hub may be used by others too.
type DelivererConfig struct {
	Store     *store.Store
	Hub       Hub
	Client    *Client
	Keys      *Keys
	Ring      seal.Ring
	Lease     time.Duration // how long a webhook stays held after its process died; renewed while a request takes longer
	Schedule  Schedule
	Breaker   store.Breaker
	Render    map[int16]Render // by a2a.PushV03 and the like
	Slots     int              // requests at once of this process
	PerOrigin int              // requests at once to one destination, of all processes
	Poll      time.Duration    // how often to look without a wake
	MaxBody   int              // bytes; a larger task goes without history, then without artifacts, then without its status message
	Now       func() time.Time // nil: time.Now; by which leases are held
	Logger    *slog.Logger
	Budget    *budget.Budget  // of memory; nil: it is not bounded
	Tracer    *tracing.Tracer // nil: there are no traces
}

// Deliverer delivers for one process. Use NewDeliverer.
type Deliverer struct {
	cfg   DelivererConfig
	freed chan struct{} // capacity 1

	mu    sync.Mutex
	busy  int             // guarded by mu
	holds map[*hold]bool  // guarded by mu; of the requests under way
	tries map[Class]int64 // guarded by mu; since the start
	wg    sync.WaitGroup
}

// NewDeliverer returns a Deliverer that does nothing until Run.
func NewDeliverer(cfg DelivererConfig) *Deliverer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Deliverer{tries: make(map[Class]int64), holds: make(map[*hold]bool), cfg: cfg, freed: make(chan struct{}, 1)}
}

// Run delivers until ctx is done, and returns when the requests under way have ended.
func (d *Deliverer) Run(ctx context.Context) error {
	wake, stop := d.cfg.Hub.Wait(store.KeyPush)
	defer stop()
	var renewing sync.WaitGroup
	ended := make(chan struct{})
	renewing.Go(func() { d.renew(context.WithoutCancel(ctx), ended) })
	defer renewing.Wait()
	defer close(ended)
	defer d.wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-wake:
		case <-d.freed:
		case <-timer.C:
			timer.Reset(backoff.Jitter(d.cfg.Poll, nil))
		case <-ctx.Done():
			return nil
		}
		d.claim(ctx)
	}
}

// claim takes due webhooks as long as there are any and slots for them.
func (d *Deliverer) claim(ctx context.Context) {
	for ctx.Err() == nil {
		n := d.free()
		if n <= 0 {
			return
		}
		claimed := d.cfg.Now()
		due, err := d.cfg.Store.ClaimPushes(ctx, n, d.cfg.PerOrigin, d.cfg.Lease)
		if err != nil {
			d.cfg.Logger.WarnContext(ctx, "claim webhooks", "err", err)
			return
		}
		if len(due) == 0 {
			return
		}
		for i := range due {
			d.start(ctx, &due[i], claimed)
		}
	}
}

// Attempts returns how many requests of each class this process has made since it began, and
// how many are under way.
func (d *Deliverer) Attempts() (tries map[Class]int64, busy int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.tries), d.busy
}

func (d *Deliverer) count(c Class) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries[c]++
}

// keep has the lease renewed until drop.
func (d *Deliverer) keep(h *hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds[h] = true
}

func (d *Deliverer) drop(h *hold) {
	h.release()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.holds, h)
}

func (d *Deliverer) free() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg.Slots - d.busy
}

func (d *Deliverer) start(ctx context.Context, due *store.Delivery, claimed time.Time) {
	d.mu.Lock()
	d.busy++
	d.mu.Unlock()
	// A request goes on when the process is about to stop: it is bounded, and its answer
	// saves the receiver a duplicate.
	ctx = context.WithoutCancel(ctx)
	d.wg.Go(func() {
		defer func() {
			d.mu.Lock()
			d.busy--
			d.mu.Unlock()
			select {
			case d.freed <- struct{}{}:
			default:
			}
		}()
		log := d.cfg.Logger.With("task_id", due.Task, "agent", due.Agent, "push_id", due.Row, "seq", due.Seq, "attempt", due.Attempt+1, "origin", due.Origin,
			"principal", slog.GroupValue(slog.String("tenant", due.Tenant), slog.String("owner", due.Owner)))
		if id := due.Traceparent.TraceID(); id != "" {
			log = log.With("trace_id", id)
		}
		if err := d.deliver(ctx, due, claimed, log); err != nil {
			log.WarnContext(ctx, "webhook", "err", err)
		}
	})
}

// deliver makes one request and records it.
func (d *Deliverer) deliver(ctx context.Context, due *store.Delivery, claimed time.Time, log *slog.Logger) error {
	// A request that is under way when its lease runs out would be made twice at once.
	sent, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	h := newHold(due, d.cfg.Now, claimed, d.cfg.Lease, func() { lose(errNotHeld) })
	d.keep(h)
	defer d.drop(h)
	mem := d.cfg.Budget.Open(budget.Owner{Tenant: due.Tenant, Name: due.Owner})
	defer mem.Release()
	task, err := d.read(ctx, mem, due)
	if err != nil {
		return errors.Join(err, d.unread(ctx, due, a2a.CodeOf(err) == a2a.CodeUnavailable || a2a.CodeOf(err) == a2a.CodeRateLimited))
	}
	req, err := d.request(due, task, h.held)
	if err != nil {
		// Another try would fail in the same way: somebody took a key out of the ring.
		t := store.Try{Class: "secret", Reason: err.Error()}
		_, failed := d.cfg.Store.Failed(ctx, due, &t, store.Failure{Fate: "dead"})
		return errors.Join(err, failed)
	}
	// What is left of the task is the body. It may be a large one, but few are, and they are bounded.
	terminal := task.Status.State.Terminal()
	task = nil
	mem.Settle(int64(len(req.Body)))
	if !h.held() {
		return d.cfg.Store.ReleasePush(ctx, due) // this process stood still: the webhook may be another's, or deleted
	}
	sent, span := d.cfg.Tracer.Start(sent, "webhook", tracing.Client, due.Traceparent)
	if span != nil {
		span.Set(tracing.Task(due.Task.String()), tracing.Agent(due.Agent), tracing.Push(due.Row.String()), tracing.Seq(due.Seq), tracing.Attempt(due.Attempt+1))
		req.Traceparent = string(span.Traceparent())
		if due.Traceparent == "" { // the trace begins here
			log = log.With("trace_id", span.Traceparent().TraceID())
		}
	}
	res := d.cfg.Client.Attempt(sent, *req)
	if span != nil {
		span.Set(tracing.Outcome(string(res.Class)), tracing.Status(res.Status))
		if res.Class != ClassDelivered {
			span.Fail(string(res.Class))
		}
		span.End()
	}
	d.count(res.Class)
	try := store.Try{Took: res.Took, RemoteIP: res.RemoteIP, Status: res.Status, Class: string(res.Class), Reason: res.Reason, Answer: res.Answer}
	if res.Class == ClassDelivered {
		log.InfoContext(ctx, "webhook", "outcome", "delivered", "status", res.Status, "ms", res.Took.Milliseconds())
		try.Class = ""
		return d.cfg.Store.Delivered(ctx, due, &try, terminal)
	}
	fate, delay := d.cfg.Schedule.Next(due.Attempt+1, res, nil)
	log.InfoContext(ctx, "webhook", "outcome", "failed", "class", try.Class, "status", res.Status, "reason", res.Reason, "ms", res.Took.Milliseconds(), "fate", string(fate))
	switch fate {
	case FateRelease:
		return d.cfg.Store.ReleasePush(ctx, due)
	case FateSkip:
		return d.cfg.Store.SkippedPush(ctx, due, &try, terminal)
	}
	f := store.Failure{Delay: delay, Fate: string(fate)}
	if res.Class.BlamesDestination() {
		f.Breaker = &d.cfg.Breaker
	}
	if fate == FateDead && !res.Class.Permanent() {
		try.Reason = fmt.Sprintf("%d tries failed, the last one with: %s", due.Attempt+1, try.Reason)
	}
	disabled, err := d.cfg.Store.Failed(ctx, due, &try, f)
	if disabled {
		log.WarnContext(ctx, "destination disabled: it has failed for too long", "tenant", due.Tenant)
	}
	return err
}

// unread gives back a webhook whose task cannot be read now. Given back at once it would be claimed
// again at once: if the database is unreachable the next try waits for a poll, and if the read fails
// for another reason that was a try, and the next one waits for its time.
func (d *Deliverer) unread(ctx context.Context, due *store.Delivery, away bool) error {
	if away {
		timer := time.NewTimer(backoff.Jitter(d.cfg.Poll, nil))
		defer timer.Stop()
		<-timer.C
		return d.cfg.Store.ReleasePush(ctx, due)
	}
	t := store.Try{Class: string(ClassInternal), Reason: "the server could not read the task"}
	fate, delay := d.cfg.Schedule.Next(due.Attempt+1, Result{Class: ClassInternal}, nil)
	_, err := d.cfg.Store.Failed(ctx, due, &t, store.Failure{Fate: string(fate), Delay: delay})
	return err
}

// Where the secrets of a webhook are kept: a value opens in its own place only.
func place(row a2a.ID, column string) seal.Place {
	return seal.Place{Table: "push_configs", Row: row.String(), Column: column}
}

const (
	columnToken       = "token"
	columnCredentials = "credentials"
	columnQuery       = "query"
)

// SealSecrets encrypts the secrets of a webhook for its row. nil stays nil.
func SealSecrets(ring seal.Ring, row a2a.ID, c *a2a.PushConfig) (token, credentials []byte, err error) {
	if c.Token != "" {
		if token, err = ring.Seal([]byte(c.Token), place(row, columnToken)); err != nil {
			return nil, nil, err
		}
	}
	if c.Credentials != "" {
		if credentials, err = ring.Seal([]byte(c.Credentials), place(row, columnCredentials)); err != nil {
			return nil, nil, err
		}
	}
	return token, credentials, nil
}

// SealURL encrypts the query of a webhook's URL for its row, and returns the URL with a mark in its
// place. A URL without a query stays as it is; and without keys, every URL.
func SealURL(ring seal.Ring, row a2a.ID, raw string) (string, []byte, error) {
	base, query, ok := strings.Cut(raw, "?")
	if !ok || ring.Empty() {
		return raw, nil, nil
	}
	sealed, err := ring.Seal([]byte(query), place(row, columnQuery))
	return base + "?" + a2a.RedactedQuery, sealed, err
}

// Reseal seals the secrets of a row anew if another key seals now, and a query that is in clear.
func Reseal(ring seal.Ring, row a2a.ID, s store.PushSecrets) (_ store.PushSecrets, changed bool, err error) {
	for _, secret := range []struct {
		sealed *[]byte
		column string
	}{{&s.Token, columnToken}, {&s.Credentials, columnCredentials}, {&s.Query, columnQuery}} {
		if len(*secret.sealed) == 0 || !ring.NeedsRewrap(*secret.sealed) {
			continue
		}
		at := place(row, secret.column)
		plain, err := ring.Open(*secret.sealed, at)
		if err != nil {
			return s, false, err
		}
		if *secret.sealed, err = ring.Seal(plain, at); err != nil {
			return s, false, err
		}
		changed = true
	}
	if len(s.Query) == 0 {
		s.URL, s.Query, err = SealURL(ring, row, s.URL)
		changed = changed || len(s.Query) > 0
	}
	return s, changed, err
}

// Opens returns an error if the ring cannot open a secret that is stored.
func Opens(ring seal.Ring, s store.Sealed) error {
	at := seal.Place{Table: signingTable, Row: s.Name, Column: "key"}
	if s.Place != "signing" {
		at = seal.Place{Table: "push_configs", Row: s.Name, Column: s.Place}
	}
	_, err := ring.Open(s.Sample, at)
	return err
}

func (d *Deliverer) open(due *store.Delivery, sealed []byte, column string) (a2a.Secret, error) {
	if len(sealed) == 0 {
		return "", nil
	}
	plain, err := d.cfg.Ring.Open(sealed, place(due.Row, column))
	if err != nil {
		return "", fmt.Errorf("open the %s of the webhook: %w", column, err)
	}
	return a2a.Secret(plain), nil
}

// request builds what is sent. Its id and body are the same on every try.
func (d *Deliverer) request(due *store.Delivery, task *a2a.Task, held func() bool) (*Request, error) {
	token, err := d.open(due, due.Token, columnToken)
	if err != nil {
		return nil, err
	}
	credentials, err := d.open(due, due.Credentials, columnCredentials)
	if err != nil {
		return nil, err
	}
	query, err := d.open(due, due.Query, columnQuery)
	if err != nil {
		return nil, err
	}
	url := due.URL
	if base, _, ok := strings.Cut(url, "?"); ok && len(due.Query) > 0 {
		url = base + "?" + string(query)
	}
	return &Request{
		ID: fmt.Sprintf("msg_%s_%d", due.Row, due.Seq), URL: url, Version: Version(due.Version), Task: due.Task.String(),
		Body: d.body(due.Version, task), Token: token, Schemes: due.Schemes, Credentials: credentials,
		Signer: d.cfg.Keys.Signer(), Issuer: d.cfg.Keys.Issuer(), Traceparent: string(due.Traceparent.Next()), Held: held,
	}, nil
}

// body renders the task, within the limit.
func (d *Deliverer) body(version int16, task *a2a.Task) []byte {
	render := d.cfg.Render[version]
	body := render(task)
	if d.cfg.MaxBody <= 0 || len(body) <= d.cfg.MaxBody {
		return body
	}
	short := *task
	short.History = nil
	if body = render(&short); len(body) <= d.cfg.MaxBody {
		return body
	}
	short.Artifacts = nil
	if body = render(&short); len(body) <= d.cfg.MaxBody {
		return body
	}
	short.Status.Message = nil
	return render(&short)
}
