// Package operate reads what the operator and the metrics show of the whole service, and brings the schema up and down.
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

// New returns the room on a database.
func New(conns *db.DB, keys *access.Store) *Store { return &Store{db: conns, access: keys} }
