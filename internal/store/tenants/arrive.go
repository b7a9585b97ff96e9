package tenants

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tenants/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// ErrKnown says that there are rows of the tenant here already, which no import has put here.
var ErrKnown = a2a.Errorf(a2a.CodeInvalidRequest, "there are rows of this tenant here already")

// ErrOther says that another file of the tenant is being imported, or was.
var ErrOther = a2a.Errorf(a2a.CodeInvalidRequest, "another file of this tenant was imported")

// ErrChanged says that a row is not stored as it was in the file.
var ErrChanged = a2a.Errorf(a2a.CodeInvalidRequest, "a row would not be stored as it is in the file")

// Arrive begins to import a tenant from a file, or continues an import of the same file. It returns how far that is.
func (s *Store) Arrive(ctx context.Context, tenant string, move a2a.ID, sha256 string) (Move, error) {
	m, err := page(ctx, s, tenant, func(tx *db.Tx, m *Move) (Move, error) {
		same := m.ID == move && m.SHA256 == sha256
		switch m.State {
		case Leaving:
			return *m, m.in(Arriving, Arrived)
		case Arriving:
			if !same {
				return *m, ErrOther
			}
			return *m, nil
		case Arrived:
			if same {
				return *m, nil
			}
		}
		q := dbsqlc.New(tx)
		known, err := q.TenantKnown(ctx, tenant)
		if err != nil {
			return *m, err
		}
		if known {
			return *m, ErrKnown
		}
		m.State, m.ID, m.Pages, m.SHA256 = Arriving, move, 0, sha256
		err = q.TenantMoveSet(ctx, dbsqlc.TenantMoveSetParams{
			Tenant: tenant, State: string(Arriving), MoveID: db.PGID(move), Sha256: sha256,
		})
		return *m, err
	})
	if err != nil {
		return m, fmt.Errorf("arrive: %w", err)
	}
	return m, nil
}

// Put stores a page of the file. It does nothing if the page is here already, so it can be repeated. Each row is
// compared with what is stored, before the commit.
func (s *Store) Put(ctx context.Context, tenant string, move a2a.ID, number int64, rows []Row) error {
	_, err := page(ctx, s, tenant, func(tx *db.Tx, m *Move) (none struct{}, err error) {
		if err := m.in(Arriving); err != nil {
			return none, err
		}
		if m.ID != move {
			return none, ErrOther
		}
		if number <= m.Pages {
			return none, nil
		}
		if err := put(ctx, tx, tenant, rows); err != nil {
			return none, err
		}
		return none, m.next(ctx, tx, Arriving, number)
	})
	if err != nil {
		return fmt.Errorf("store page %d: %w", number, inUse(err))
	}
	return nil
}

// put stores rows, table by table.
func put(ctx context.Context, tx *db.Tx, tenant string, rows []Row) error {
	for len(rows) > 0 {
		n := slices.IndexFunc(rows, func(r Row) bool { return r.Kind != rows[0].Kind })
		if n < 0 {
			n = len(rows)
		}
		bodies := make([]string, n)
		for i, r := range rows[:n] {
			bodies[i] = r.Body
		}
		stored, err := dbsqlc.New(tx).TenantPut(ctx, dbsqlc.TenantPutParams{
			Tenant: tenant, Kind: rows[0].Kind, Bodies: bodies,
		})
		if err != nil {
			return err
		}
		if !slices.Equal(stored, bodies) {
			return fmt.Errorf("table %s: %w", rows[0].Kind, ErrChanged)
		}
		rows = rows[n:]
	}
	return nil
}

// inUse says what a violated key means: another tenant has a row with this id.
func inUse(err error) error {
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == "23505" {
		return fmt.Errorf("table %s has another row with the same key: %s: %w", pe.TableName, pe.Detail, err)
	}
	return err
}

// Open serves the tenant here, once all pages are. agents are those whose workers are woken.
func (s *Store) Open(ctx context.Context, tenant string, move a2a.ID, agents []string) error {
	_, err := page(ctx, s, tenant, func(tx *db.Tx, m *Move) (none struct{}, err error) {
		if m.State == Arrived && m.ID == move {
			return none, nil
		}
		if err := m.in(Arriving); err != nil {
			return none, err
		}
		if m.ID != move {
			return none, ErrOther
		}
		if err := m.next(ctx, tx, Arrived, m.Pages); err != nil {
			return none, err
		}
		for _, a := range agents {
			tx.Wake(wake.Ready(a))
		}
		return none, m.record(ctx, tx, access.ActionTenantImport)
	})
	if err != nil {
		return fmt.Errorf("open tenant %s: %w", tenant, err)
	}
	return nil
}

// Reopen puts a page of the rows that were taken back into the tables, and returns false when there is none: the tenant
// is served here again.
func (s *Store) Reopen(ctx context.Context, tenant string) (bool, error) {
	more, err := page(ctx, s, tenant, func(tx *db.Tx, m *Move) (bool, error) {
		if m.State == "" && m.again {
			return false, nil
		}
		if err := m.in(Leaving, Left); err != nil {
			return false, err
		}
		number, rows, err := readPage(ctx, tx, tenant, 0)
		if err != nil {
			return false, err
		}
		q := dbsqlc.New(tx)
		if number == 0 {
			if m.State == Left && m.Pages == 0 {
				return false, fmt.Errorf("%w: the rows of tenant %s were removed", ErrState, tenant)
			}
			if err := q.TenantMoveEnd(ctx, tenant); err != nil {
				return false, err
			}
			return false, m.record(ctx, tx, access.ActionTenantReopen)
		}
		// The keys are still here.
		rows = slices.DeleteFunc(rows, func(r Row) bool { return r.Kind == "api_keys" })
		if err := put(ctx, tx, tenant, rows); err != nil {
			return false, err
		}
		if _, err := q.TenantPageDelete(ctx, tenant, number); err != nil {
			return false, err
		}
		// Pages that are taken from now on come after those that remain.
		return true, m.next(ctx, tx, Leaving, m.Pages)
	})
	if err != nil {
		return false, fmt.Errorf("reopen: %w", inUse(err))
	}
	return more, nil
}
