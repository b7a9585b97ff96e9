package db

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/store/db/dbsqlc"
)

// Tx is one transaction, or one statement that commits itself. It runs statements, and it collects what
// others are told once the commit is acknowledged: its effects.
//
// An effect runs after the commit and never before. It does not run if the transaction is rolled back, or if
// COMMIT returns an error, since the outcome is then unknown: the polls and the rescue find what was stored.
type Tx struct {
	dbsqlc.DBTX
	pool    *Pool
	effects []func()
	keys    []string
}

// isClosed reports whether the connection of the transaction was given up.
func (tx *Tx) isClosed() bool {
	begun, ok := tx.DBTX.(*poolTx)
	return ok && begun.conn.Conn().IsClosed()
}

// After registers an effect, which runs after the commit and after the effects that were registered before. It must not
// block.
func (tx *Tx) After(effect func()) { tx.effects = append(tx.effects, effect) }

// Wake registers keys to wake, each once, after the commit and all effects.
func (tx *Tx) Wake(keys ...string) {
	for _, key := range keys {
		if !slices.Contains(tx.keys, key) {
			tx.keys = append(tx.keys, key)
		}
	}
}

// Confirm makes the commit wait for a synchronous standby although the transaction writes nothing. Call it where the
// answer rests on what an earlier transaction has stored, which may have got no answer. A row lock does the same.
func (tx *Tx) Confirm(ctx context.Context) error {
	_, err := tx.Exec(ctx, emitRecord)
	return err
}

// Actor names the process in the audit log.
func (tx *Tx) Actor() string { return tx.pool.store.cfg.Actor }

// committed runs the effects.
func (tx *Tx) committed() {
	for _, effect := range tx.effects {
		effect()
	}
	if len(tx.keys) > 0 {
		tx.pool.store.cfg.Wake(tx.keys...)
	}
}

// InTx runs f in one transaction, commits it, runs its effects, and returns the value of f. With an error there is no
// value and no effect: what a transaction has read and made counts for nothing before its commit. For the same
// reason f changes nothing outside of it; TestTransactionsReturnWhatTheyDid looks. If COMMIT returns an error, the
// outcome is unknown.
func InTx[T any](ctx context.Context, pool *Pool, f func(tx *Tx) (T, error)) (T, error) {
	begun, err := pool.begin(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return commit(ctx, pool, begun, f)
}

// InTxWithin is InTx for a transaction with a statement that may take up to limit. f must still raise PostgreSQL's own
// timeout. Meanwhile the connection is not closed for being silent.
func InTxWithin[T any](ctx context.Context, pool *Pool, limit time.Duration, f func(tx *Tx) (T, error)) (T, error) {
	begun, err := pool.begin(ctx)
	if err != nil {
		var none T
		return none, err
	}
	defer allowSilence(begun.conn.Conn(), limit)()
	return commit(ctx, pool, begun, f)
}

func commit[T any](ctx context.Context, pool *Pool, begun *poolTx, f func(tx *Tx) (T, error)) (T, error) {
	var none T
	defer begun.rollback(ctx)
	tx := &Tx{DBTX: begun, pool: pool}
	v, err := f(tx)
	if err != nil {
		return none, err
	}
	if err := begun.commit(ctx); err != nil {
		return none, commitError{err}
	}
	tx.committed()
	return v, nil
}

// commitError is an error of a commit: the outcome of the transaction is unknown.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

// InTxOnce is InTx for changes that must not be made twice. It is repeated only if the connection was lost before the
// commit, when nothing can be stored.
func InTxOnce[T any](ctx context.Context, s *DB, f func(tx *Tx) (T, error)) (T, error) {
	return Repeat(ctx, s, func(int) (T, error) {
		v, err := InTx(ctx, s.work, f)
		var unknown commitError
		if errors.As(err, &unknown) {
			return v, Unavailable(err)
		}
		return v, err
	})
}

// DoInTx is InTx for a transaction without a value.
func DoInTx(ctx context.Context, pool *Pool, f func(tx *Tx) error) error {
	_, err := InTx(ctx, pool, func(tx *Tx) (struct{}, error) { return struct{}{}, f(tx) })
	return err
}

// Autocommit runs f, whose only writing statement commits itself, and then its effects. Without an error the statement
// was acknowledged, and so was its commit.
func Autocommit[T any](_ context.Context, pool *Pool, f func(tx *Tx) (T, error)) (T, error) {
	tx := &Tx{DBTX: pool, pool: pool}
	v, err := f(tx)
	if err != nil {
		var none T
		return none, err
	}
	tx.committed()
	return v, nil
}

// Search runs statements whose best plan depends on their arguments.
func (s *DB) Search(ctx context.Context, f func(tx *Tx) error) error {
	return DoInTx(ctx, s.work, func(tx *Tx) error {
		if err := tx.PlanForArguments(ctx); err != nil {
			return err
		}
		return f(tx)
	})
}

// SearchAs is Search for a caller, on the pool of requests, as As.
func (s *DB) SearchAs(ctx context.Context, c Caller, f func(tx *Tx) error) error {
	leave, err := s.enter(ctx, s.calls)
	if err != nil {
		return err
	}
	defer leave()
	return DoInTx(ctx, s.api, func(tx *Tx) error {
		if _, err := tx.Exec(ctx, setCaller, c.settings()...); err != nil {
			return err
		}
		if err := tx.PlanForArguments(ctx); err != nil {
			return err
		}
		return f(tx)
	})
}

// PlanForArguments makes PostgreSQL plan the following statements of the transaction for their arguments.
func (tx *Tx) PlanForArguments(ctx context.Context) error {
	return dbsqlc.New(tx).PlanForArguments(ctx)
}

// AsLogin runs statements with the rights of the login. The roles may not see what other connections do.
func (s *DB) AsLogin(ctx context.Context, f func(tx *Tx) error) error {
	return DoInTx(ctx, s.work, func(tx *Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL ROLE NONE"); err != nil {
			return err
		}
		return f(tx)
	})
}

// TryChore locks a maintenance job until the transaction ends. It reports false if another process has the lock.
func (tx *Tx) TryChore(ctx context.Context, chore int32) (bool, error) {
	return dbsqlc.New(tx).ChoreLock(ctx, choreClass, chore)
}

// Now returns the database's time.
func (tx *Tx) Now(ctx context.Context) (time.Time, error) {
	at, err := dbsqlc.New(tx).Now(ctx)
	return at.Time, err
}

// AllowStatements lets each following statement of the transaction take up to limit.
func (tx *Tx) AllowStatements(ctx context.Context, limit time.Duration) error {
	return dbsqlc.New(tx).StatementsMayTake(ctx, strconv.FormatInt(limit.Milliseconds(), 10))
}

// Conn is what statements run on: a Tx, a pool, or a pool as a caller.
type Conn = dbsqlc.DBTX
