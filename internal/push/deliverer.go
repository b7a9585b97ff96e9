package push

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/tracing"
	"github.com/a2ad/a2ad/internal/wake"
)

// Hub delivers wake-ups.
type Hub interface {
	Wait(key string) (wake <-chan struct{}, stop func())
}

// Render writes the body of a delivery: the task as of the event up to which it informs the receiver. The same task
// gives the same bytes.
type Render func(t *a2a.Task) []byte

// DelivererConfig configures a Deliverer. Everything except Hub may be shared with other parts.
type DelivererConfig struct {
	Store     *store.Store
	Hub       Hub
	Client    *Client
	Keys      *Keys
	Ring      seal.Ring
	Lease     time.Duration // of a webhook; renewed during a request, so it bounds the wait after a process died
	Schedule  Schedule
	Breaker   webhooks.Breaker
	Render    map[int16]Render // by a2a.PushV03 and the like
	Slots     int              // requests at once of this process
	PerOrigin int              // requests at once to one destination, of all processes, at most: see pace
	Poll      time.Duration    // how often to poll without a wake-up
	// MaxBody is in bytes. A larger task is sent without history, then without artifacts, then without its status
	// message.
	MaxBody int
	Now     func() time.Time // for leases; nil: time.Now
	Logger  *slog.Logger
	Budget  *budget.Budget  // of memory; nil: unbounded
	Tracer  *tracing.Tracer // nil: no traces
}

// Deliverer claims due webhooks and delivers to them, for one process. Use NewDeliverer.
type Deliverer struct {
	cfg    DelivererConfig
	freed  chan struct{} // capacity 1: a slot is free again
	leases *renewals
	pace   *pace
	reads  *group[tasks.Moment, tasks.Snapshot]
	writes *group[webhooks.Delivered, bool]

	mu       sync.Mutex
	inFlight int             // guarded by mu; deliveries
	attempts map[Class]int64 // guarded by mu; requests since the start

	deliveries sync.WaitGroup
}

// NewDeliverer returns a Deliverer that does nothing until Run.
func NewDeliverer(cfg DelivererConfig) *Deliverer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	d := &Deliverer{
		cfg: cfg, freed: make(chan struct{}, 1), attempts: make(map[Class]int64),
		leases: newRenewals(cfg.Store, cfg.Lease, cfg.Now, cfg.Logger), pace: newPace(cfg.PerOrigin),
	}
	d.reads = &group[tasks.Moment, tasks.Snapshot]{
		many: d.readSmall,
		alone: func(ctx context.Context, at tasks.Moment) (tasks.Snapshot, error) {
			read, err := d.readSmall(ctx, []tasks.Moment{at})
			if err != nil {
				return tasks.Snapshot{}, err
			}
			return read[0], nil
		},
	}
	d.writes = &group[webhooks.Delivered, bool]{
		many:  cfg.Store.Webhooks.RecordDeliveries,
		alone: func(context.Context, webhooks.Delivered) (recorded bool, err error) { return false, nil },
	}
	return d
}

// Run delivers until ctx is done. It returns when the requests in flight have ended.
func (d *Deliverer) Run(ctx context.Context) error {
	wake, unsubscribe := d.cfg.Hub.Wait(wake.Webhooks)
	defer unsubscribe()
	var renewing sync.WaitGroup
	ended := make(chan struct{})
	renewing.Go(func() { d.leases.run(context.WithoutCancel(ctx), ended) })
	defer renewing.Wait()
	defer close(ended)
	defer d.deliveries.Wait()
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

// claim claims due webhooks and starts their deliveries, as long as there are due webhooks and free slots.
func (d *Deliverer) claim(ctx context.Context) {
	for ctx.Err() == nil {
		n := d.freeSlots()
		if n <= 0 {
			return
		}
		sent := d.cfg.Now()
		due, err := d.cfg.Store.Webhooks.ClaimWithin(ctx, n, d.pace.room, d.cfg.Lease)
		if err != nil {
			d.cfg.Logger.WarnContext(ctx, "claim webhooks", "err", err)
			return
		}
		if len(due) == 0 {
			return
		}
		for i := range due {
			d.start(ctx, &due[i], sent)
		}
	}
}

func (d *Deliverer) start(ctx context.Context, due *webhooks.Delivery, claimed time.Time) {
	d.mu.Lock()
	d.inFlight++
	d.mu.Unlock()
	// A request continues when the process is about to stop: it takes a bounded time, and recording its answer saves
	// the receiver a duplicate.
	ctx = context.WithoutCancel(ctx)
	d.deliveries.Go(func() {
		defer d.freeSlot()
		d.deliver(ctx, due, claimed)
	})
}

func (d *Deliverer) freeSlots() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg.Slots - d.inFlight
}

func (d *Deliverer) freeSlot() {
	d.mu.Lock()
	d.inFlight--
	d.mu.Unlock()
	select {
	case d.freed <- struct{}{}:
	default:
	}
}

// Attempts returns how many requests of each class this process has made since it began, and how many deliveries are
// in flight.
func (d *Deliverer) Attempts() (attempts map[Class]int64, inFlight int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.attempts), d.inFlight
}

func (d *Deliverer) count(c Class) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attempts[c]++
}
