package auth

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

// stub finds its credential in one header.
type stub struct {
	header string
	answer Principal
	err    error
}

func (s stub) Authenticate(r *http.Request) (Principal, error) {
	if r.Header.Get(s.header) == "" {
		return Principal{}, ErrNoCredential
	}
	return s.answer, s.err
}

func (s stub) Challenges() []string { return []string{s.header + ` realm="test"`} }

func (stub) Schemes() []a2a.SecurityScheme { return nil }

func TestChainUsesTheFirstCredentialPresent(t *testing.T) {
	t.Parallel()
	down := errors.New("identity provider unreachable")
	c := Chain{
		stub{header: "A", err: refuse("bad a", "")},
		stub{header: "B", answer: Principal{Owner: "ben"}},
		stub{header: "C", err: down},
	}
	if p, err := c.Authenticate(request(t, "B", "1", "C", "1")); err != nil || p.Owner != "ben" {
		t.Errorf("B: %+v, %v", p, err)
	}
	_, err := c.Authenticate(request(t, "A", "1", "B", "1"))
	refused(t, err, "bad a") // the other credential is not tried
	_, err = c.Authenticate(request(t))
	refused(t, err, "no credential")
	if _, err = c.Authenticate(request(t, "C", "1")); !errors.Is(err, down) {
		t.Errorf("C: err = %v, want the fault", err)
	}
	_, err = Chain{}.Authenticate(request(t, "A", "1"))
	refused(t, err, "no credential")
	for _, header := range [][]string{{"Authorization", "Basic eDp5"}, {"Authorization", "Bearer x"},
		{"X-API-Key", "x"}} {
		_, err = c.Authenticate(request(t, header...))
		refused(t, err, "credential of no kind that is taken")
	}
}

func TestRefusalIs401WithChallenges(t *testing.T) {
	t.Parallel()
	k, tb := withKeys(t, KeysConfig{})
	wrong := newKey(t)
	tb.set(wrong, func(s *StoredKey) { s.SecretHash[0] ^= 1 })
	var answers []http.Header
	for _, r := range []*http.Request{request(t), bearer(t, wrong), bearer(t, newKey(t)),
		request(t, "X-API-Key", "x")} {
		_, err := Chain{k}.Authenticate(r)
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("err = %v, want *Error", err)
		}
		if e.StatusCode() != http.StatusUnauthorized || a2a.CodeOf(err) != a2a.CodeUnauthenticated {
			t.Errorf("status %d, code %v", e.StatusCode(), a2a.CodeOf(err))
		}
		rec := httptest.NewRecorder()
		e.SetHeader(rec.Header())
		answers = append(answers, rec.Header())
	}
	want := []string{`Bearer realm="a2ad"`, `ApiKey realm="a2ad", header="X-API-Key"`}
	for _, h := range answers {
		if got := h.Values("WWW-Authenticate"); !slices.Equal(got, want) || len(h) != 1 {
			t.Errorf("headers %v, want %q and no others", h, want)
		}
	}
}

func TestReasonIsForLogsOnly(t *testing.T) {
	t.Parallel()
	k, _ := withKeys(t, KeysConfig{})
	key := newKey(t)
	_, err := Chain{k}.Authenticate(bearer(t, key))
	if strings.Contains(err.Error(), "unknown") || strings.Contains(err.Error(), key.ID()) {
		t.Errorf("text for the caller: %q", err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("refused", "err", err)
	if !strings.Contains(log.String(), `err.reason="unknown key" err.key_id=`+key.ID()) {
		t.Errorf("log: %s", log.String())
	}
}

func TestAnonymousHasAllScopes(t *testing.T) {
	t.Parallel()
	p, err := Chain{Anonymous{}}.Authenticate(request(t, "Authorization", "Bearer nonsense"))
	if err != nil || p.Tenant != "default" || p.Owner != "anonymous" || p.Method != MethodNone {
		t.Errorf("principal %+v, %v", p, err)
	}
	for _, s := range Scopes() {
		if !p.Has(s) {
			t.Errorf("no scope %s", s)
		}
	}
	if (Chain{Anonymous{}}).Challenges() != nil {
		t.Error("anonymous access challenges for credentials")
	}
}

func TestPrincipalInLogs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("request", "principal", Principal{
		Tenant: "acme", Owner: "ann", Kind: KindUser, Method: MethodAPIKey, KeyID: "k1", Scopes: Scopes(),
	}, "nobody", Principal{})
	for _, want := range []string{
		"principal.tenant=acme principal.owner=ann principal.kind=user principal.method=api_key principal.key_id=k1",
		`nobody.tenant="" nobody.owner=""`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %s lacks %s", log.String(), want)
		}
	}
}

func TestStoredWordsAreKnown(t *testing.T) {
	t.Parallel()
	for _, s := range Scopes() {
		if !s.Valid() {
			t.Errorf("%q is not valid", s)
		}
	}
	if Scope("admin").Valid() || Scope("").Valid() || Kind("root").Valid() || !KindOperator.Valid() {
		t.Error("an unknown word is valid, or a known one is not")
	}
}
