package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store"
)

// pollEvery is how often a test asks PostgreSQL for a state that no event reports.
const pollEvery = 5 * time.Millisecond

// Exec runs a statement and returns how many rows it affected.
func (f *Fixture) Exec(query string, args ...any) int64 {
	f.T.Helper()
	tag, err := f.SQL.Exec(f.T.Context(), query, args...)
	if err != nil {
		f.T.Fatalf("%s: %v", query, err)
	}
	return tag.RowsAffected()
}

// Value reads one value. NULL is the zero value.
func Value[T any](f *Fixture, query string, args ...any) T {
	f.T.Helper()
	var v *T
	if err := f.SQL.QueryRow(f.T.Context(), query, args...).Scan(&v); err != nil {
		f.T.Fatalf("%s: %v", query, err)
	}
	if v == nil {
		return *new(T)
	}
	return *v
}

// Column runs a query of one text column.
func (f *Fixture) Column(query string) []string {
	f.T.Helper()
	rows, err := f.SQL.Query(f.T.Context(), query)
	if err != nil {
		f.T.Fatalf("%s: %v", query, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.T.Fatalf("%s: %v", query, err)
	}
	return out
}

// Lock runs a statement in a transaction, which keeps its locks until release is called or the test ends.
func (f *Fixture) Lock(query string, args ...any) (release func()) {
	f.T.Helper()
	tx, err := f.SQL.Begin(f.T.Context())
	if err != nil {
		f.T.Fatalf("begin: %v", err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.WithoutCancel(f.T.Context())) })
	f.T.Cleanup(release)
	if _, err := tx.Exec(f.T.Context(), query, args...); err != nil {
		f.T.Fatalf("%s: %v", query, err)
	}
	return release
}

// WaitBlocked returns when n backends of the database wait for a lock.
func (f *Fixture) WaitBlocked(n int) {
	f.T.Helper()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		got := Value[int](f, `
			SELECT count(*)::int FROM pg_stat_activity
			WHERE datname = current_database()
			  AND wait_event_type = 'Lock' AND cardinality(pg_blocking_pids(pid)) > 0`)
		if got >= n {
			return
		}
		select {
		case <-tick.C:
		case <-f.T.Context().Done():
			f.T.Fatalf("%d backends wait for a lock, want %d", got, n)
		}
	}
}

// HoldSnapshot leaves a transaction open until the test ends, so that the index entries of deleted rows stay.
func (f *Fixture) HoldSnapshot() {
	f.T.Helper()
	tx, err := f.SQL.BeginTx(f.T.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		f.T.Fatalf("begin: %v", err)
	}
	f.T.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(f.T.Context())) })
	if _, err := tx.Exec(f.T.Context(), "SELECT FROM a2a.task_ready"); err != nil {
		f.T.Fatalf("read in the transaction: %v", err)
	}
}

// IndexEntriesRead closes the store of replica r2, so that its backends report what they read. It returns how many
// entries of the indexes of a table all backends have read.
func (f *Fixture) IndexEntriesRead(r2 *store.Store, table string) int64 {
	f.T.Helper()
	r2.Close()
	for _, pool := range []string{"claim", "worker"} {
		f.WaitDisconnected("a2ad-r2-" + pool)
	}
	return Value[int64](f, "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = $1", table)
}

// WaitDisconnected returns when no backend has that application name: then the statistics hold what they read.
func (f *Fixture) WaitDisconnected(name string) {
	f.T.Helper()
	const connected = `SELECT EXISTS (
		SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1)`
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for Value[bool](f, connected, name) {
		select {
		case <-tick.C:
		case <-f.T.Context().Done():
			f.T.Fatalf("a backend of %s is still connected", name)
		}
	}
}
