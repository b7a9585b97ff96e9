// Package tenants moves all rows of a tenant from one deployment to another.
//
// A tenant that leaves is refused from the commit of Leave on. Then its rows are taken: one transaction removes a page
// from the tables and stores it in tenant_rows. So every row is in exactly one place, whenever the process is killed.
// An import puts the same pages into the tables of another database, each once and in one transaction with its number.
// The package waits for nothing: its caller repeats until nothing is left.
package tenants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tenants/dbsqlc"
)

// Store is safe for concurrent use.
type Store struct{ db *db.DB }

// New returns the store of moves on a database.
func New(conns *db.DB) *Store { return &Store{conns} }

// State is where a tenant is in its move.
type State string

// The states of a move. Requests of a tenant are refused in all of them but Arrived.
const (
	Leaving  State = "leaving"  // its rows are being taken
	Left     State = "left"     // all were taken
	Arriving State = "arriving" // its rows are being imported
	Arrived  State = "arrived"  // it is served here
)

// Move is the newest move of a tenant.
type Move struct {
	Tenant string
	State  State
	ID     a2a.ID
	Since  time.Time
	Pages  int64  // taken, or imported
	SHA256 string // of the file that was imported
	Kept   bool   // rows that were taken are stored

	again bool // the transaction is repeated: the one before may have been committed
}

// Row is a row of a table, as a JSON object.
type Row struct{ Kind, Body string }

// ErrState says that a tenant is in another state than a method needs.
var ErrState = a2a.Errorf(a2a.CodeInvalidRequest, "the tenant is in another state")

// most is how long a statement may take that moves a page.
const most = 5 * time.Minute

// Moves lists the moves of all tenants, or that of one.
func (s *Store) Moves(ctx context.Context, tenant string) ([]Move, error) {
	var rows []dbsqlc.TenantMovesRow
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).TenantMoves(ctx, tenant)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list moves of tenants: %w", db.Unavailable(err))
	}
	list := make([]Move, len(rows))
	for i, r := range rows {
		list[i] = Move{
			Tenant: r.Tenant, State: State(r.State), ID: r.MoveID.Bytes, Since: db.WireTime(r.Since), Pages: r.Pages,
			SHA256: r.Sha256, Kept: r.Kept,
		}
	}
	return list, nil
}

// page runs f in a transaction that has locked the move of a tenant, and whose statements may take long. It is repeated
// after a lost connection, so f must do nothing twice: it decides by the move.
func page[T any](ctx context.Context, s *Store, tenant string, f func(tx *db.Tx, m *Move) (T, error)) (T, error) {
	return db.Repeat(ctx, s.db, func(try int) (T, error) {
		return db.InTxWithin(ctx, s.db.Work(), most, func(tx *db.Tx) (T, error) {
			var none T
			if err := tx.AllowStatements(ctx, most); err != nil {
				return none, err
			}
			if err := tx.PlanForArguments(ctx); err != nil {
				return none, err
			}
			m := Move{Tenant: tenant, again: try > 1}
			r, err := dbsqlc.New(tx).TenantMoveLock(ctx, tenant)
			if err == nil {
				m.State, m.ID, m.Pages, m.SHA256 = State(r.State), r.MoveID.Bytes, r.Pages, r.Sha256
			} else if !errors.Is(err, pgx.ErrNoRows) {
				return none, err
			}
			return f(tx, &m)
		})
	})
}

// in returns an error unless the move is in one of the states.
func (m *Move) in(states ...State) error {
	for _, s := range states {
		if m.State == s {
			return nil
		}
	}
	if m.State == "" {
		return fmt.Errorf("%w: tenant %s is not moving", ErrState, m.Tenant)
	}
	return fmt.Errorf("%w: tenant %s is %s", ErrState, m.Tenant, m.State)
}

// next stores the state of a move and its number of pages.
func (m *Move) next(ctx context.Context, tx *db.Tx, state State, pages int64) error {
	return dbsqlc.New(tx).TenantMoveNext(ctx, dbsqlc.TenantMoveNextParams{
		Tenant: m.Tenant, State: string(state), Pages: pages,
	})
}

// record adds an action about the move to the audit log.
func (m *Move) record(ctx context.Context, tx *db.Tx, action string) error {
	return access.Record(ctx, tx, access.Action{
		Name: action, Tenant: m.Tenant, Detail: map[string]any{"move": m.ID.String(), "pages": m.Pages},
	})
}

// Transactions lists the transactions that are in progress, with the process of each. One that began before a commit
// may act as if it had not been.
func (s *Store) Transactions(ctx context.Context) (map[string]int, error) {
	var rows []dbsqlc.TransactionsOpenRow
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).TransactionsOpen(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list transactions: %w", db.Unavailable(err))
	}
	open := make(map[string]int, len(rows))
	for _, r := range rows {
		open[r.ID] = int(r.Pid)
	}
	return open, nil
}

// Leases counts the attempts of a tenant that are in progress.
func (s *Store) Leases(ctx context.Context, tenant string) (int, error) {
	var n int64
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(tx *db.Tx) (err error) {
		n, err = dbsqlc.New(tx).TenantLeases(ctx, tenant)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count attempts: %w", db.Unavailable(err))
	}
	return int(n), nil
}
