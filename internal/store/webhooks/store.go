// Package webhooks stores the webhooks of tasks: the position of each in the log of its task, the attempts, and how
// destinations answer. It knows nothing of HTTP requests.
package webhooks

import "github.com/a2ad/a2ad/internal/store/db"

// Store is safe for concurrent use.
type Store struct {
	db     *db.DB
	pushes claimFloor
	turns  tenantTurns
}

// New returns the store of webhooks on a database.
func New(conns *db.DB) *Store { return &Store{db: conns} }
