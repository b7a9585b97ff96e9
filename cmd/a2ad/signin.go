package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/wake"
)

// authenticator says who may call. Revoked keys are forgotten when the store says so.
func (r *replica) authenticator() (auth.Authenticator, error) {
	if r.cfg.Auth == config.AuthNone {
		return auth.Anonymous{}, nil
	}
	var err error
	if r.keys, err = auth.NewKeys(auth.KeysConfig{Lookup: r.lookupKey, Used: r.keyUsed, TTL: min(r.cfg.AuthRecheck/2, auth.MaxKeyTTL)}); err != nil {
		return nil, err
	}
	chain := auth.Chain{r.keys}
	if r.cfg.OIDCIssuer != "" {
		r.tokens, err = auth.NewJWT(auth.JWTConfig{
			Issuer: string(r.cfg.OIDCIssuer), Audience: r.cfg.OIDCAudience, JWKSURL: string(r.cfg.OIDCJWKSURL),
			TenantClaim: r.cfg.OIDCTenantClaim, Tenant: r.cfg.OIDCTenant, OwnerClaims: r.cfg.OIDCOwnerClaim, ScopeClaims: r.cfg.OIDCScopeClaim, Scopes: r.cfg.OIDCScopes, OAuth2: r.cfg.OIDCOAuth2.OAuth2,
		})
		if err != nil {
			return nil, err
		}
		chain = append(chain, r.tokens)
	}
	if r.cfg.TLSClientCA != "" || len(r.cfg.MTLSProxies) > 0 {
		certs := auth.Certs{Tenant: r.cfg.MTLSTenant, From: auth.TenantFrom(r.cfg.MTLSTenantBy), Scopes: r.cfg.MTLSScopes, Proxies: r.cfg.MTLSProxies}
		if r.cert != nil {
			certs.Trusts = r.cert.Trusts
		}
		chain = append(chain, certs)
	}
	// Half of the time for what is remembered of a key, and half for the next look.
	r.sessions = auth.NewSessions(chain, r.cfg.AuthRecheck/2)
	return chain, nil
}

// counted signs workers in as the server does its callers: what is bad counts for its address and
// is reported, whichever door it was tried at.
type counted struct {
	auth.Authenticator
	r *replica
}

// Authenticate must not be called before there is a server.
func (c counted) Authenticate(req *http.Request) (auth.Principal, error) {
	return c.r.server.SignIn(req)
}

// refreshIssuer keeps the keys of the identity provider at hand.
func (r *replica) refreshIssuer(ctx context.Context) error {
	if r.tokens == nil {
		<-ctx.Done()
		return nil
	}
	return r.tokens.Run(ctx)
}

func (r *replica) lookupKey(ctx context.Context, id string) (auth.StoredKey, error) {
	k, secret, err := r.store.LookupAPIKey(ctx, id)
	if errors.Is(err, store.ErrNoKey) {
		return auth.StoredKey{}, auth.ErrUnknownKey
	}
	scopes := make([]auth.Scope, len(k.Scopes))
	for i, s := range k.Scopes {
		scopes[i] = auth.Scope(s)
	}
	return auth.StoredKey{
		SecretHash: secret[:], Tenant: k.Tenant, Owner: k.Owner, Kind: auth.KindService, Scopes: scopes, Agents: k.Agents, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt,
	}, err
}

// maxUsedKeys is how many keys that were used wait to be noted. What is beyond that is noted when they are used again.
const maxUsedKeys = 1000

const lastNotes = 2 * time.Second // for those that wait when the server stops

// keyUsed has the use of a key noted, without waiting for it.
func (r *replica) keyUsed(id string) {
	select {
	case r.used <- id:
	default:
	}
}

func (r *replica) noteUse(ctx context.Context, id string) {
	if err := r.store.UseAPIKey(ctx, id); err != nil && ctx.Err() == nil {
		r.logger.WarnContext(ctx, "api keys", "err", err)
	}
}

// followKeys drops what is remembered of API keys when one was revoked anywhere, and notes which are used.
func (r *replica) followKeys(ctx context.Context) error {
	wake, stop := r.hub.Wait(wake.APIKeys)
	defer stop()
	for {
		select {
		case <-wake:
			if r.keys != nil {
				r.keys.ForgetAll()
				r.sessions.Recheck()
			}
		case id := <-r.used:
			r.noteUse(ctx, id)
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastNotes)
			defer cancel()
			for len(r.used) > 0 && end.Err() == nil {
				r.noteUse(end, <-r.used)
			}
			return nil
		}
	}
}

// openTLS reads the certificate of the listeners, if they have one.
func (r *replica) openTLS() (err error) {
	if r.cfg.TLSCert == "" {
		return nil
	}
	r.cert, err = auth.NewServerCert(r.cfg.TLSCert, r.cfg.TLSKey, r.cfg.TLSClientCA, func(err error) {
		r.logger.Error("the certificate of the listeners is used as it was", "err", err)
	})
	if err != nil {
		return fmt.Errorf("A2AD_TLS_CERT: %w", err)
	}
	return nil
}

// tlsConfig is what listeners need, or nil.
func (r *replica) tlsConfig() *tls.Config {
	if r.cert == nil {
		return nil
	}
	return r.cert.Config()
}

// base returns the URL of the API as its listener has it.
func (r *replica) base() string {
	if r.cert == nil {
		return "http://" + r.api.Addr().String()
	}
	return "https://" + r.api.Addr().String()
}

// recordFailure puts sign-ins that failed into the audit log.
func (r *replica) recordFailure(ctx context.Context, f auth.Failure) {
	actor := "address " + f.Address
	if f.Address == "" {
		actor = "address of many"
	}
	detail := map[string]any{"reason": f.Reason, "count": f.Count}
	if f.KeyID != "" {
		detail["key"] = f.KeyID
	}
	if err := r.store.Record(ctx, store.Action{Actor: actor, Name: store.ActionSignInFailed, Detail: detail}); err != nil {
		r.logger.WarnContext(ctx, "record failed sign-ins", "err", err)
	}
}
