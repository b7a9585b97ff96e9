// Package webhooks keeps the webhooks of tasks: where each stands in the log of its task, what was tried, and how their destinations
// answer. It knows nothing of requests over HTTP.
package webhooks

import "github.com/a2ad/a2ad/internal/store/db"

// Store is safe for concurrent use.
type Store struct {
	db     *db.DB
	pushes claimFloor
	turns  tenantTurns
}

// New returns the room on a database.
func New(conns *db.DB) *Store { return &Store{db: conns} }
