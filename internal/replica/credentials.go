package replica

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/console"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/wake"
)

// credentials says who may call.
type credentials struct {
	chain    auth.Authenticator
	keys     *auth.Keys     // nil without authentication
	sessions *auth.Sessions // nil without authentication
	tokens   *auth.JWT      // nil without an identity provider

	used     chan string                                // ids of API keys that were used
	use      func(ctx context.Context, id string) error // records that a key was used
	database *database
	log      *slog.Logger
}

// maxUsedKeys is how many uses of keys wait to be recorded. Further ones are recorded at the next use.
const maxUsedKeys = 1000

// recordTimeout bounds the record of one use, and for how long a stopping server begins to record further ones.
const recordTimeout = 2 * time.Second

func (r *Replica) openCredentials() (*credentials, error) {
	cfg := &r.cfg
	c := &credentials{
		used: make(chan string, maxUsedKeys), use: r.database.store.Access.UseKey, database: r.database, log: r.log,
	}
	if cfg.Auth == config.AuthNone {
		c.chain = auth.Anonymous{}
		return c, nil
	}
	var err error
	c.keys, err = auth.NewKeys(auth.KeysConfig{
		Lookup: c.lookupKey, Used: c.keyUsed, TTL: min(cfg.AuthRecheck/2, auth.MaxKeyTTL),
	})
	if err != nil {
		return nil, err
	}
	chain := auth.Chain{c.keys}
	if cfg.OIDCIssuer != "" {
		c.tokens, err = auth.NewJWT(auth.JWTConfig{
			Issuer: string(cfg.OIDCIssuer), Audience: cfg.OIDCAudience, JWKSURL: string(cfg.OIDCJWKSURL),
			TenantClaim: cfg.OIDCTenantClaim, Tenant: cfg.OIDCTenant, OwnerClaims: cfg.OIDCOwnerClaim,
			ScopeClaims: cfg.OIDCScopeClaim, Scopes: cfg.OIDCScopes, OAuth2: cfg.OIDCOAuth2.OAuth2,
		})
		if err != nil {
			return nil, err
		}
		chain = append(chain, c.tokens)
	}
	if cfg.TLSClientCA != "" || len(cfg.MTLSProxies) > 0 {
		chain = append(chain, clientCerts(cfg, r.listeners.cert))
	}
	c.chain = chain
	// Half of the time is for keys that are remembered, and half for the next check.
	c.sessions = auth.NewSessions(chain, cfg.AuthRecheck/2)
	return c, nil
}

// provider returns how people sign in to the console with the identity provider; nil: they do not.
func (c *credentials) provider(cfg *config.Config) (*auth.CodeFlow, error) {
	if c.tokens == nil || cfg.ConsoleOIDCClientID == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	return auth.NewCodeFlow(c.tokens, auth.CodeFlowConfig{
		ClientID: cfg.ConsoleOIDCClientID, ClientSecret: cfg.ConsoleOIDCClientSecret.Reveal(),
		Scopes: cfg.ConsoleOIDCScopes, RedirectURL: console.CallbackURL(string(cfg.PublicURL)),
	})
}

func clientCerts(cfg *config.Config, cert *auth.ServerCert) auth.Certs {
	certs := auth.Certs{
		Tenant: cfg.MTLSTenant, From: auth.TenantFrom(cfg.MTLSTenantBy), Scopes: cfg.MTLSScopes,
		Proxies: cfg.MTLSProxies,
	}
	if cert != nil {
		certs.Trusts = cert.Trusts
	}
	return certs
}

// signIn signs remote workers in as the server does its callers: bad credentials count for their
// address and are recorded, whichever API they were sent to.
type signIn struct {
	auth.Authenticator
	replica *Replica
}

// Authenticate must not be called before there is a server.
func (s signIn) Authenticate(req *http.Request) (auth.Principal, error) {
	return s.replica.api.server.SignIn(req)
}

// refreshIssuer keeps the keys of the identity provider up to date.
func (c *credentials) refreshIssuer(ctx context.Context) error {
	if c.tokens == nil {
		<-ctx.Done()
		return nil
	}
	return c.tokens.Run(ctx)
}

func (c *credentials) lookupKey(ctx context.Context, id string) (auth.StoredKey, error) {
	k, secret, err := c.database.store.Access.LookupKey(ctx, id)
	if errors.Is(err, access.ErrNoKey) {
		return auth.StoredKey{}, auth.ErrUnknownKey
	}
	scopes := make([]auth.Scope, len(k.Scopes))
	for i, s := range k.Scopes {
		scopes[i] = auth.Scope(s)
	}
	return auth.StoredKey{
		SecretHash: secret[:], Tenant: k.Tenant, Owner: k.Owner, Kind: auth.KindService, Scopes: scopes,
		Agents: k.Agents, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt,
	}, err
}

// keyUsed has the use of a key recorded, without waiting for it.
func (c *credentials) keyUsed(id string) {
	select {
	case c.used <- id:
	default:
	}
}

// recordUse outlives ctx: a replica that stops meanwhile must not lose what it has taken out of the channel.
func (c *credentials) recordUse(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if err := c.use(ctx, id); err != nil {
		c.log.WarnContext(ctx, "api keys", "err", err)
	}
}

// followKeys forgets API keys when one was revoked on any replica, and records which are used.
func (c *credentials) followKeys(ctx context.Context) error {
	revoked, stop := c.database.hub.Wait(wake.APIKeys)
	defer stop()
	for {
		select {
		case <-revoked:
			if c.keys != nil {
				c.keys.ForgetAll()
				c.sessions.Recheck()
			}
		case id := <-c.used:
			c.recordUse(ctx, id)
		case <-ctx.Done():
			for end := time.Now().Add(recordTimeout); len(c.used) > 0 && time.Now().Before(end); {
				c.recordUse(ctx, <-c.used)
			}
			return nil
		}
	}
}

// recordFailure writes failed sign-ins to the audit log.
func (r *Replica) recordFailure(ctx context.Context, f auth.Failure) {
	actor := "address " + f.Address
	if f.Address == "" {
		actor = "address of many"
	}
	detail := map[string]any{"reason": f.Reason, "count": f.Count}
	if f.KeyID != "" {
		detail["key"] = f.KeyID
	}
	action := access.Action{Actor: actor, Name: access.ActionSignInFailed, Detail: detail}
	if err := r.database.store.Access.Record(ctx, action); err != nil {
		r.log.WarnContext(ctx, "record failed sign-ins", "err", err)
	}
}
