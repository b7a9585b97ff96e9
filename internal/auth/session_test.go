package auth

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// authenticator is an Authenticator whose answers the test chooses.
type authenticator func(r *http.Request) (Principal, error)

func (f authenticator) Authenticate(r *http.Request) (Principal, error) { return f(r) }
func (authenticator) Challenges() []string                              { return []string{"Knock"} }
func (authenticator) Schemes() []a2a.SecurityScheme                     { return nil }

func bearing(token string) *http.Request {
	return &http.Request{RemoteAddr: "192.0.2.1:4711", Header: http.Header{"Authorization": {token}, "Cookie": {"x"}}}
}

// The session ends at the moment of expiry, without a check.
func TestSessionEndsWhenItsCredentialExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSessions(authenticator(nil), time.Hour)
		e := s.Enter(bearing("a"), Principal{Method: MethodJWT, Until: time.Now().Add(time.Minute)})
		ctx, stop := e.Context(t.Context())
		defer stop()
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("ended too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		why := Ended(ctx)
		if why == nil || a2a.CodeOf(why) != a2a.CodeUnauthenticated || why.Error() == errUnauthenticated.Error() {
			t.Errorf("ended with %v", why)
		}
		h := make(http.Header)
		if why.SetHeader(h); h.Get("WWW-Authenticate") != "Knock" {
			t.Errorf("got headers %v, want the challenge", h)
		}
		if s.Open() != 0 {
			t.Error("the credential is still in use")
		}
		e.Leave()
	})
}

// Requests with one credential share a session. Sessions of other credentials do not end with it. A check that
// fails ends nothing, and is not repeated at once.
func TestRequestsOfOneCredentialShareItsChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards checks, refused and down
		checks := map[string]int{}
		var refused string
		down := false
		checked := func() (int, int) { mu.Lock(); defer mu.Unlock(); return checks["a"], checks["b"] }
		s := NewSessions(authenticator(func(r *http.Request) (Principal, error) {
			token := r.Header.Get("Authorization")
			mu.Lock()
			defer mu.Unlock()
			checks[token]++
			switch {
			case down:
				return Principal{}, errors.New("no database")
			case token == refused:
				return Principal{}, refuse("revoked key", "k")
			case r.Header.Get("Cookie") != "":
				t.Error("the session keeps more of the request than its credential")
			}
			return Principal{Tenant: "t", Owner: "o", Method: MethodAPIKey}, nil
		}), 15*time.Second)
		enter := func(token string) (*Session, context.Context) {
			e := s.Enter(bearing(token), Principal{Tenant: "t", Owner: "o", Method: MethodAPIKey})
			ctx, stop := e.Context(t.Context())
			t.Cleanup(stop)
			return e, ctx
		}
		first, one := enter("a")
		second, other := enter("a")
		third, foreign := enter("b")
		done := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		go func() { defer close(done); _ = s.Run(ctx) }()
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if a, b := checked(); a != 1 || b != 1 {
			t.Errorf("checks after one interval: %d and %d", a, b)
		}
		mu.Lock()
		down = true
		mu.Unlock()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if a, b := checked(); a+b != 3 || one.Err() != nil || foreign.Err() != nil {
			t.Errorf("checks while the database is down: %d and %d; %v, %v", a, b, one.Err(), foreign.Err())
		}
		mu.Lock()
		down, refused = false, "a"
		mu.Unlock()
		s.Recheck()
		synctest.Wait()
		if Ended(one) == nil || Ended(other) == nil || Ended(foreign) != nil {
			t.Errorf("ended: %v, %v, %v", Ended(one), Ended(other), Ended(foreign))
		}
		fresh, again := enter("a") // authenticated again, after the refusal
		first.Leave()
		second.Leave()
		if s.Open() != 2 || again.Err() != nil {
			t.Errorf("got %d credentials in use, want 2; %v", s.Open(), again.Err())
		}
		fresh.Leave()
		third.Leave()
		if s.Open() != 0 {
			t.Errorf("got %d credentials in use, want 0", s.Open())
		}
		stop()
		<-done
	})
}

// An anonymous caller has no session, and without Sessions no request ends early.
func TestAnonymousCallersHaveNoSession(t *testing.T) {
	t.Parallel()
	for _, e := range []*Session{(*Sessions)(nil).Enter(bearing("a"), Principal{}),
		NewSessions(authenticator(nil), 1).Enter(bearing(""), Principal{Method: MethodNone})} {
		ctx, stop := e.Context(t.Context())
		stop()
		e.Leave()
		if ctx.Err() != nil {
			t.Error(ctx.Err())
		}
	}
}
