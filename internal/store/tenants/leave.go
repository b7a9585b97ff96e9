package tenants

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tenants/dbsqlc"
)

// The bounds of a page.
const (
	pageTasks = 100
	pageBytes = 4 << 20
	pageRows  = 2000
)

// Leave begins to move a tenant away, or continues a move that was begun. From its commit on, transactions that begin
// refuse the tenant and claim none of its tasks.
func (s *Store) Leave(ctx context.Context, tenant string) (Move, error) {
	m, err := page(ctx, s, tenant, func(tx *db.Tx, m *Move) (Move, error) {
		switch m.State {
		case Leaving, Left:
			return *m, nil
		case Arriving:
			return *m, m.in(Arrived)
		}
		m.State, m.ID, m.Pages, m.SHA256 = Leaving, db.NewUID(), 0, ""
		err := dbsqlc.New(tx).TenantMoveSet(ctx, dbsqlc.TenantMoveSetParams{
			Tenant: tenant, State: string(Leaving), MoveID: db.PGID(m.ID),
		})
		if err != nil {
			return *m, err
		}
		return *m, m.record(ctx, tx, access.ActionTenantLeave)
	})
	if err != nil {
		return m, fmt.Errorf("leave: %w", err)
	}
	return m, nil
}

// ExpireLeases ends the attempts of a tenant that is leaving, as if their workers had been lost. It returns how many.
func (s *Store) ExpireLeases(ctx context.Context, tenant string) (int, error) {
	n, err := page(ctx, s, tenant, func(tx *db.Tx, m *Move) (int64, error) {
		if err := m.in(Leaving); err != nil {
			return 0, err
		}
		return dbsqlc.New(tx).TenantLeasesExpire(ctx, tenant)
	})
	if err != nil {
		return 0, fmt.Errorf("expire leases: %w", err)
	}
	return int(n), nil
}

// TakeTasks takes a page of tasks after one, with everything about them. It skips tasks at work, and tasks with a
// webhook that is being delivered. It returns the last task that it has read, and false if there was none.
func (s *Store) TakeTasks(ctx context.Context, tenant string, after a2a.ID) (last a2a.ID, found bool, err error) {
	id, err := page(ctx, s, tenant, func(tx *db.Tx, m *Move) (a2a.ID, error) {
		if err := m.in(Leaving, Arriving); err != nil {
			return a2a.ID{}, err
		}
		return takeTasks(ctx, tx, m, after)
	})
	if err != nil {
		return id, false, fmt.Errorf("take tasks: %w", err)
	}
	return id, !id.IsZero(), nil
}

// takeTasks returns the zero id if there was no task.
func takeTasks(ctx context.Context, tx *db.Tx, m *Move, after a2a.ID) (a2a.ID, error) {
	last, err := dbsqlc.New(tx).TenantTakeTasks(ctx, dbsqlc.TenantTakeTasksParams{
		Tenant: m.Tenant, Page: m.Pages + 1, After: db.PGID(after), Most: pageTasks, Bytes: pageBytes,
	})
	if err != nil || !last.Valid {
		return a2a.ID{}, err
	}
	return last.Bytes, m.next(ctx, tx, m.State, m.Pages+1)
}

// TakeRest takes a page of what the tenant has beside tasks. It reports whether there was anything.
func (s *Store) TakeRest(ctx context.Context, tenant string) (bool, error) {
	took, err := page(ctx, s, tenant, func(tx *db.Tx, m *Move) (bool, error) {
		if err := m.in(Leaving, Arriving); err != nil {
			return false, err
		}
		return takeRest(ctx, tx, m)
	})
	if err != nil {
		return false, fmt.Errorf("take what is no task: %w", err)
	}
	return took, nil
}

func takeRest(ctx context.Context, tx *db.Tx, m *Move) (bool, error) {
	n, err := dbsqlc.New(tx).TenantTakeRest(ctx, dbsqlc.TenantTakeRestParams{
		Tenant: m.Tenant, Page: m.Pages + 1, Most: pageRows,
	})
	if err != nil || n == 0 {
		return false, err
	}
	return true, m.next(ctx, tx, m.State, m.Pages+1)
}

// Finish says that the tenant has left, if nothing of it remains, and copies its API keys. It returns false if
// something remains.
func (s *Store) Finish(ctx context.Context, tenant string) (bool, error) {
	done, err := page(ctx, s, tenant, func(tx *db.Tx, m *Move) (bool, error) {
		if m.State == Left {
			return true, nil
		}
		if err := m.in(Leaving); err != nil {
			return false, err
		}
		last, err := takeTasks(ctx, tx, m, a2a.ID{})
		if err != nil || !last.IsZero() {
			return false, err
		}
		if took, err := takeRest(ctx, tx, m); err != nil || took {
			return false, err
		}
		m.Pages++
		if _, err := dbsqlc.New(tx).TenantTakeKeys(ctx, tenant, m.Pages); err != nil {
			return false, err
		}
		if err := m.next(ctx, tx, Left, m.Pages); err != nil {
			return false, err
		}
		return true, m.record(ctx, tx, access.ActionTenantExport)
	})
	if err != nil {
		return false, fmt.Errorf("finish the export: %w", err)
	}
	return done, nil
}

// Page reads the first page after one that has rows. The number 0 means that there is none.
func (s *Store) Page(ctx context.Context, tenant string, after int64) (int64, []Row, error) {
	var number int64
	var rows []Row
	err := s.db.Browse(ctx, most, func(tx *db.Tx) (err error) {
		number, rows, err = readPage(ctx, tx, tenant, after)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("read page %d of tenant %s: %w", after+1, tenant, db.Unavailable(err))
	}
	return number, rows, nil
}

func readPage(ctx context.Context, tx *db.Tx, tenant string, after int64) (int64, []Row, error) {
	q := dbsqlc.New(tx)
	number, err := q.TenantPageNext(ctx, tenant, after)
	if err != nil || number == 0 {
		return 0, nil, err
	}
	stored, err := q.TenantPage(ctx, tenant, number)
	if err != nil {
		return 0, nil, err
	}
	rows := make([]Row, len(stored))
	for i, r := range stored {
		rows[i] = Row{r.Kind, r.Body}
	}
	return number, rows, nil
}

// Forget removes a page of the rows of a tenant that has left, and returns false when there is none. The tenant stays
// refused here. Of a tenant that is arriving it removes what was imported; its last call forgets the move.
func (s *Store) Forget(ctx context.Context, tenant string) (bool, error) {
	more, err := page(ctx, s, tenant, func(tx *db.Tx, m *Move) (bool, error) {
		if m.State == "" && m.again {
			return false, nil
		}
		if err := m.in(Left, Arriving); err != nil {
			return false, err
		}
		q := dbsqlc.New(tx)
		number, err := q.TenantPageNext(ctx, tenant, 0)
		if err != nil {
			return false, err
		}
		if number > 0 {
			_, err := q.TenantPageDelete(ctx, tenant, number)
			return true, err
		}
		if m.State == Arriving {
			if last, err := takeTasks(ctx, tx, m, a2a.ID{}); err != nil || !last.IsZero() {
				return true, err
			}
			if took, err := takeRest(ctx, tx, m); err != nil || took {
				return true, err
			}
			if err := q.TenantMoveEnd(ctx, tenant); err != nil {
				return false, err
			}
		} else if err := m.next(ctx, tx, Left, 0); err != nil { // Reopen finds that there is nothing to put back
			return false, err
		}
		return false, m.record(ctx, tx, access.ActionTenantForget)
	})
	if err != nil {
		return false, fmt.Errorf("forget: %w", err)
	}
	return more, nil
}
