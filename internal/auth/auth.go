// Package auth turns the credential of a request into a Principal.
//
// It promises that a secret never shows in a log, an error or an answer, and that an
// answer does not tell which part of a credential was wrong. It knows neither where keys
// are kept (it is given a Lookup) nor what a principal may see: whoever reads or writes
// compares tenant, owner and scopes.
package auth

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Principal is who is calling, and what they may do.
type Principal struct {
	Tenant string // the organisation; never empty
	Owner  string // whose tasks these are within the tenant; never empty
	Kind   Kind
	Scopes []Scope  // may be shared: not to be changed
	Agents []string // the only ones that it is for; nil: all. May be shared: not to be changed
	Method Method
	KeyID  string // of an API key; it is not secret
	Name   string // of a token or certificate: its subject; not secret

	// Until is when the credential ends by itself; zero: never, or not known.
	Until time.Time
}

// Has reports whether the principal was granted scope.
func (p Principal) Has(scope Scope) bool { return slices.Contains(p.Scopes, scope) }

// MayUse reports whether the credential is for an agent.
func (p Principal) MayUse(agent string) bool {
	return p.Agents == nil || slices.Contains(p.Agents, agent)
}

// Actor is who this is to the audit log: "key <id>", "jwt <subject>", "cert <subject>" or
// "anonymous".
func (p Principal) Actor() string {
	switch p.Method {
	case MethodAPIKey:
		return "key " + p.KeyID
	case MethodJWT:
		return "jwt " + p.Name
	case MethodCert:
		return "cert " + p.Name
	}
	return "anonymous"
}

// LogValue names the principal in logs.
func (p Principal) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("tenant", p.Tenant),
		slog.String("owner", p.Owner),
		slog.String("kind", string(p.Kind)),
		slog.String("method", string(p.Method)),
	}
	if p.KeyID != "" {
		attrs = append(attrs, slog.String("key_id", p.KeyID))
	}
	if p.Name != "" {
		attrs = append(attrs, slog.String("name", p.Name))
	}
	return slog.GroupValue(attrs...)
}

// Kind is what sort of caller a principal is. The words are stored.
type Kind string

// The kinds of principal.
const (
	KindUser     Kind = "user"
	KindService  Kind = "service"
	KindOperator Kind = "operator"
)

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return k == KindUser || k == KindService || k == KindOperator }

// Method is how a principal proved who it is.
type Method string

// The methods.
const (
	MethodNone   Method = "none"
	MethodAPIKey Method = "api_key"
	MethodJWT    Method = "jwt"
	MethodCert   Method = "mtls"
)

// Scope is one thing that a credential permits. The words are stored; one that this
// version does not know permits nothing.
type Scope string

// The scopes.
const (
	ScopeTasksRead  Scope = "tasks:read"
	ScopeTasksWrite Scope = "tasks:write"
	ScopePushWrite  Scope = "push:write"
	ScopeWorker     Scope = "worker"
)

// Scopes returns every scope there is.
func Scopes() []Scope {
	return []Scope{ScopeTasksRead, ScopeTasksWrite, ScopePushWrite, ScopeWorker}
}

// Valid reports whether s is one of the scopes.
func (s Scope) Valid() bool { return slices.Contains(Scopes(), s) }

// Authenticator knows one kind of credential. Implementations are safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the principal of r. It returns ErrNoCredential if r carries no
	// credential of this kind, an *Error if it carries one that is not good, and any other
	// error if that could not be found out.
	Authenticate(r *http.Request) (Principal, error)
	// Challenges returns the values of WWW-Authenticate that tell a client what to send.
	Challenges() []string
	// Schemes returns how the card of an agent tells a client to sign in; any one is enough.
	Schemes() []a2a.SecurityScheme
}

// ErrNoCredential says that a request carries no credential of the kind asked for.
var ErrNoCredential = errors.New("no credential")

// Chain tries its members in order. The first that finds a credential of its kind
// decides: a bad API key is refused, whatever else the request carries.
type Chain []Authenticator

// Authenticate returns the principal of r, or an *Error with the challenges of all
// members, or the error of a member that could not tell.
func (c Chain) Authenticate(r *http.Request) (Principal, error) {
	refusal := &Error{reason: noCredential}
	if r.Header.Get("Authorization") != "" || r.Header.Get("X-Api-Key") != "" {
		refusal.reason = foreignCredential
	}
	for _, a := range c {
		p, err := a.Authenticate(r)
		if errors.Is(err, ErrNoCredential) {
			continue
		}
		if err == nil || !errors.As(err, &refusal) {
			return p, err
		}
		break
	}
	return Principal{}, refusal.with(c.Challenges())
}

// Challenges returns those of all members, each once.
func (c Chain) Challenges() []string {
	var all []string
	for _, a := range c {
		for _, challenge := range a.Challenges() {
			if !slices.Contains(all, challenge) {
				all = append(all, challenge)
			}
		}
	}
	return all
}

// Schemes returns those of all members.
func (c Chain) Schemes() []a2a.SecurityScheme {
	var all []a2a.SecurityScheme
	for _, a := range c {
		all = append(all, a.Schemes()...)
	}
	return all
}

// Anonymous takes every request for the same principal, whatever it carries. It is for
// A2AD_AUTH=none, which is accepted on loopback listeners only.
type Anonymous struct{}

// Authenticate returns owner "anonymous" of tenant "default" with all scopes.
func (Anonymous) Authenticate(*http.Request) (Principal, error) {
	return Principal{
		Tenant: "default", Owner: "anonymous", Kind: KindUser, Scopes: Scopes(), Method: MethodNone,
	}, nil
}

// Challenges returns none.
func (Anonymous) Challenges() []string { return nil }

// Schemes returns none.
func (Anonymous) Schemes() []a2a.SecurityScheme { return nil }

// Error refuses a credential: HTTP 401. Its text is for anyone, and is the same whatever
// was wrong, but for one that was good when the request began; the reason is for logs. In its chain is an *a2a.Error with
// a2a.CodeUnauthenticated.
type Error struct {
	challenges []string
	reason     string
	keyID      string
	shown      *a2a.Error // to the client; nil: errUnauthenticated
}

var errUnauthenticated = &a2a.Error{Code: a2a.CodeUnauthenticated, Message: "missing or invalid credentials"}

const (
	noCredential      = "no credential"
	foreignCredential = "credential of no kind that is taken"
)

// refuse makes an Error. The reason must not hold any part of a secret.
func refuse(reason, keyID string) *Error { return &Error{reason: reason, keyID: keyID} }

func (e *Error) with(challenges []string) *Error {
	return &Error{challenges: challenges, reason: e.reason, keyID: e.keyID}
}

func (e *Error) Error() string { return e.Unwrap().Error() }

// Unwrap returns the error that the protocol shows.
func (e *Error) Unwrap() error {
	if e.shown != nil {
		return e.shown
	}
	return errUnauthenticated
}

// StatusCode returns 401.
func (e *Error) StatusCode() int { return http.StatusUnauthorized }

// SetHeader adds a WWW-Authenticate line for each scheme that would be accepted.
func (e *Error) SetHeader(h http.Header) {
	for _, c := range e.challenges {
		h.Add("WWW-Authenticate", c)
	}
}

// LogValue tells operators what the caller is not told.
func (e *Error) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("reason", e.reason)}
	if e.keyID != "" {
		attrs = append(attrs, slog.String("key_id", e.keyID))
	}
	return slog.GroupValue(attrs...)
}
