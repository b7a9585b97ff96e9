package rpc

import (
	"container/list"
	"context"
	"errors"
	"hash/maphash"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
)

// This file holds back those who ask too often: owners, whatever they ask for over whatever
// binding, and addresses from which bad credentials come.

// Rate is how often something may be done: so many times a second in the long run, and so many
// at once. The zero Rate does not limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Rates are the limits of one owner, and SignIns that of one address. Each replica counts for
// itself.
type Rates struct {
	Reads      Rate
	Sends      Rate // messages and cancels
	Streams    Rate // that are opened
	PushWrites Rate // webhooks that are set or deleted
	SignIns    Rate // that fail
}

// remembered is of how many owners, addresses and credentials the last ones are kept. Who is
// forgotten starts anew.
const remembered = 10_000

// throttle counts what owners and addresses do.
type throttle struct {
	rates   Rates
	trusted []netip.Prefix // proxies whose X-Forwarded-For is believed
	owners  *recent[ownerKey, [bucketCount]*rate.Limiter]
	from    *recent[netip.Prefix, *suspect]
	judges  chan struct{} // holds one for each suspicious credential that is looked at
	// good are credentials that were accepted. They do not wait among those that are guessed at
	// their address, which many may share.
	good *recent[uint64, struct{}]
	seed maphash.Seed
}

type ownerKey struct{ tenant, owner string }

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

func newThrottle(rates Rates, trusted []netip.Prefix) *throttle {
	return &throttle{
		rates: rates, trusted: trusted, seed: maphash.MakeSeed(),
		owners: newRecent[ownerKey, [bucketCount]*rate.Limiter](remembered),
		from:   newRecent[netip.Prefix, *suspect](remembered),
		judges: make(chan struct{}, suspectsAtOnce),
		good:   newRecent[uint64, struct{}](remembered),
	}
}

func (t *throttle) rate(b bucket) Rate {
	return [bucketCount]Rate{t.rates.Reads, t.rates.Sends, t.rates.Streams, t.rates.PushWrites}[b]
}

// bucketsOf says what an operation is counted as.
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

// admit counts an operation of an owner, or refuses it with a *throttled and does not count it.
// Who need not sign in is nobody in particular, and is not limited.
func (t *throttle) admit(p auth.Principal, op a2a.Op) error {
	if p.Method == auth.MethodNone {
		return nil
	}
	limiters := t.owners.get(ownerKey{p.Tenant, p.Owner}, func() (all [bucketCount]*rate.Limiter) {
		for b := range all {
			all[b] = t.rate(bucket(b)).limiter()
		}
		return all
	})
	now := time.Now()
	var taken []*rate.Reservation
	for _, b := range bucketsOf(op) {
		if limiters[b] == nil {
			continue
		}
		r := limiters[b].ReserveN(now, 1)
		taken = append(taken, r)
		if wait := r.DelayFrom(now); !r.OK() || wait > 0 {
			for _, r := range taken {
				r.CancelAt(now)
			}
			return &throttled{bucketNames[b], t.rate(b), wait, a2a.Errorf(a2a.CodeRateLimited, "too many %s", strings.ReplaceAll(bucketNames[b], "-", " "))}
		}
	}
	return nil
}

// limiter returns a full bucket, or nil for a Rate that does not limit.
func (r Rate) limiter() *rate.Limiter {
	if r.PerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(r.PerSecond), max(r.Burst, 1))
}

// authenticate signs a request in. Every credential is judged, so that nobody is locked out by those
// who guess at the same address. What guesses cost is bounded: from an address of too many bad
// credentials, a few that were not good before are looked at at once, and the others wait for
// their turn. Such an address is told when to come back and not what was wrong.
func (t *throttle) authenticate(a auth.Authenticator, r *http.Request) (auth.Principal, error) {
	limit := t.rates.SignIns
	key, given := t.credential(r.Header)
	if limit.PerSecond <= 0 || !given {
		return a.Authenticate(r)
	}
	from := network(t.address(r))
	var held *throttled
	if failed, ok := t.from.peek(from); ok {
		if lack := 1 - failed.bucket.TokensAt(time.Now()); lack > 0 {
			wait := time.Duration(lack / limit.PerSecond * float64(time.Second))
			held = &throttled{"sign-ins", limit, wait, a2a.Errorf(a2a.CodeRateLimited, "too many bad credentials from this address")}
			if !t.good.has(key) {
				leave, ok := t.turn(r.Context(), failed)
				if !ok {
					return auth.Principal{}, held
				}
				defer leave()
			}
		}
	}
	p, err := a.Authenticate(r)
	var refused *auth.Error
	switch {
	case err == nil:
		t.good.get(key, func() (none struct{}) { return none })
	case errors.As(err, &refused):
		t.good.drop(key) // it may have been revoked, or have ended
		t.from.get(from, func() *suspect {
			return &suspect{limit.limiter(), make(chan struct{}, SuspectsPerAddress)}
		}).bucket.AllowN(time.Now(), 1)
		if held != nil {
			return p, held
		}
	}
	return p, err
}

// Bounds of credentials that are judged though too many bad ones came from their address.
const (
	SuspectsPerAddress = 2 // at once
	suspectsAtOnce     = 8 // of all addresses together
	suspectWait        = 5 * time.Second
)

// suspect is an address from which bad credentials came.
type suspect struct {
	bucket *rate.Limiter
	judges chan struct{} // holds one for each credential that is looked at, or is the next one
}

// turn waits until a credential from an address may be looked at. Those of one address wait in the order
// of their coming, and never keep those of another waiting for more than SuspectsPerAddress of them.
func (t *throttle) turn(ctx context.Context, from *suspect) (leave func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, suspectWait)
	defer cancel()
	for i, judges := range []chan struct{}{from.judges, t.judges} {
		select {
		case judges <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-from.judges
			}
			return nil, false
		}
	}
	return func() { <-t.judges; <-from.judges }, true
}

// credential returns a number for what a request signs in with. It is good within this process.
func (t *throttle) credential(h http.Header) (key uint64, given bool) {
	var sum maphash.Hash
	sum.SetSeed(t.seed)
	for _, name := range [...]string{"Authorization", "X-Api-Key"} {
		for _, v := range h[name] {
			given = true
			sum.WriteString(name)
			sum.WriteString(v)
			sum.WriteByte(0)
		}
	}
	return sum.Sum64(), given
}

// address returns who has sent a request: who is connected, or, if that is a trusted proxy,
// the last one of X-Forwarded-For that is none. It is invalid if that cannot be told.
func (t *throttle) address(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for i := len(hops) - 1; i >= 0 && t.trusts(addr); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break // what lies behind what nobody can read proves nothing
		}
		addr = hop.Unmap()
	}
	return addr
}

// client returns address for people, or who is connected if that cannot be told.
func (t *throttle) client(r *http.Request) string {
	if a := t.address(r); a.IsValid() {
		return a.String()
	}
	return r.RemoteAddr
}

func (t *throttle) trusts(a netip.Addr) bool {
	for _, p := range t.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// network returns what is counted as one sender: an address of IPv4, and of IPv6 what one
// customer gets at least.
func network(a netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// throttled is an error that says when to come back.
type throttled struct {
	bucket string
	rate   Rate
	wait   time.Duration
	err    *a2a.Error
}

func (t *throttled) Error() string { return t.err.Error() }

// Unwrap returns what the protocol shows.
func (t *throttled) Unwrap() error { return t.err }

// SetHeader says what the limit is, and when there is room. Answers that are not refused do
// not say what is left: what an owner has asked for elsewhere is nothing to tell.
func (t *throttled) SetHeader(h http.Header) {
	wait := strconv.Itoa(seconds(t.wait.Seconds()))
	h.Set("Retry-After", wait)
	h.Set("RateLimit-Policy", `"`+t.bucket+`";q=`+strconv.Itoa(max(t.rate.Burst, 1))+`;w=`+strconv.Itoa(seconds(float64(max(t.rate.Burst, 1))/t.rate.PerSecond)))
	h.Set("RateLimit", `"`+t.bucket+`";r=0;t=`+wait)
}

// seconds rounds up to whole seconds, at least one.
func seconds(s float64) int { return int(max(1, math.Ceil(min(s, 1<<31)))) }

// recent keeps the values of the keys that were asked for last. It is safe for concurrent use.
type recent[K comparable, V any] struct {
	size int

	mu    sync.Mutex
	items map[K]*list.Element // guarded by mu
	order *list.List          // guarded by mu; of entry, the newest first
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newRecent[K comparable, V any](size int) *recent[K, V] {
	return &recent[K, V]{size: size, items: make(map[K]*list.Element), order: list.New()}
}

// get returns the value of a key, which is made if there is none.
func (r *recent[K, V]) get(key K, fresh func() V) V {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.items[key]; ok {
		r.order.MoveToFront(e)
		return e.Value.(*entry[K, V]).value
	}
	if len(r.items) >= r.size {
		oldest := r.order.Back()
		delete(r.items, oldest.Value.(*entry[K, V]).key)
		r.order.Remove(oldest)
	}
	v := fresh()
	r.items[key] = r.order.PushFront(&entry[K, V]{key, v})
	return v
}

// peek returns the value of a key if there is one.
func (r *recent[K, V]) peek(key K) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.items[key]
	if !ok {
		return v, false
	}
	return e.Value.(*entry[K, V]).value, true
}

// drop forgets a key.
func (r *recent[K, V]) drop(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.items[key]; ok {
		delete(r.items, key)
		r.order.Remove(e)
	}
}

func (r *recent[K, V]) has(key K) bool {
	_, ok := r.peek(key)
	return ok
}
