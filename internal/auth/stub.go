package auth

import (
	"net/http"

	"github.com/a2ad/a2ad/internal/a2a"
)

const (
	ScopeTasksRead  = "tasks:read"
	ScopeTasksWrite = "tasks:write"
	ScopePushWrite  = "push:write"
)

type Principal struct{ Tenant, Owner string }

func (Principal) Has(string) bool { return true }

type Error struct{}

func (*Error) Error() string        { return "" }
func (*Error) Challenges() []string { return nil }

type Authenticator interface {
	Authenticate(r *http.Request) (Principal, error)
	Schemes() []a2a.SecurityScheme
}
type Anonymous struct{}

func (Anonymous) Authenticate(*http.Request) (Principal, error) {
	return Principal{"default", "anonymous"}, nil
}
func (Anonymous) Schemes() []a2a.SecurityScheme { return nil }

type Key struct{}

func NewKey(string, any) (Key, error) { return Key{}, nil }
func (Key) ID() string                { return "" }
func (Key) Reveal() string            { return "" }
func (Key) Hash() [32]byte            { return [32]byte{} }
