// Package access stores API keys, the keys that all replicas share, and the audit log.
package access

import "github.com/a2ad/a2ad/internal/store/db"

// Store is safe for concurrent use.
type Store struct{ db *db.DB }

// New returns the store of keys and actions on a database.
func New(conns *db.DB) *Store { return &Store{db: conns} }
