package config

import (
	"time"

	"github.com/a2ad/a2ad/internal/seal"
)

// Access says who may do what.
type Access struct {
	Auth        string        `type:"setting" name:"auth" def:"required" dev:"none" oneof:"required,none"`
	AuthRecheck time.Duration `type:"setting" name:"auth-recheck" def:"30s" min:"1s" hidden:""`
	CORSOrigins Origins       `type:"setting" name:"cors-origins" def:"none" hidden:""`
	Sharing     string        `type:"setting" name:"sharing" def:"owner" oneof:"owner,tenant" hidden:""`
	Keys        seal.Ring     `type:"setting" name:"keys" kong:"-" secret:"yes"`
}

// TLS says which certificate the server has, and which client certificates sign callers in.
type TLS struct {
	TLSCert     string `type:"setting" name:"tls-cert"`
	TLSKey      string `type:"setting" name:"tls-key"`
	TLSClientCA string `type:"setting" name:"tls-client-ca"`

	MTLSTenantBy string `type:"setting" name:"mtls-tenant-from" def:"fixed" oneof:"fixed,organization,uri-host" hidden:""` //nolint:lll // a tag is one line

	MTLSTenant  string   `type:"setting" name:"mtls-tenant" def:"default" hidden:""`
	MTLSScopes  Scopes   `type:"setting" name:"mtls-scopes" def:"tasks:read,tasks:write,push:write" hidden:""`
	MTLSProxies Prefixes `type:"setting" name:"mtls-proxies" def:"none" hidden:""`
}

func (t *TLS) check() (f faults) {
	switch {
	case t.TLSCert == "" && t.TLSKey != "":
		f.add("A2AD_TLS_CERT", "a certificate needs its key, and a key its certificate")
	case t.TLSCert != "" && t.TLSKey == "":
		f.add("A2AD_TLS_KEY", "a certificate needs its key, and a key its certificate")
	case t.TLSClientCA != "" && t.TLSCert == "":
		f.add("A2AD_TLS_CLIENT_CA", "set A2AD_TLS_CERT and A2AD_TLS_KEY too: clients show certificates only over TLS")
	}
	for _, p := range t.MTLSProxies {
		if p.Bits() == 0 {
			f.add("A2AD_MTLS_PROXIES",
				"%s is every address, so any client could claim any certificate: name the addresses of your proxies", p)
		}
	}
	return f
}

// OIDC says which tokens of an identity provider are accepted, and what they mean.
type OIDC struct {
	OIDCIssuer      Issuer `type:"setting" name:"oidc-issuer"`
	OIDCAudience    string `type:"setting" name:"oidc-audience"`
	OIDCJWKSURL     Issuer `type:"setting" name:"oidc-jwks-url" hidden:""`
	OIDCTenantClaim string `type:"setting" name:"oidc-tenant-claim"`
	OIDCTenant      string `type:"setting" name:"oidc-tenant" def:"default" hidden:""`
	OIDCOwnerClaim  Words  `type:"setting" name:"oidc-owner-claim" def:"sub,client_id" hidden:""`
	OIDCScopeClaim  Words  `type:"setting" name:"oidc-scope-claim" def:"scope,scp" hidden:""`
	OIDCOAuth2      OAuth2 `type:"setting" name:"oidc-oauth2" hidden:""`
	OIDCScopes      Scopes `type:"setting" name:"oidc-scopes"`

	ConsoleOIDCClientID     string `type:"setting" name:"console-oidc-client-id"`
	ConsoleOIDCClientSecret Secret `type:"setting" name:"console-oidc-client-secret" kong:"-" secret:"yes"`
	ConsoleOIDCScopes       Words  `type:"setting" name:"console-oidc-scopes" def:"openid" hidden:""`
}

// checkConsole checks how people sign in to the console. They come back to public, the URL of the server.
func (o *OIDC) checkConsole(public BaseURL) (f faults) {
	const name = "A2AD_CONSOLE_OIDC_CLIENT_ID"
	switch {
	case o.ConsoleOIDCClientID == "" && o.ConsoleOIDCClientSecret.IsSet():
		f.add("A2AD_CONSOLE_OIDC_CLIENT_SECRET", "set A2AD_CONSOLE_OIDC_CLIENT_ID too: it says whose secret this is")
	case o.ConsoleOIDCClientID == "":
	case o.OIDCIssuer == "":
		f.add(name, "set A2AD_OIDC_ISSUER too: it says where people sign in")
	case public == "":
		f.add(name, "set A2AD_PUBLIC_URL too: the identity provider sends people back there")
	case new(Issuer).UnmarshalText([]byte(public)) != nil:
		f.add(name, "A2AD_PUBLIC_URL must begin with https://: over plain http, an attacker could take over a sign-in")
	}
	return f
}

func (o *OIDC) check() (f faults) {
	switch {
	case o.OIDCIssuer == "" && o.OIDCAudience != "":
		f.add("A2AD_OIDC_AUDIENCE", "set A2AD_OIDC_ISSUER too: it says whose tokens these are")
	case o.OIDCIssuer == "" && o.OIDCJWKSURL != "":
		f.add("A2AD_OIDC_JWKS_URL", "set A2AD_OIDC_ISSUER too: it says whose keys these are")
	case o.OIDCIssuer == "" && o.OIDCOAuth2.OAuth2 != nil:
		f.add("A2AD_OIDC_OAUTH2", "set A2AD_OIDC_ISSUER too: it says whose tokens clients get this way")
	case o.OIDCIssuer != "" && o.OIDCAudience == "":
		f.add("A2AD_OIDC_AUDIENCE", "name the aud of tokens for this server, for example https://agents.example.org: "+
			"without it, a token for any other service would be accepted")
	}
	return f
}
