package main

import (
	"strings"

	"github.com/a2ad/a2ad/internal/admin"
)

// APIKeyCmd is `a2ad apikey`.
type APIKeyCmd struct {
	Create APIKeyCreateCmd `cmd:"" group:"commands" help:"Create a key and show it once."`
	Ls     APIKeyLsCmd     `cmd:"" group:"commands" help:"List keys."`
	Revoke APIKeyRevokeCmd `cmd:"" group:"commands" help:"Revoke keys; requests with them are refused from then on."`
}

// keyRow is an API key without its secret.
type keyRow = admin.Key

// keyAgents names the agents that a key may use.
func keyAgents(names []string) string {
	if names == nil {
		return "all"
	}
	return strings.Join(names, ",")
}
