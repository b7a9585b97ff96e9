package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// checkTimeout limits the check of one credential in use.
const checkTimeout = 5 * time.Second

// errCredentialEnded is for clients whose credential stopped being good during the request.
var errCredentialEnded = &a2a.Error{Code: a2a.CodeUnauthenticated,
	Message: "the credentials have expired or were revoked"}

// Sessions ends requests whose credential is no longer good: streams, blocking sends, long polls.
// All requests of one credential share a session, so ten thousand streams of one key cost one
// check. Use NewSessions. A nil *Sessions ends nothing.
type Sessions struct {
	authenticator Authenticator
	every         time.Duration
	recheck       chan struct{} // capacity 1: check API keys now

	mu   sync.Mutex
	open map[credential]*Session // guarded by mu
}

// credential is all that an Authenticator reads of a request.
type credential struct {
	authorization, apiKey, forwarded string
	host                             string            // of the peer
	cert                             *x509.Certificate // that the client presented on this connection
}

// Session is the use of one credential by requests in flight. A nil *Session never ends.
type Session struct {
	all       *Sessions
	key       credential
	request   *http.Request // with nothing except what authenticates it
	principal Principal
	expires   *time.Timer // nil: the credential does not expire

	// ctx is the life of this value: it ends with the credential, with an *Error as its cause.
	ctx context.Context //nolint:containedctx // requests run under it
	end context.CancelCauseFunc

	users int // guarded by all.mu
}

// NewSessions returns Sessions. While Run runs, a checks each credential in use at least once every
// interval.
func NewSessions(a Authenticator, every time.Duration) *Sessions {
	return &Sessions{authenticator: a, every: every, recheck: make(chan struct{}, 1),
		open: make(map[credential]*Session)}
}

// Enter adds a request that was just signed in as p. The caller calls Leave at its end.
func (s *Sessions) Enter(r *http.Request, p Principal) *Session {
	if s == nil || p.Method == MethodNone {
		return nil
	}
	key := credentialOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.open[key]
	if e == nil {
		e = &Session{all: s, key: key, request: signedPart(r), principal: p}
		e.ctx, e.end = context.WithCancelCause(context.Background())
		if !p.Until.IsZero() {
			e.expires = time.AfterFunc(time.Until(p.Until), func() {
				s.close(e, refuse("the credential expired while it was in use", p.KeyID))
			})
		}
		s.open[key] = e
	}
	e.users++
	return e
}

// Leave removes a request from the session.
func (e *Session) Leave() {
	if e == nil {
		return
	}
	e.all.mu.Lock()
	defer e.all.mu.Unlock()
	if e.users--; e.users == 0 {
		e.forget()
		e.end(nil)
	}
}

// forget removes a session from the list, so the next request with the credential starts another.
// The caller holds all.mu.
func (e *Session) forget() {
	if e.all.open[e.key] == e {
		delete(e.all.open, e.key)
	}
	if e.expires != nil {
		e.expires.Stop()
	}
}

// Context returns a context that ends with ctx, with stop, and with the credential. Ended tells the
// last case.
func (e *Session) Context(ctx context.Context) (_ context.Context, stop func()) {
	if e == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	undo := context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })
	return ctx, func() {
		undo()
		cancel(nil)
	}
}

// Ended returns why the credential is no longer good if ctx has ended for that reason, else nil.
func Ended(ctx context.Context) *Error {
	var refused *Error
	if ctx.Err() == nil || !errors.As(context.Cause(ctx), &refused) {
		return nil
	}
	return refused
}

// close ends a session. Its requests learn that they may sign in again.
func (s *Sessions) close(e *Session, why *Error) {
	s.mu.Lock()
	e.forget()
	s.mu.Unlock()
	e.end(&Error{challenges: s.authenticator.Challenges(), reason: why.reason, keyID: why.keyID,
		shown: errCredentialEnded})
}

// Open returns how many credentials are in use.
func (s *Sessions) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Recheck makes Run check API keys now. Call it when a key was revoked.
func (s *Sessions) Recheck() {
	if s == nil {
		return
	}
	select {
	case s.recheck <- struct{}{}:
	default:
	}
}

// Run checks the credentials in use periodically until ctx is done.
func (s *Sessions) Run(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.check(ctx, MethodAPIKey, MethodJWT, MethodCert)
		case <-s.recheck:
			s.check(ctx, MethodAPIKey)
		case <-ctx.Done():
			return nil
		}
	}
}

// check checks the credentials of some methods again. If a check is not possible nothing changes,
// and the rest of that method waits for the next round: an unreachable database is not asked once
// for each credential.
func (s *Sessions) check(ctx context.Context, methods ...Method) {
	s.mu.Lock()
	open := make([]*Session, 0, len(s.open))
	for _, e := range s.open {
		open = append(open, e)
	}
	s.mu.Unlock()
	for _, e := range open {
		if ctx.Err() != nil || !slices.Contains(methods, e.principal.Method) || e.ctx.Err() != nil {
			continue
		}
		one, cancel := context.WithTimeout(ctx, checkTimeout)
		p, err := s.authenticator.Authenticate(e.request.WithContext(one))
		cancel()
		var refused *Error
		switch {
		case errors.As(err, &refused):
			s.close(e, refused)
		case err != nil:
			methods = slices.DeleteFunc(slices.Clone(methods), func(m Method) bool { return m == e.principal.Method })
		case !p.permitsAll(e.principal):
			s.close(e, refuse("the credential no longer has the same permissions", p.KeyID))
		}
	}
}

// permitsAll reports whether p is the same owner as before and may do at least as much.
func (p Principal) permitsAll(before Principal) bool {
	if p.Tenant != before.Tenant || p.Owner != before.Owner {
		return false
	}
	for _, scope := range before.Scopes {
		if !p.Has(scope) {
			return false
		}
	}
	if before.Agents == nil {
		return p.Agents == nil
	}
	return !slices.ContainsFunc(before.Agents, func(agent string) bool { return !p.MayUse(agent) })
}

func credentialOf(r *http.Request) credential {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	c := credential{
		authorization: strings.Join(r.Header["Authorization"], "\n"), apiKey: strings.Join(r.Header["X-Api-Key"], "\n"),
		forwarded: strings.Join(r.Header[forwardedHeader], "\n"), host: host,
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		c.cert = r.TLS.VerifiedChains[0][0]
	}
	return c
}

// signedPart returns the parts of a request that authenticate it.
func signedPart(r *http.Request) *http.Request {
	part := &http.Request{RemoteAddr: r.RemoteAddr, TLS: r.TLS, Header: make(http.Header, 1)}
	for _, name := range []string{"Authorization", "X-Api-Key", forwardedHeader} {
		if lines := r.Header[name]; lines != nil {
			part.Header[name] = lines
		}
	}
	return part
}
