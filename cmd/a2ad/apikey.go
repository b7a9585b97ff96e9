package main

import (
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/store/access"
)

// APIKeyCmd is `a2ad apikey`.
type APIKeyCmd struct {
	Create APIKeyCreateCmd `cmd:"" group:"commands" help:"Create a key and show it once."`
	Ls     APIKeyLsCmd     `cmd:"" group:"commands" help:"List keys."`
	Revoke APIKeyRevokeCmd `cmd:"" group:"commands" help:"Revoke keys; requests with them are refused from then on."`
}

// keyRow is an API key without its secret.
type keyRow struct {
	ID         string     `json:"id"`
	Tenant     string     `json:"tenant"`
	Owner      string     `json:"owner"`
	Name       string     `json:"name,omitempty"`
	Scopes     []string   `json:"scopes"`
	Agents     []string   `json:"agents,omitempty"` // nil: all
	CreatedAt  time.Time  `json:"createdAt"`
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
	RevokedAt  *time.Time `json:"revokedAt,omitempty"`
}

func newKeyRow(k *access.Key) keyRow {
	return keyRow{
		ID: k.ID, Tenant: k.Tenant, Owner: k.Owner, Name: k.Name, Scopes: k.Scopes, Agents: k.Agents,
		CreatedAt: k.CreatedAt, LastUsedAt: orNil(k.UsedAt),
		ExpiresAt: orNil(k.ExpiresAt), RevokedAt: orNil(k.RevokedAt),
	}
}

// keyAgents names the agents that a key may use.
func keyAgents(names []string) string {
	if names == nil {
		return "all"
	}
	return strings.Join(names, ",")
}
