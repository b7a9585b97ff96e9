// Package budget bounds the memory that callers can make the process hold: arriving bodies, what is
// read for an answer, and the answer until it has been written.
//
// All memory is drawn under a Lease, which belongs to one request of one owner, and is given back
// when the lease is released. There are two kinds of draws. Arrive is for bytes that a client is
// still sending: all leases together may hold half of the budget that way, and such a lease may be
// evicted. Grow is for the work on a request. A lease that holds memory for work never waits for
// more. So everything the process waits for either ends by itself or can be evicted, and there is
// no deadlock.
//
// Small draws come from a reserve, and cost two atomic additions. The package does not know what
// the bytes are.
package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Small is the most that one lease draws from the reserve for small draws.
const Small = 64 << 10

// Least is the smallest budget that New accepts. The parts of a smaller one would be useless.
const Least = 4 << 20

// Sizes of the parts, and times.
const (
	smallPart   = 8    // an eighth of the budget is the reserve for small draws
	smallOwners = 4    // one owner may hold a quarter of the reserve
	knownOwners = 1024 // accounts kept while they hold nothing, for the owner's next request
	maxWaiting  = 64   // waiting draws of one owner; further ones are refused at once
	tick        = 50 * time.Millisecond

	// DefaultWait is how long a draw waits by default.
	DefaultWait = 2 * time.Second
	// DefaultStall is the default of Config.Stall.
	DefaultStall = time.Second
)

// Config configures a Budget. Zero values take their defaults.
type Config struct {
	Total int64         // bytes; at least Least
	Wait  time.Duration // longest wait of a draw
	Stall time.Duration // a body that received nothing for this long may be evicted
}

// Owner is the owner of the requests that hold memory.
type Owner struct{ Tenant, Name string }

// Budget is safe for concurrent use. A nil Budget and the nil Leases that it opens have no limits.
type Budget struct {
	cfg   Config
	small int64 // the reserve for small draws
	main  int64 // the rest

	smallUsed atomic.Int64

	mu       sync.Mutex
	owners   map[Owner]*account // guarded by mu; owners with a lease that has drawn memory
	used     int64              // guarded by mu; of main
	arriving int64              // guarded by mu; part of used
	freeing  int64              // guarded by mu; held by evicted leases that have not given it back yet
	arrivals map[*Lease]bool    // guarded by mu; leases that hold memory for an incomplete body
	waiting  []*draw            // guarded by mu; the oldest first
	sweptAt  time.Time          // guarded by mu; when stalled bodies were last searched for
	stats    Stats              // guarded by mu
}

// account is what one owner holds.
type account struct {
	owner    Owner
	small    atomic.Int64
	leases   int   // guarded by Budget.mu
	waiting  int   // guarded by Budget.mu; draws
	held     int64 // guarded by Budget.mu
	arriving int64 // guarded by Budget.mu; part of held
}

// draw is a waiting draw.
type draw struct {
	l       *Lease
	n       int64
	arrival bool
	since   time.Time
	done    chan struct{} // closed when the draw was decided
	err     error         // the decision; read it after done
}

// Stats are the counters of a Budget.
type Stats struct {
	Total, Used, Arriving int64 // bytes: total, held now, and held for arriving bodies
	Waiting               int   // draws waiting now
	Waits                 int64 // draws that had to wait
	Refused               map[string]int64
}

// Reasons for refusing draws, as keys of Stats.Refused.
const (
	RefusedFull    = "full"      // the budget stayed full
	RefusedOwner   = "owner"     // the owner held its share
	RefusedSize    = "too_large" // the draw exceeds what one owner may hold
	RefusedEvicted = "evicted"   // an arriving body was evicted for others
)

// Reasons lists all reasons for refusing draws.
var Reasons = []string{RefusedFull, RefusedOwner, RefusedSize, RefusedEvicted}

var (
	errFull = &a2a.Error{Code: a2a.CodeUnavailable,
		Message: "the server is out of memory for requests; try again later"}
	errOwner = &a2a.Error{Code: a2a.CodeRateLimited,
		Message: "your requests hold all the memory they may; wait for their answers"}
	errEvicted = &a2a.Error{Code: a2a.CodeUnavailable,
		Message: "the request arrived too slowly while the server was out of memory; try again later"}
)

// New returns a budget of cfg.Total bytes, or of Least if that is less.
func New(cfg Config) *Budget {
	cfg.Total = max(cfg.Total, Least)
	if cfg.Wait <= 0 {
		cfg.Wait = DefaultWait
	}
	if cfg.Stall <= 0 {
		cfg.Stall = DefaultStall
	}
	small := cfg.Total / smallPart
	return &Budget{
		cfg: cfg, small: small, main: cfg.Total - small,
		owners: make(map[Owner]*account), arrivals: make(map[*Lease]bool),
		stats: Stats{Refused: make(map[string]int64)},
	}
}

// Share is the most that one owner may hold in addition to small draws, and so the largest possible
// draw.
func (b *Budget) Share() int64 { return b.main / 4 * 3 }

// Stats returns the counters and what is held now.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Total, s.Used, s.Arriving, s.Waiting = b.cfg.Total, b.used+b.smallUsed.Load(), b.arriving, len(b.waiting)
	s.Refused = make(map[string]int64, len(Reasons))
	for _, reason := range Reasons {
		s.Refused[reason] = b.stats.Refused[reason]
	}
	return s
}

// Open returns a lease that holds nothing yet. It must be released.
func (b *Budget) Open(owner Owner) *Lease {
	if b == nil {
		return nil
	}
	return &Lease{b: b, owner: owner}
}

// account returns the account of an owner, with a reference that Release gives back. The caller
// does not hold b.mu.
func (b *Budget) account(owner Owner) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.owners[owner]
	if a == nil {
		a = &account{owner: owner}
		b.owners[owner] = a
	}
	a.leases++
	return a
}

// drawSmall draws n bytes from the reserve, if there is room.
func (b *Budget) drawSmall(a *account, n int64) bool {
	if b.smallUsed.Add(n) > b.small {
		b.smallUsed.Add(-n)
		return false
	}
	if a.small.Add(n) > b.small/smallOwners {
		a.small.Add(-n)
		b.smallUsed.Add(-n)
		return false
	}
	return true
}

// drawMain draws n bytes from the rest. It waits for at most cfg.Wait, and until ctx ends.
func (b *Budget) drawMain(ctx context.Context, l *Lease, n int64, arrival bool) error {
	d, err := b.ask(l, n, arrival)
	if d == nil || err != nil {
		return err
	}
	if l.waits != nil {
		l.waits()
	}
	timer := time.NewTimer(b.cfg.Wait)
	defer timer.Stop()
	again := time.NewTicker(tick) // stalled bodies are only found by searching
	defer again.Stop()
	for {
		select {
		case <-d.done:
			return d.err
		case <-again.C:
			b.sweep()
		case <-timer.C:
			return b.giveUp(d, nil)
		case <-ctx.Done():
			return b.giveUp(d, context.Cause(ctx))
		}
	}
}

// ask grants a draw at once and returns nil, or refuses it, or lets it wait.
func (b *Budget) ask(l *Lease, n int64, arrival bool) (*draw, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case l.evicted:
		return nil, errEvicted
	case n > b.Share(), arrival && l.arriving+n > b.arrivalShare():
		b.stats.Refused[RefusedSize]++
		return nil, &a2a.Error{Code: a2a.CodeUnavailable,
			Message: fmt.Sprintf("the request needs %d bytes of memory, and one owner may hold %d (A2AD_MEMORY_BUDGET)",
				n, b.Share())}
	}
	d := &draw{l: l, n: n, arrival: arrival, since: time.Now(), done: make(chan struct{})}
	b.enqueue(d)
	b.pump()
	select {
	case <-d.done:
		return nil, d.err
	default:
	}
	// Others may wait for a lease that holds memory for work, so it must not wait itself.
	if !arrival && l.held > l.arriving || l.account.waiting > maxWaiting {
		b.remove(d)
		return nil, b.refusal(d)
	}
	b.stats.Waits++
	return d, nil
}

// giveUp ends the wait of an undecided draw.
func (b *Budget) giveUp(d *draw, cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-d.done:
		if d.err != nil || cause == nil {
			return d.err
		}
		b.put(d.l, d.n, d.arrival)
		b.pump()
		return cause
	default:
	}
	b.remove(d)
	if cause != nil {
		return cause
	}
	return b.refusal(d)
}

// refusal counts a refused draw and returns its error.
func (b *Budget) refusal(d *draw) error {
	if b.overShare(d) || d.l.account.waiting >= maxWaiting {
		b.stats.Refused[RefusedOwner]++
		return errOwner
	}
	b.stats.Refused[RefusedFull]++
	return errFull
}

func (b *Budget) enqueue(d *draw) {
	b.waiting = append(b.waiting, d)
	d.l.wait = d
	d.l.account.waiting++
}

func (b *Budget) remove(d *draw) {
	if i := slices.Index(b.waiting, d); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		d.l.wait = nil
		d.l.account.waiting--
	}
}

// Evicted reports whether err says that an arriving body was evicted.
func Evicted(err error) bool { return errors.Is(err, errEvicted) }
