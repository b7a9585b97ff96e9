// Package auth turns the credential of a request into a Principal.
//
// It promises that a secret never appears in a log, an error or an answer, and that an answer does not reveal which
// part of a credential was wrong. It does not know where keys are stored; it is given a Lookup. It does not decide what
// a principal may see: the code that reads or writes tasks compares tenant, owner and scopes.
package auth

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Principal is a signed-in caller and what the caller may do.
type Principal struct {
	Tenant string // the organization; never empty
	Owner  string // owner of tasks within the tenant; never empty
	Kind   Kind
	Scopes []Scope  // may be shared: do not change
	Agents []string // the only agents that the credential is for; nil: all. May be shared: do not change
	Method Method
	KeyID  string // id of an API key; not secret
	Name   string // subject of a token or certificate; not secret

	// Until is when the credential expires; zero: never, or not known.
	Until time.Time
}

// Has reports whether the principal was granted scope.
func (p Principal) Has(scope Scope) bool { return slices.Contains(p.Scopes, scope) }

// MayUse reports whether the credential is for an agent.
func (p Principal) MayUse(agent string) bool {
	return p.Agents == nil || slices.Contains(p.Agents, agent)
}

// Actor is how the audit log names the principal: "key <id>", "jwt <subject>", "oidc <subject>", "cert <subject>" or
// "anonymous", or "operator <user>@<host>" on the database.
func (p Principal) Actor() string {
	switch p.Method {
	case MethodAPIKey:
		return "key " + p.KeyID
	case MethodJWT:
		return "jwt " + p.Name
	case MethodOIDC:
		return "oidc " + p.Name
	case MethodCert:
		return "cert " + p.Name
	case MethodOperator:
		return "operator " + p.Name
	}
	return "anonymous"
}

// LogValue identifies the principal in logs.
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

// Kind is the kind of a caller. The words are stored.
type Kind string

// The kinds of principal.
const (
	KindUser     Kind = "user"
	KindService  Kind = "service"
	KindOperator Kind = "operator"
)

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return k == KindUser || k == KindService || k == KindOperator }

// Method is how a principal was authenticated.
type Method string

// The methods.
const (
	MethodNone   Method = "none"
	MethodAPIKey Method = "api_key"
	MethodJWT    Method = "jwt"
	MethodCert   Method = "mtls"
	MethodOIDC   Method = "oidc" // a person who has signed in at the issuer, in a browser

	MethodOperator Method = "operator" // a person with a login of the database, on whose machine the program runs
)

// Scope is one permission of a credential. The words are stored. A scope that this version does not
// know permits nothing.
type Scope string

// The scopes.
const (
	ScopeTasksRead  Scope = "tasks:read"
	ScopeTasksWrite Scope = "tasks:write"
	ScopePushWrite  Scope = "push:write"
	ScopeWorker     Scope = "worker"
	ScopeSignal     Scope = "signal"

	// What operators see and do: the tasks of every tenant, or, for support staff, of their own tenant.
	ScopeOperatorRead  Scope = "operator:read"
	ScopeOperatorWrite Scope = "operator:write"
	ScopeTenantRead    Scope = "tenant:read"
)

// Scopes returns all scopes.
func Scopes() []Scope {
	return []Scope{ScopeTasksRead, ScopeTasksWrite, ScopePushWrite, ScopeWorker, ScopeSignal,
		ScopeOperatorRead, ScopeOperatorWrite, ScopeTenantRead}
}

// Valid reports whether s is one of the scopes.
func (s Scope) Valid() bool { return slices.Contains(Scopes(), s) }

// Authenticator authenticates one kind of credential. Implementations are safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the principal of r. It returns ErrNoCredential if r has no credential of
	// this kind, an *Error if the credential is bad, and any other error if that could not be
	// determined.
	Authenticate(r *http.Request) (Principal, error)
	// Challenges returns the values of WWW-Authenticate that tell a client what to send.
	Challenges() []string
	// Schemes returns how cards tell clients to sign in. Any one of the schemes is enough.
	Schemes() []a2a.SecurityScheme
}

// ErrNoCredential says that a request has no credential of the expected kind.
var ErrNoCredential = errors.New("no credential")

// Chain tries its members in order. The first that finds a credential of its kind decides: a bad
// API key is refused, whatever else the request contains.
type Chain []Authenticator

// Authenticate returns the principal of r, an *Error with the challenges of all members, or the
// error of a member that could not decide.
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

// Challenges returns the challenges of all members, each once.
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

// Schemes returns the schemes of all members.
func (c Chain) Schemes() []a2a.SecurityScheme {
	var all []a2a.SecurityScheme
	for _, a := range c {
		all = append(all, a.Schemes()...)
	}
	return all
}

// Anonymous gives every request the same principal. It is for A2AD_AUTH=none, which is accepted on
// loopback listeners only.
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

// Error refuses a credential: HTTP 401. Its text is the same whatever was wrong, except for
// credentials that were good when the request began. The reason is for logs only. It unwraps to an
// *a2a.Error with a2a.CodeUnauthenticated.
type Error struct {
	challenges []string
	reason     string
	keyID      string
	shown      *a2a.Error // shown to the client; nil: errUnauthenticated
}

var errUnauthenticated = &a2a.Error{Code: a2a.CodeUnauthenticated, Message: "missing or invalid credentials"}

const (
	noCredential      = "no credential"
	foreignCredential = "credential of no kind that is taken"
)

// refuse returns an Error. The reason must not contain any part of a secret.
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

// SetHeader adds a WWW-Authenticate line for each accepted scheme.
func (e *Error) SetHeader(h http.Header) {
	for _, c := range e.challenges {
		h.Add("WWW-Authenticate", c)
	}
}

// LogValue contains what only operators may see.
func (e *Error) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("reason", e.reason)}
	if e.keyID != "" {
		attrs = append(attrs, slog.String("key_id", e.keyID))
	}
	return slog.GroupValue(attrs...)
}
