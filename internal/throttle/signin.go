package throttle

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
)

// Bounds of the credentials of one kind that are checked although too many bad ones came from their address.
const (
	maxAddressChecks = 2 // at once, of one address
	maxChecks        = 8 // at once, of all addresses together
	checkWait        = 5 * time.Second
)

// kind is a kind of credentials. Each has checks of its own: another server may take seconds to check a code, and keys
// must not wait for it.
type kind int

const (
	kindKey  kind = iota // checked here
	kindCode             // checked by another server
	kindCount
)

// checks has one element for each credential of a kind that is being checked.
type checks [kindCount]chan struct{}

func newChecks(most int) (c checks) {
	for k := range c {
		c[k] = make(chan struct{}, most)
	}
	return c
}

// suspect is a network from which bad credentials came.
type suspect struct {
	bucket *rate.Limiter
	checks checks // and those that are next in the queue of all addresses
}

// SignIn authenticates a request with check, which returns the errors of an auth.Authenticator. The credential that
// counts is in the headers of the request.
//
// Every credential is checked, so an owner is not locked out by guesses from a shared address. The
// cost of guesses is bounded instead: an address over its limit has a few unknown credentials
// checked at a time, and the others queue. Its clients get an *Error that says when to come back,
// and do not learn whether the guess was wrong.
func (t *Throttle) SignIn(
	check func(*http.Request) (auth.Principal, error), r *http.Request,
) (auth.Principal, error) {
	return t.signIn(kindKey, check, r)
}

// SignInByCode is SignIn with a code that check asks another server about. Bad codes count as all bad credentials do.
// But no key waits while codes are checked.
func (t *Throttle) SignInByCode(
	check func(*http.Request) (auth.Principal, error), r *http.Request,
) (auth.Principal, error) {
	return t.signIn(kindCode, check, r)
}

func (t *Throttle) signIn(
	k kind, check func(*http.Request) (auth.Principal, error), r *http.Request,
) (auth.Principal, error) {
	limit := t.limits.SignIns
	key, given := t.credentialHash(r.Header)
	if limit.PerSecond <= 0 || !given {
		return check(r)
	}
	from := network(t.address(r))
	var limited *Error
	if s, ok := t.addresses.get(from); ok {
		if limited = s.overLimit(limit); limited != nil && !t.wasAccepted(key) {
			done, ok := enterCheck(r.Context(), s.checks[k], t.checks[k])
			if !ok {
				return auth.Principal{}, limited
			}
			defer done()
		}
	}
	p, err := check(r)
	var refused *auth.Error
	switch {
	case err == nil:
		t.accepted.getOrAdd(key, func() struct{} { return struct{}{} })
	case errors.As(err, &refused):
		t.accepted.remove(key) // the credential may have been revoked, or have expired
		t.addresses.getOrAdd(from, func() *suspect {
			return &suspect{limit.limiter(), newChecks(maxAddressChecks)}
		}).bucket.AllowN(time.Now(), 1)
		if limited != nil {
			return p, limited
		}
	}
	return p, err
}

// overLimit returns the error for an address that sent too many bad credentials, else nil.
func (s *suspect) overLimit(limit Rate) *Error {
	lack := 1 - s.bucket.TokensAt(time.Now())
	if lack <= 0 {
		return nil
	}
	wait := time.Duration(lack / limit.PerSecond * float64(time.Second))
	return &Error{"sign-ins", limit, wait,
		a2a.Errorf(a2a.CodeRateLimited, "too many bad credentials from this address")}
}

func (t *Throttle) wasAccepted(key uint64) bool {
	_, ok := t.accepted.get(key)
	return ok
}

// enterCheck waits until a credential of a suspicious address may be checked, and returns a
// function that ends the check. It gives up after checkWait. The credentials of one address queue
// among themselves: at most maxAddressChecks of them stand in the queue of all addresses.
func enterCheck(ctx context.Context, own, all chan struct{}) (done func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, checkWait)
	defer cancel()
	select {
	case own <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	select {
	case all <- struct{}{}:
		return func() { <-all; <-own }, true
	case <-ctx.Done():
		<-own
		return nil, false
	}
}

// credentialHash returns a hash of the credentials in a header, good within this process, and
// whether there are any.
func (t *Throttle) credentialHash(h http.Header) (key uint64, given bool) {
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
