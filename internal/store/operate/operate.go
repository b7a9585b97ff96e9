// Package operate reads the state of the whole service for the operator and for metrics, and applies and rolls back
// migrations.
package operate

import (
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
)

// Store is safe for concurrent use. It sees every tenant.
type Store struct {
	db     *db.DB
	access *access.Store
}

// New returns the operator's store on a database.
func New(conns *db.DB, keys *access.Store) *Store { return &Store{db: conns, access: keys} }
