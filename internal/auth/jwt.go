package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"

	"github.com/a2ad/a2ad/internal/a2a"
)

// algorithms are the accepted signature algorithms. None is symmetric: a public key must never
// serve as a secret.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

const (
	tokenLeeway = 60 * time.Second // allowed difference between our clock and the issuer's
	maxToken    = 16 << 10
	maxName     = 200 // bytes of a tenant or an owner, as for API keys
)

// JWTConfig says which tokens are accepted and how they map to owners. Issuer and Audience are
// required.
type JWTConfig struct {
	Issuer   string // exactly as in tokens
	Audience string // must be one of a token's audiences
	JWKSURL  string // where the keys are; empty: OpenID Connect discovery finds them

	TenantClaim string   // claim with the tenant; empty: all tokens belong to Tenant
	Tenant      string   // empty: "default"
	OwnerClaims []string // the first one present names the owner; nil: sub, client_id
	ScopeClaims []string // claims with scopes, as one string or a list; nil: scope, scp
	Scopes      []Scope  // granted to every token in addition

	OAuth2 *a2a.OAuth2 // how cards say to get tokens; may be nil

	Transport http.RoundTripper // for requests to the issuer; nil: http.DefaultTransport

	now func() time.Time // replaced by tests
}

// JWT authenticates tokens of one issuer, sent as `Authorization: Bearer …`. While the issuer is
// unreachable it verifies tokens with the known keys, for up to an hour.
type JWT struct {
	cfg  JWTConfig
	keys *keySet
}

// NewJWT returns an Authenticator of tokens. It does not contact the issuer yet: see Run.
func NewJWT(cfg JWTConfig) (*JWT, error) {
	if cfg.Issuer == "" || cfg.Audience == "" {
		return nil, errors.New("auth: tokens need an issuer and an audience")
	}
	if cfg.Tenant == "" {
		cfg.Tenant = "default"
	}
	if cfg.OwnerClaims == nil {
		cfg.OwnerClaims = []string{"sub", "client_id"}
	}
	if cfg.ScopeClaims == nil {
		cfg.ScopeClaims = []string{"scope", "scp"}
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	return &JWT{cfg: cfg, keys: newKeySet(cfg)}, nil
}

// Run keeps the issuer's keys up to date until ctx is done.
func (j *JWT) Run(ctx context.Context) error { return j.keys.run(ctx) }

// Challenges returns the challenge for bearer tokens.
func (j *JWT) Challenges() []string { return []string{bearerChallenge} }

// Schemes returns OpenID Connect if the issuer supports discovery, and else a bearer token. It adds
// OAuth 2.0 if that is configured.
func (j *JWT) Schemes() []a2a.SecurityScheme {
	var scopes []string
	for _, s := range []Scope{ScopeTasksRead, ScopeTasksWrite} {
		if !(Principal{Scopes: j.cfg.Scopes}).Has(s) {
			scopes = append(scopes, string(s))
		}
	}
	all := []a2a.SecurityScheme{{
		Name: "oidc", Kind: a2a.SecurityOIDC, Description: "A token of the identity provider.", Scopes: scopes,
		URL: strings.TrimSuffix(j.cfg.Issuer, "/") + "/.well-known/openid-configuration",
	}}
	if j.cfg.JWKSURL != "" {
		all[0] = a2a.SecurityScheme{Name: "jwt", Kind: a2a.SecurityBearer, Format: "JWT",
			Description: "A token of " + j.cfg.Issuer + ".", Scopes: scopes}
	}
	if j.cfg.OAuth2 != nil {
		all = append(all,
			a2a.SecurityScheme{Name: "oauth2", Kind: a2a.SecurityOAuth2, Description: "The same token, by OAuth 2.0.",
				Scopes: scopes, OAuth2: j.cfg.OAuth2})
	}
	return all
}

// Authenticate returns the principal of the token of r. See Authenticator for the errors. While no
// keys of the issuer are known, the error has a2a.CodeUnavailable.
func (j *JWT) Authenticate(r *http.Request) (Principal, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) > 1 {
		return Principal{}, refuse("repeated credential header", "")
	}
	if len(headers) == 0 {
		return Principal{}, ErrNoCredential
	}
	token, ok := bearerToken(headers[0])
	if !ok || strings.HasPrefix(token, keyPrefix) {
		return Principal{}, ErrNoCredential
	}
	claims, err := j.verify(r.Context(), token)
	if err != nil {
		return Principal{}, err
	}
	return j.principal(claims)
}

// verify returns the claims of a token that is valid now.
func (j *JWT) verify(ctx context.Context, token string) (members, error) {
	if len(token) > maxToken {
		return nil, refuse("malformed token", "")
	}
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, refuse("malformed token", "") // also for other algorithms
	}
	head, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return nil, refuse("malformed token", "")
	}
	header, err := readMembers(text)
	if err != nil {
		return nil, refuse("malformed token", "")
	}
	if header["typ"] != nil && !isTokenType(header.text("typ")) {
		return nil, refuse("another type of token", "")
	}
	claims, err := readMembers(jws.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, refuse("malformed token", "")
	}
	if reason := j.check(claims); reason != "" { // before the signature check, which costs more
		return nil, refuse(reason, "")
	}
	if _, err := j.keys.verify(ctx, jws); err != nil {
		return nil, err
	}
	return claims, nil
}

// check returns what is wrong with the claims of a token, or "".
func (j *JWT) check(claims members) string {
	audiences, ok := claims.texts("aud")
	times := make(map[string]float64, 3)
	for _, name := range []string{"exp", "nbf", "iat"} {
		s, there, good := claims.seconds(name)
		if ok = ok && good; there {
			times[name] = s
		}
	}
	if !ok {
		return "malformed token"
	}
	if claims.text("iss") != j.cfg.Issuer || !slices.Contains(audiences, j.cfg.Audience) {
		return "token of another issuer or for another audience"
	}
	now, leeway := float64(j.cfg.now().Unix()), tokenLeeway.Seconds()
	if exp, there := times["exp"]; !there || exp < now-leeway {
		return "expired token"
	}
	if max(times["nbf"], times["iat"]) > now+leeway {
		return "token of the future"
	}
	return ""
}

// isTokenType reports whether a typ header is that of access tokens. The same keys sign other
// documents too.
func isTokenType(typ string) bool {
	typ = strings.TrimPrefix(strings.ToLower(typ), "application/")
	return typ == "jwt" || typ == "at+jwt"
}

// principal maps the claims of a valid token.
func (j *JWT) principal(claims members) (Principal, error) {
	p := Principal{Tenant: j.cfg.Tenant, Kind: KindUser, Method: MethodJWT, Scopes: j.scopes(claims)}
	if j.cfg.TenantClaim != "" {
		if p.Tenant = claims.text(j.cfg.TenantClaim); !ValidName(p.Tenant) {
			return Principal{}, refuse("token without a tenant", "")
		}
	}
	expires, _, _ := claims.seconds("exp") // present, and a number: see check
	p.Until = time.Unix(int64(expires), 0).Add(tokenLeeway)
	for _, name := range j.cfg.OwnerClaims {
		if claims[name] != nil {
			p.Owner = claims.text(name)
			break
		}
	}
	if !ValidName(p.Owner) {
		return Principal{}, refuse("token without an owner", "")
	}
	if p.Name = claims.text("sub"); !ValidName(p.Name) {
		p.Name = p.Owner
	}
	if client := claims.text("client_id"); client != "" && client == p.Name {
		p.Kind = KindService
	}
	return p, nil
}

// scopes returns the scopes of every token and those in its claims. It ignores unknown scopes,
// which are for other services.
func (j *JWT) scopes(claims members) []Scope {
	p := Principal{Scopes: append([]Scope(nil), j.cfg.Scopes...)}
	for _, name := range j.cfg.ScopeClaims {
		list, _ := claims.texts(name)
		for _, item := range list {
			for word := range strings.FieldsSeq(item) {
				if s := Scope(word); s.Valid() && !p.Has(s) {
					p.Scopes = append(p.Scopes, s)
				}
			}
		}
	}
	return p.Scopes
}

// ValidName reports whether a text can be a tenant or an owner.
func ValidName(s string) bool {
	return s != "" && len(s) <= maxName && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func unavailable(cause error) error {
	return a2a.Error{Code: a2a.CodeUnavailable,
		Message: "credentials cannot be verified now"}.With(fmt.Errorf("keys of the issuer: %w", cause))
}
