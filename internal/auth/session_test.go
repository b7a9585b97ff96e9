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

// door answers as a test says.
type door func(r *http.Request) (Principal, error)

func (d door) Authenticate(r *http.Request) (Principal, error) { return d(r) }
func (door) Challenges() []string                              { return []string{"Knock"} }
func (door) Schemes() []a2a.SecurityScheme                     { return nil }

func bearing(token string) *http.Request {
	return &http.Request{RemoteAddr: "192.0.2.1:4711", Header: http.Header{"Authorization": {token}, "Cookie": {"x"}}}
}

// TestSessionEndsWhenItsCredentialExpires at that moment, though nobody looks.
func TestSessionEndsWhenItsCredentialExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSessions(door(nil), time.Hour)
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
			t.Errorf("the client is told %v", h)
		}
		if s.Open() != 0 {
			t.Error("the credential is still in use")
		}
		e.Leave()
	})
}

// TestOneLookPerCredential: requests of one credential share a session, those of others do not end with it, and what
// cannot be found out ends nothing and is not asked again at once.
func TestOneLookPerCredential(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // of these three
		looks := map[string]int{}
		var refused string
		down := false
		looked := func() (int, int) { mu.Lock(); defer mu.Unlock(); return looks["a"], looks["b"] }
		s := NewSessions(door(func(r *http.Request) (Principal, error) {
			token := r.Header.Get("Authorization")
			mu.Lock()
			defer mu.Unlock()
			looks[token]++
			switch {
			case down:
				return Principal{}, errors.New("no database")
			case token == refused:
				return Principal{}, refuse("revoked key", "k")
			case r.Header.Get("Cookie") != "":
				t.Error("more of the request is kept than signs it in")
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
		if a, b := looked(); a != 1 || b != 1 {
			t.Errorf("looks after one interval: %d and %d", a, b)
		}
		mu.Lock()
		down = true
		mu.Unlock()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if a, b := looked(); a+b != 3 || one.Err() != nil || foreign.Err() != nil {
			t.Errorf("looks while nothing can be found out: %d and %d; %v, %v", a, b, one.Err(), foreign.Err())
		}
		mu.Lock()
		down, refused = false, "a"
		mu.Unlock()
		s.Recheck()
		synctest.Wait()
		if Ended(one) == nil || Ended(other) == nil || Ended(foreign) != nil {
			t.Errorf("ended: %v, %v, %v", Ended(one), Ended(other), Ended(foreign))
		}
		fresh, again := enter("a") // signed in anew by somebody who knows better
		first.Leave()
		second.Leave()
		if s.Open() != 2 || again.Err() != nil {
			t.Errorf("%d credentials are in use; %v", s.Open(), again.Err())
		}
		fresh.Leave()
		third.Leave()
		if s.Open() != 0 {
			t.Errorf("%d credentials are in use", s.Open())
		}
		stop()
		<-done
	})
}

// TestSessionsOfNobody: whoever need not sign in has no session, and without Sessions nothing ends.
func TestSessionsOfNobody(t *testing.T) {
	t.Parallel()
	for _, e := range []*Session{(*Sessions)(nil).Enter(bearing("a"), Principal{}),
		NewSessions(door(nil), 1).Enter(bearing(""), Principal{Method: MethodNone})} {
		ctx, stop := e.Context(t.Context())
		stop()
		e.Leave()
		if ctx.Err() != nil {
			t.Error(ctx.Err())
		}
	}
}
