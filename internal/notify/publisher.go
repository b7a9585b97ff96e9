package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
)

// ErrTimeout is the cause of a context that this package gave up on.
var ErrTimeout = errors.New("no answer in time")

// PublisherConfig says how a Publisher works. Replica and Notify are required.
type PublisherConfig struct {
	Replica string // names this process; its Listener has the same

	// Notify sends the payloads on Channel, all in one statement, outside of any other
	// transaction. The Publisher calls it from one goroutine.
	Notify func(ctx context.Context, payloads []string) error

	Interval time.Duration  // least time between two flushes; 0 means 5 ms
	Timeout  time.Duration  // of one flush, and of the last one on stop; 0 means 2 s
	MaxKeys  int            // keys waiting for a flush before they become All; 0 means 10,000
	Backoff  backoff.Policy // after a failed flush; the zero value means 50 ms to 2 s
	Log      *slog.Logger   // nil means slog.Default
}

func (c PublisherConfig) withDefaults() (PublisherConfig, error) {
	if err := validReplica(c.Replica); err != nil {
		return c, err
	}
	if c.Notify == nil {
		return c, errors.New("notify: no Notify function")
	}
	if c.Interval <= 0 {
		c.Interval = 5 * time.Millisecond
	}
	if c.Timeout <= 0 {
		c.Timeout = 2 * time.Second
	}
	if c.MaxKeys <= 0 {
		c.MaxKeys = 10_000
	}
	if c.Backoff == (backoff.Policy{}) {
		c.Backoff = backoff.Policy{Base: 50 * time.Millisecond, Max: 2 * time.Second}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}

func validReplica(id string) error {
	if id == "" || len(escape(id)) > maxReplica {
		return fmt.Errorf("notify: replica id must have 1 to %d bytes", maxReplica)
	}
	return nil
}

// Publisher tells the other processes which keys to look at again. Call Publish after
// the commit, never before or inside: a NOTIFY in a writing transaction takes a lock
// that ends group commit for the whole database.
type Publisher struct {
	cfg  PublisherConfig
	kick chan struct{} // capacity 1: there is something to send

	mu    sync.Mutex
	keys  map[string]struct{} // guarded by mu
	all   bool                // guarded by mu; then keys is empty
	spare map[string]struct{} // guarded by mu; empty, to be used again

	failures int // flushes that failed in a row; Run only

	flushes, payloads, failed, collapsed atomic.Uint64
}

// NewPublisher returns a Publisher that sends nothing until Run. It fails if the config
// lacks something required.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{
		cfg:   cfg,
		kick:  make(chan struct{}, 1),
		keys:  make(map[string]struct{}),
		spare: make(map[string]struct{}),
	}, nil
}

// Publish has the keys sent with the next flush. The key All wakes every waiter of every
// process; an empty key is ignored. It never blocks, and is safe for concurrent use.
// What is published while Run does not run waits, up to MaxKeys, until it does.
func (p *Publisher) Publish(keys ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all {
		return
	}
	idle := len(p.keys) == 0
	for _, key := range keys {
		if key == "" {
			continue
		}
		if key == All {
			p.collapse()
			break
		}
		p.keys[key] = struct{}{}
		if len(p.keys) > p.cfg.MaxKeys {
			p.collapsed.Add(1)
			p.collapse()
			break
		}
	}
	if idle && (p.all || len(p.keys) > 0) {
		select {
		case p.kick <- struct{}{}:
		default:
		}
	}
}

// collapse turns the waiting keys into All. The lock is held.
func (p *Publisher) collapse() {
	p.all = true
	clear(p.keys)
}

// take empties the set of waiting keys and returns it.
func (p *Publisher) take() (keys map[string]struct{}, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys, all = p.keys, p.all
	p.keys, p.spare, p.all = p.spare, nil, false
	return keys, all
}

// give returns the set that take lent.
func (p *Publisher) give(keys map[string]struct{}) {
	clear(keys)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = keys
}

// Run sends what is published until ctx is done, then what is left, once, and returns
// nil. That takes at most twice the flush timeout: one under way is not cut off, since
// pgx would close its connection.
func (p *Publisher) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
		case <-p.kick:
		}
		if ctx.Err() != nil { // whichever of the two select saw
			p.flush(ctx)
			return nil
		}
		start := time.Now()
		p.flush(ctx)
		pause := p.cfg.Interval - time.Since(start)
		if p.failures > 0 {
			pause = max(pause, p.cfg.Backoff.Delay(p.failures-1, nil))
		}
		sleep(ctx, pause)
	}
}

// sleep returns after d, or when ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// flush sends the waiting keys; if that fails they wait again.
func (p *Publisher) flush(ctx context.Context) {
	keys, all := p.take()
	defer p.give(keys)
	var payloads []string
	if all {
		payloads = packAll(p.cfg.Replica)
	} else {
		payloads = pack(p.cfg.Replica, keys)
	}
	if len(payloads) == 0 {
		return
	}
	if err := p.send(ctx, payloads); err != nil {
		p.keep(keys, all)
		p.failed.Add(1)
		if p.failures++; p.failures == 1 {
			p.cfg.Log.Warn("wakes cannot be published, others poll meanwhile", "err", err)
		}
		return
	}
	p.flushes.Add(1)
	p.payloads.Add(uint64(len(payloads)))
	if p.failures > 0 {
		p.cfg.Log.Info("wakes are published again", "failures", p.failures)
		p.failures = 0
	}
}

// send is not cancelled with ctx, so that a stop neither breaks the flush under way nor
// forbids the last one.
func (p *Publisher) send(ctx context.Context, payloads []string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), p.cfg.Timeout, ErrTimeout)
	defer cancel()
	return because(ctx, p.cfg.Notify(ctx, payloads))
}

// keep puts the keys of a failed flush back.
func (p *Publisher) keep(keys map[string]struct{}, all bool) {
	if all {
		p.Publish(All)
		return
	}
	for key := range keys {
		p.Publish(key)
	}
}

// because adds to an error the reason why its context ended, if that is why.
func because(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// PublisherStats are counters since the start.
type PublisherStats struct {
	Flushes   uint64 // statements sent
	Payloads  uint64 // notifications in them
	Failed    uint64 // flushes that failed and were kept
	Collapsed uint64 // times that too many keys became All
}

// Stats returns the counters. It is safe for concurrent use.
func (p *Publisher) Stats() PublisherStats {
	return PublisherStats{
		Flushes:   p.flushes.Load(),
		Payloads:  p.payloads.Load(),
		Failed:    p.failed.Load(),
		Collapsed: p.collapsed.Load(),
	}
}
