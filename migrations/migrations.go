// Package migrations holds the schema of the database as goose files, embedded into the binary. The files are also what
// sqlc reads the schema from. Applying them is internal/store's part.
package migrations

import "embed"

// FS holds the migration files: NNNNN_name.sql, applied in the order of their numbers. Each has an Up and a Down part.
//
//go:embed *.sql
var FS embed.FS
