package console

import (
	"context"

	"github.com/a2ad/a2ad/internal/auth"
)

// Shares of an owner, and what a client reads within a deadline.
const (
	MaxOwnPages = maxOwnPages
	MaxOwnLive  = maxOwnLive
	Piece       = piece
)

// Patterns returns the patterns of all routes.
func (c *Console) Patterns() []string { return c.mux.patterns }

// FollowAll follows the tasks that a principal sees.
func (c *Console) FollowAll(p auth.Principal) (next func(context.Context) error, stop func(), err error) {
	return c.followAll(&request{viewer: viewer{principal: p}})
}
