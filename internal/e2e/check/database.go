package check

import (
	"context"
	_ "embed" // the queries
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed invariants.sql
var invariants string

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Database returns the violations in a database at quiescence. grace is how long a task may have waited for a worker:
// longer than a lease.
func Database(ctx context.Context, db Querier, grace time.Duration) ([]Violation, error) {
	var found faults
	for name, query := range Invariants() {
		var args []any
		if strings.Contains(query, "$1") {
			args = append(args, grace)
		}
		rows, err := db.Query(ctx, query, args...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for rows.Next() {
			var task *string
			var detail string
			if err := rows.Scan(&task, &detail); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			id := ""
			if task != nil {
				id = *task
			}
			found.add(name, id, "%s", detail)
		}
		if err := rows.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return found, nil
}

const heading = "-- invariant: "

// Invariants yields the names of the invariants and the queries that find violations. A name may have several
// queries.
func Invariants() iter.Seq2[string, string] {
	return func(yield func(name, query string) bool) {
		_, rest, _ := strings.Cut(invariants, heading)
		for rest != "" {
			var one string
			one, rest, _ = strings.Cut(rest, heading)
			name, query, _ := strings.Cut(one, "\n")
			if !yield(name, query) {
				return
			}
		}
	}
}
