package main

import (
	"context"
	"errors"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store"
)

// authenticator says who may call. Revoked keys are forgotten when the store says so.
func (r *replica) authenticator() (auth.Authenticator, error) {
	if r.cfg.Auth == AuthNone {
		return auth.Anonymous{}, nil
	}
	var err error
	if r.keys, err = auth.NewKeys(auth.KeysConfig{Lookup: r.lookupKey}); err != nil {
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
	return chain, nil
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
		SecretHash: secret[:], Tenant: k.Tenant, Owner: k.Owner, Kind: auth.KindService, Scopes: scopes, Agents: k.Agents, ExpiresAt: k.ExpiresAt,
	}, err
}

// forgetKeys drops what is remembered of API keys when one was revoked anywhere.
func (r *replica) forgetKeys(ctx context.Context) error {
	wake, stop := r.hub.Wait(store.KeyAPIKeys)
	defer stop()
	for {
		select {
		case <-wake:
			if r.keys != nil {
				r.keys.ForgetAll()
			}
		case <-ctx.Done():
			return nil
		}
	}
}
