// Package budget bounds the memory that callers can make the process hold: bodies in arrival,
// what is read for an answer, and the answer until it has been written.
//
// Every byte is drawn under a Lease, which belongs to one request of one owner, and given back
// when the lease is released. Draws are of two kinds. Arrive is for bytes that a client is still
// sending; all leases together may hold half of the budget that way, and a lease that does may be
// evicted. Grow is for the work on a request. A lease that holds bytes for work never waits for
// more of them, so whatever the process waits for ends by itself or can be evicted: no deadlock.
//
// Small draws come out of a part that is kept for them, and cost two atomic additions. It knows
// nothing of what the bytes are.
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

// Small is the most that one lease draws from the part that is kept for small draws.
const Small = 64 << 10

// Least is the smallest budget that New takes: the parts of a smaller one would be useless.
const Least = 4 << 20

// Sizes of the parts, and times.
const (
	smallPart   = 8    // an eighth of the budget is kept for small draws
	smallOwners = 4    // of which one owner may hold a quarter
	knownOwners = 1024 // accounts that are kept while they hold nothing: the next request finds its own
	maxWaiting  = 64   // draws of one owner that wait; further ones are refused at once
	tick        = 50 * time.Millisecond

	// DefaultWait is how long a draw waits if nothing else is set.
	DefaultWait = 2 * time.Second
	// DefaultStall is how long a body may rest before others may have its room, if nothing else is set.
	DefaultStall = time.Second
)

// Config sets a Budget up. Zero values take their defaults.
type Config struct {
	Total int64         // bytes; at least Least
	Wait  time.Duration // longest wait of a draw
	Stall time.Duration // a body that has not grown for so long may be evicted for others
}

// Owner is who bytes are held for.
type Owner struct{ Tenant, Name string }

// Budget is safe for concurrent use. A nil Budget, and the nil Leases that it opens, bound nothing.
type Budget struct {
	cfg   Config
	small int64 // the part for small draws
	main  int64 // the rest

	smallUsed atomic.Int64

	mu       sync.Mutex
	owners   map[Owner]*account // guarded by mu; of those who have a lease that has drawn something
	used     int64              // guarded by mu; of main
	arriving int64              // guarded by mu; of used
	freeing  int64              // guarded by mu; held by leases that were evicted and have not let go yet
	arrivals map[*Lease]bool    // guarded by mu; leases whose body is not complete, and holds bytes
	waiting  []*draw            // guarded by mu; the oldest first
	looked   time.Time          // guarded by mu; when bodies in arrival were looked at last
	stats    Stats              // guarded by mu
}

// account is what one owner holds.
type account struct {
	owner    Owner
	small    atomic.Int64
	leases   int   // guarded by Budget.mu
	waiting  int   // guarded by Budget.mu; draws
	held     int64 // guarded by Budget.mu
	arriving int64 // guarded by Budget.mu; of held
}

// draw is one that waits.
type draw struct {
	l       *Lease
	n       int64
	arrival bool
	since   time.Time
	done    chan struct{} // closed when it has been decided
	err     error         // of the decision; read it after done
}

// Stats is what a Budget has counted.
type Stats struct {
	Total, Used, Arriving int64 // bytes: of the budget, held now, and of these in arrival
	Waiting               int   // draws that wait now
	Waits                 int64 // draws that had to wait
	Refused               map[string]int64
}

// Why draws are refused, as Stats names it.
const (
	RefusedFull    = "full"      // the budget stayed full
	RefusedOwner   = "owner"     // the owner held its share
	RefusedSize    = "too_large" // the draw is larger than what one owner may hold
	RefusedEvicted = "evicted"   // a body in arrival made room for others
)

// Reasons are all that draws are refused for.
var Reasons = []string{RefusedFull, RefusedOwner, RefusedSize, RefusedEvicted}

var (
	errFull    = &a2a.Error{Code: a2a.CodeUnavailable, Message: "the server is out of memory for requests; try again later"}
	errOwner   = &a2a.Error{Code: a2a.CodeRateLimited, Message: "your requests hold as much memory as they may; wait for their answers"}
	errEvicted = &a2a.Error{Code: a2a.CodeUnavailable, Message: "the request arrived too slowly while the server was out of memory; try again later"}
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
		owners: make(map[Owner]*account), arrivals: make(map[*Lease]bool), stats: Stats{Refused: make(map[string]int64)},
	}
}

// Share is the most that one owner may hold beside small draws, and so the largest draw.
func (b *Budget) Share() int64 { return b.main / 4 * 3 }

// Stats returns what has been counted, and what is held now.
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

// account returns the account of the lease, with a reference that Release gives back. b.mu is not held.
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

// drawSmall takes n bytes from the part for small draws, if there is room.
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

// drawMain takes n bytes from the rest. It waits for them, for no longer than cfg.Wait and ctx allow.
func (b *Budget) drawMain(ctx context.Context, l *Lease, n int64, arrival bool) error {
	d, err := b.ask(l, n, arrival)
	if d == nil || err != nil {
		return err
	}
	timer := time.NewTimer(b.cfg.Wait)
	defer timer.Stop()
	again := time.NewTicker(tick) // what stalls is seen only by looking
	defer again.Stop()
	for {
		select {
		case <-d.done:
			return d.err
		case <-again.C:
			b.look()
		case <-timer.C:
			return b.giveUp(d, nil)
		case <-ctx.Done():
			return b.giveUp(d, context.Cause(ctx))
		}
	}
}

// ask grants a draw at once and returns nil, or refuses it, or has it wait.
func (b *Budget) ask(l *Lease, n int64, arrival bool) (*draw, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case l.evicted:
		return nil, errEvicted
	case n > b.Share(), arrival && l.arriving+n > b.arrivalShare():
		b.stats.Refused[RefusedSize]++
		return nil, &a2a.Error{Code: a2a.CodeUnavailable, Message: fmt.Sprintf("the request needs %d bytes of memory, and one owner may hold %d (A2AD_MEMORY_BUDGET)", n, b.Share())}
	}
	d := &draw{l: l, n: n, arrival: arrival, since: time.Now(), done: make(chan struct{})}
	b.enqueue(d)
	b.pump()
	select {
	case <-d.done:
		return nil, d.err
	default:
	}
	// What holds bytes for work may be waited for: it must not wait for others.
	if !arrival && l.held > l.arriving || l.account.waiting > maxWaiting {
		b.remove(d)
		return nil, b.refusal(d)
	}
	b.stats.Waits++
	return d, nil
}

// giveUp ends the wait of a draw that was not decided yet.
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

// refusal counts and returns the error of a draw that found no room.
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

// Evicted reports whether err says that a body in arrival had to make room.
func Evicted(err error) bool { return errors.Is(err, errEvicted) }
