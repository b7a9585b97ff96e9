package throttle_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/throttle"
)

// slow is a rate that returns a token once in 100 seconds.
func slow(burst int) throttle.Rate { return throttle.Rate{PerSecond: 0.01, Burst: burst} }

// keys is an authenticator that accepts the keys it maps to true.
type keys map[string]bool

func (k keys) Authenticate(r *http.Request) (auth.Principal, error) {
	key := r.Header.Get("X-Api-Key")
	if key == "" {
		return auth.Principal{}, auth.ErrNoCredential
	}
	if !k[key] {
		return auth.Principal{}, &auth.Error{}
	}
	return auth.Principal{Tenant: "t", Owner: key, Method: auth.MethodAPIKey}, nil
}

func (keys) Challenges() []string { return nil }

func (keys) Schemes() []a2a.SecurityScheme { return nil }

// request returns a request with a key, forwarded by a proxy at 127.0.0.1.
func request(t *testing.T, key, forwarded string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr = "127.0.0.1:4711"
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	if forwarded != "" {
		r.Header.Set("X-Forwarded-For", forwarded)
	}
	return r
}

// outcome is "ok", "refused" (bad credentials), "limited" or "none" (no credentials).
func outcome(t *testing.T, err error) string {
	t.Helper()
	var limited *throttle.Error
	var refused *auth.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &limited):
		h := http.Header{}
		limited.SetHeader(h)
		if h.Get("Retry-After") == "" || !strings.HasPrefix(h.Get("RateLimit"), `"sign-ins";r=0;t=`) ||
			a2a.CodeOf(err) != a2a.CodeRateLimited {
			t.Errorf("the refusal has no Retry-After: %v, %v", err, h)
		}
		return "limited"
	case errors.As(err, &refused):
		return "refused"
	case errors.Is(err, auth.ErrNoCredential):
		return "none"
	}
	return err.Error()
}

func wantSignIns(t *testing.T, th *throttle.Throttle, a auth.Authenticator, what, key, forwarded string,
	want ...string) {
	t.Helper()
	var got []string
	for range want {
		_, err := th.SignIn(a.Authenticate, request(t, key, forwarded))
		got = append(got, outcome(t, err))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestSignInLimitsGuessesPerAddress(t *testing.T) {
	t.Parallel()
	th := throttle.New(throttle.Limits{SignIns: slow(3)},
		[]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")})
	door := keys{"good": true, "other": true}
	const a, b = "192.0.2.1", "192.0.2.2"
	for _, tt := range []struct {
		what, key, forwarded string
		want                 []string
	}{
		{"a good key", "good", a, []string{"ok"}},
		{"no key is no guess", "", a, []string{"none", "none", "none", "none"}},
		{"guesses", "bad", a, []string{"refused", "refused", "refused", "limited", "limited"}},
		{"another guess", "worse", a, []string{"limited"}},
		{"a key accepted before", "good", a, []string{"ok", "ok"}},
		{"a good key new to this address", "other", a, []string{"ok"}},
		{"guesses after a good key", "bad", a, []string{"limited"}},
		{"no key from a limited address", "", a, []string{"none"}},
		{"a guess from another address", "bad", b, []string{"refused"}},
		{"a good key from another address", "other", b, []string{"ok"}},
		{"the limited address through two proxies", "bad", a + ", 10.1.2.3", []string{"limited"}},
		{"an address made up by the client", "bad", b + ", " + a, []string{"limited"}},
		{"IPv4 mapped to IPv6", "bad", "::ffff:" + a, []string{"limited"}},
		{"an IPv6 network", "bad", "2001:db8:1:2::1", []string{"refused"}},
		{"the same IPv6 network", "bad", "2001:db8:1:2:ffff::2", []string{"refused", "refused", "limited"}},
		{"another IPv6 network", "bad", "2001:db8:1:3::1", []string{"refused"}},
		{"no address counts as the proxy", "bad", "x, y", []string{"refused", "refused", "refused", "limited"}},
		{"no header counts as the proxy", "bad", "", []string{"limited"}},
	} {
		wantSignIns(t, th, door, tt.what, tt.key, tt.forwarded, tt.want...)
	}
}

func TestSignInIgnoresForwardedForOfUntrustedPeers(t *testing.T) {
	t.Parallel()
	th := throttle.New(throttle.Limits{SignIns: slow(3)}, nil)
	var got []string
	for i := range 5 {
		_, err := th.SignIn(keys{}.Authenticate, request(t, "bad", fmt.Sprintf("192.0.2.%d", i)))
		got = append(got, outcome(t, err))
	}
	if want := []string{"refused", "refused", "refused", "limited", "limited"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSignInForgetsCredentialsThatEnded(t *testing.T) {
	t.Parallel()
	th, door := throttle.New(throttle.Limits{SignIns: slow(3)}, nil), keys{"k": true}
	wantSignIns(t, th, door, "while the key is good", "k", "", "ok", "ok")
	door["k"] = false
	wantSignIns(t, th, door, "after it ended", "k", "", "refused", "refused", "refused", "limited", "limited")
	door["k"] = true
	wantSignIns(t, th, door, "when it is good again", "k", "", "ok")
}

func TestSignInWithoutLimit(t *testing.T) {
	t.Parallel()
	th := throttle.New(throttle.Limits{}, nil)
	wantSignIns(t, th, keys{}, "guesses", "bad", "", "refused", "refused", "refused", "refused", "refused")
}

func TestSignInLimitRecoversWithTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(throttle.Limits{SignIns: slow(1)}, nil)
		wantSignIns(t, th, keys{}, "guesses", "bad", "", "refused", "limited")
		time.Sleep(301 * time.Second)
		wantSignIns(t, th, keys{}, "a guess later", "bad", "", "refused", "limited")
	})
}

// gate is an authenticator that lets checks of one address pass only when it is opened.
type gate struct {
	auth.Authenticator
	shut      atomic.Bool
	now, most atomic.Int64 // checks in progress, and the most at once
	open      chan struct{}
}

func (g *gate) Authenticate(r *http.Request) (auth.Principal, error) {
	if g.shut.Load() && r.Header.Get("X-Forwarded-For") == "192.0.2.1" {
		defer g.now.Add(-1)
		if n := g.now.Add(1); n > g.most.Load() {
			g.most.Store(n)
		}
		<-g.open
	}
	return g.Authenticator.Authenticate(r)
}

func TestSignInChecksFewGuessesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(throttle.Limits{SignIns: slow(1)}, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
		g := &gate{Authenticator: keys{"good": true, "elsewhere": true}, open: make(chan struct{})}
		const a, b = "192.0.2.1", "192.0.2.2"
		wantSignIns(t, th, g, "the guess within the limit", "bad", a, "refused")
		g.shut.Store(true)
		outcomes := make(chan string, 20)
		for range 20 {
			go func() {
				_, err := th.SignIn(g.Authenticate, request(t, "bad", a))
				outcomes <- outcome(t, err)
			}()
		}
		synctest.Wait()
		good := make(chan string, 1)
		go func() {
			_, err := th.SignIn(g.Authenticate, request(t, "good", a))
			good <- outcome(t, err)
		}()
		wantSignIns(t, th, g, "a good key of another address", "elsewhere", b, "ok")
		synctest.Wait()
		if n := g.now.Load(); n != 2 {
			t.Errorf("%d guesses of one address are checked at once, want 2", n)
		}
		close(g.open)
		if got := <-good; got != "ok" {
			t.Errorf("a good key among guesses: %s, want ok", got)
		}
		for range 20 {
			if got := <-outcomes; got != "limited" {
				t.Errorf("a guess: %s, want limited", got)
			}
		}
		if n := g.most.Load(); n > 2 {
			t.Errorf("%d guesses of one address were checked at once, want at most 2", n)
		}
	})
}

// The identity provider may take seconds to refuse a code. Meanwhile keys of the same address are checked.
func TestCodesDelayNoKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(throttle.Limits{SignIns: slow(1)}, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
		answered := make(chan struct{})
		var asked atomic.Int64
		provider := func(*http.Request) (auth.Principal, error) {
			asked.Add(1)
			<-answered
			return auth.Principal{}, &auth.Error{}
		}
		const others = 4 // addresses whose codes take all checks
		for i := range others {
			from := fmt.Sprintf("192.0.2.%d", i)
			wantSignIns(t, th, keys{}, "the guess within the limit", "bad", from, "refused")
			for range 3 {
				go th.SignInByCode(provider, request(t, "code", from)) //nolint:errcheck // it only occupies a check
			}
		}
		synctest.Wait()
		if n := asked.Load(); n != 2*others {
			t.Errorf("%d codes are checked at once, want 2 of each address", n)
		}
		start := time.Now()
		wantSignIns(t, th, keys{"good": true}, "a key among codes", "good", "192.0.2.1", "ok")
		wantSignIns(t, th, keys{}, "a guess among codes", "bad", "192.0.2.2", "limited")
		if waited := time.Since(start); waited != 0 {
			t.Errorf("keys waited %s for codes", waited)
		}
		close(answered)
		synctest.Wait()
	})
}

func TestSignInStopsWaitingForACheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th := throttle.New(throttle.Limits{SignIns: slow(1)}, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
		g := &gate{Authenticator: keys{"good": true}, open: make(chan struct{})}
		const a = "192.0.2.1"
		wantSignIns(t, th, g, "the guess within the limit", "bad", a, "refused")
		g.shut.Store(true)
		for range 2 {
			go th.SignIn(g.Authenticate, request(t, "bad", a)) //nolint:errcheck // it only occupies a check
		}
		synctest.Wait()
		start := time.Now()
		wantSignIns(t, th, g, "a key that queues after stuck checks", "good", a, "limited")
		if waited := time.Since(start); waited != 5*time.Second {
			t.Errorf("SignIn waited %s, want 5s", waited)
		}
		close(g.open)
		synctest.Wait()
	})
}
