// Package throttle limits how often an owner may use the server, and how many bad credentials
// the server checks from one address.
//
// Operations count per owner, whatever the protocol binding. Failed sign-ins count per client
// address. The counts live in the memory of this process, so each replica counts for itself. The
// package does not know the bindings: it returns errors, and a binding writes them.
package throttle

import (
	"hash/maphash"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
)

// Rate is how often something may be done: PerSecond times a second on average, and Burst times
// at once. The zero Rate does not limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// limiter returns a full token bucket, or nil for a Rate that does not limit.
func (r Rate) limiter() *rate.Limiter {
	if r.PerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(r.PerSecond), max(r.Burst, 1))
}

// Limits holds the rates of one owner and, in SignIns, that of one client address.
type Limits struct {
	Reads      Rate
	Sends      Rate // messages and cancels
	Streams    Rate // opened streams
	PushWrites Rate // webhooks set or deleted
	SignIns    Rate // failed sign-ins
}

// remembered is how many owners, addresses and accepted credentials are kept. The least recently
// used one is dropped first and starts with a full bucket when it comes back.
const remembered = 10_000

// Throttle counts what owners and addresses do. It is safe for concurrent use. Use New.
type Throttle struct {
	limits    Limits
	trusted   []netip.Prefix
	owners    *recent[ownerKey, [bucketCount]*rate.Limiter]
	addresses *recent[netip.Prefix, *suspect] // networks that sent bad credentials
	checks    checks                          // of suspicious credentials
	// accepted holds hashes of credentials that were good before. They need not queue behind the
	// guesses that come from the same address, which many clients may share.
	accepted *recent[uint64, struct{}]
	seed     maphash.Seed
}

type ownerKey struct{ tenant, owner string }

// New returns a Throttle. It believes the X-Forwarded-For header of the trusted proxies only.
func New(limits Limits, trusted []netip.Prefix) *Throttle {
	return &Throttle{
		limits: limits, trusted: trusted, seed: maphash.MakeSeed(),
		owners:    newRecent[ownerKey, [bucketCount]*rate.Limiter](remembered),
		addresses: newRecent[netip.Prefix, *suspect](remembered),
		checks:    newChecks(maxChecks),
		accepted:  newRecent[uint64, struct{}](remembered),
	}
}

// bucket is one of the limits of an owner.
type bucket int

const (
	bucketReads bucket = iota
	bucketSends
	bucketStreams
	bucketPushWrites
	bucketCount
)

var bucketNames = [bucketCount]string{"reads", "sends", "streams", "push-writes"}

func (t *Throttle) rate(b bucket) Rate {
	return [bucketCount]Rate{t.limits.Reads, t.limits.Sends, t.limits.Streams, t.limits.PushWrites}[b]
}

// bucketsOf returns the buckets that an operation draws from.
func bucketsOf(op a2a.Op) []bucket {
	switch op := op.(type) {
	case *a2a.SendMessage:
		all := []bucket{bucketSends}
		if op.Stream {
			all = append(all, bucketStreams)
		}
		if op.Push != nil {
			all = append(all, bucketPushWrites)
		}
		return all
	case *a2a.CancelTask:
		return []bucket{bucketSends}
	case *a2a.Subscribe:
		return []bucket{bucketStreams}
	case *a2a.SetPushConfig, *a2a.DeletePushConfig:
		return []bucket{bucketPushWrites}
	}
	return []bucket{bucketReads}
}

// Admit counts an operation of an owner. If a limit is reached it returns an *Error and counts
// nothing. Without authentication all callers share one owner, so Admit never limits them.
func (t *Throttle) Admit(p auth.Principal, op a2a.Op) error {
	if p.Method == auth.MethodNone {
		return nil
	}
	limiters := t.owners.getOrAdd(ownerKey{p.Tenant, p.Owner}, func() (all [bucketCount]*rate.Limiter) {
		for b := range all {
			all[b] = t.rate(bucket(b)).limiter()
		}
		return all
	})
	now := time.Now()
	var reserved []*rate.Reservation
	for _, b := range bucketsOf(op) {
		if limiters[b] == nil {
			continue
		}
		r := limiters[b].ReserveN(now, 1)
		reserved = append(reserved, r)
		if wait := r.DelayFrom(now); !r.OK() || wait > 0 {
			for _, r := range reserved {
				r.CancelAt(now)
			}
			return tooMany(b, t.rate(b), wait)
		}
	}
	return nil
}

func tooMany(b bucket, r Rate, wait time.Duration) *Error {
	name := bucketNames[b]
	return &Error{name, r, wait, a2a.Errorf(a2a.CodeRateLimited, "too many %s", strings.ReplaceAll(name, "-", " "))}
}
