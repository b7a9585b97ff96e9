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

// ErrTimeout is the cause of a context that ended by a timeout of this package.
var ErrTimeout = errors.New("no answer in time")

// PublisherConfig says how a Publisher works. Replica and Notify are required.
type PublisherConfig struct {
	Replica string // the name of this process, the same as its Listener's

	// Notify sends the payloads on Channel, all in one statement, outside of any other transaction. The Publisher calls
	// it from one goroutine.
	Notify func(ctx context.Context, payloads []string) error

	Interval time.Duration  // minimum between two flushes; 0 means 5 ms
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

// Publisher sends wake-ups to the other processes. Call Publish after the commit, never before or inside: a NOTIFY in a
// writing transaction acquires a lock that ends group commit for the whole database.
type Publisher struct {
	cfg   PublisherConfig
	ready chan struct{} // capacity 1: there are keys to send

	mu    sync.Mutex
	keys  map[string]struct{} // guarded by mu
	all   bool                // guarded by mu; then keys is empty
	spare map[string]struct{} // guarded by mu; empty, for reuse

	failures int // flushes that failed in a row; Run only

	flushes, payloads, failed, collapsed atomic.Uint64
}

// NewPublisher returns a Publisher that sends nothing until Run. It fails if the config lacks a required field.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{
		cfg:   cfg,
		ready: make(chan struct{}, 1),
		keys:  make(map[string]struct{}),
		spare: make(map[string]struct{}),
	}, nil
}

// Publish makes the next flush send the keys. The key All wakes every waiter of every process; an empty key is
// ignored. It never blocks, and is safe for concurrent use. Keys that are published before Run, up to MaxKeys, wait
// for it.
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
		case p.ready <- struct{}{}:
		default:
		}
	}
}

// collapse replaces the waiting keys by All. The caller has locked mu.
func (p *Publisher) collapse() {
	p.all = true
	clear(p.keys)
}

// removeAll empties the set of waiting keys and returns it. The caller gives the set back with reuse.
func (p *Publisher) removeAll() (keys map[string]struct{}, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys, all = p.keys, p.all
	p.keys, p.spare, p.all = p.spare, nil, false
	return keys, all
}

// reuse keeps a set of removeAll for later keys.
func (p *Publisher) reuse(keys map[string]struct{}) {
	clear(keys)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = keys
}

// Run sends published keys until ctx is done. Then it sends the remaining ones, once, and returns nil. Stopping takes
// at most twice the flush timeout: a flush in progress is not interrupted, because pgx would close its connection.
func (p *Publisher) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
		case <-p.ready:
		}
		if ctx.Err() != nil { // also if select chose the other case
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
	keys, all := p.removeAll()
	defer p.reuse(keys)
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
			p.cfg.Log.Warn("wake-ups cannot be published, other processes poll instead", "err", err)
		}
		return
	}
	p.flushes.Add(1)
	p.payloads.Add(uint64(len(payloads)))
	if p.failures > 0 {
		p.cfg.Log.Info("wake-ups are published again", "failures", p.failures)
		p.failures = 0
	}
}

// send is not canceled with ctx, so that a stop neither interrupts a flush in progress nor prevents the last one.
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

// because adds the cause of the context's end to an error, if the context has ended.
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
	Failed    uint64 // flushes that failed and whose keys were kept
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
