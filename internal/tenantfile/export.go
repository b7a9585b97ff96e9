package tenantfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tenants"
)

// Source is what an export works on. It is *tenants.Store.
type Source interface {
	Leave(ctx context.Context, tenant string) (tenants.Move, error)
	Transactions(ctx context.Context) (map[string]int, error)
	Leases(ctx context.Context, tenant string) (int, error)
	ExpireLeases(ctx context.Context, tenant string) (int, error)
	TakeTasks(ctx context.Context, tenant string, after a2a.ID) (last a2a.ID, found bool, err error)
	TakeRest(ctx context.Context, tenant string) (bool, error)
	Finish(ctx context.Context, tenant string) (bool, error)
	Page(ctx context.Context, tenant string, after int64) (int64, []tenants.Row, error)
}

// ExportConfig says how to export a tenant.
type ExportConfig struct {
	Tenant string
	Schema int64
	// Wait is how long attempts may continue, and older transactions may take.
	Wait time.Duration
	// Expire ends the leases of attempts that continue for longer. Else the export ends with an error.
	Expire bool
	// Note is told what the export does.
	Note func(text string)
}

// poll is the time between two looks at what the export waits for.
const poll = 100 * time.Millisecond

// rescueWait is how long a rescue of expired leases may take.
const rescueWait = 30 * time.Second

// Export takes all rows of a tenant and writes them to a file. The caller makes the file durable.
func Export(ctx context.Context, source Source, out io.Writer, cfg ExportConfig) (Manifest, error) {
	move, err := source.Leave(ctx, cfg.Tenant)
	if err != nil {
		return Manifest{}, err
	}
	m := Manifest{Tenant: cfg.Tenant, Move: move.ID, Schema: cfg.Schema}
	if move.State != tenants.Left {
		if err := empty(ctx, source, cfg); err != nil {
			return m, err
		}
	}
	w, err := newWriter(out, cfg.Schema, &move)
	if err != nil {
		return m, fmt.Errorf("write the file: %w", err)
	}
	var number int64
	for {
		var rows []tenants.Row
		if number, rows, err = source.Page(ctx, cfg.Tenant, number); err != nil {
			return m, err
		}
		if number == 0 {
			break
		}
		if err := w.page(number, rows); err != nil {
			return m, fmt.Errorf("write the file: %w", err)
		}
	}
	end, err := w.finish()
	if err != nil {
		return m, fmt.Errorf("write the file: %w", err)
	}
	m.Pages, m.Rows, m.SHA256 = end.Pages, end.Rows, end.SHA256
	return m, nil
}

// empty takes everything that a refused tenant has.
func empty(ctx context.Context, source Source, cfg ExportConfig) error {
	if err := settle(ctx, source, cfg); err != nil {
		return err
	}
	cfg.Note("taking the rows of tenant " + cfg.Tenant)
	for {
		if err := take(ctx, source, cfg.Tenant); err != nil && !db.Blocked(err) {
			return err
		}
		done, err := source.Finish(ctx, cfg.Tenant)
		if err != nil && !db.Blocked(err) {
			return err
		}
		if done {
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// take takes what it can.
func take(ctx context.Context, source Source, tenant string) error {
	var last a2a.ID
	for found := true; found; {
		var err error
		if last, found, err = source.TakeTasks(ctx, tenant, last); err != nil {
			return err
		}
	}
	for more := true; more; {
		var err error
		if more, err = source.TakeRest(ctx, tenant); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until no transaction is left that may not know that the tenant leaves, and no attempt.
func settle(ctx context.Context, source Source, cfg ExportConfig) error {
	old, err := source.Transactions(ctx)
	if err != nil {
		return err
	}
	cfg.Note("tenant " + cfg.Tenant + " is refused from now on; waiting for its attempts to end")
	transactions := func() (string, error) {
		now, err := source.Transactions(ctx)
		maps.DeleteFunc(old, func(id string, _ int) bool { return now[id] == 0 })
		if len(old) == 0 {
			return "", err
		}
		return fmt.Sprintf("transactions that began before have not ended, in the backends %v",
			slices.Sorted(maps.Values(old))), err
	}
	if err := wait(ctx, cfg.Wait, transactions); err != nil {
		return err
	}
	attempts := func() (string, error) {
		n, err := source.Leases(ctx, cfg.Tenant)
		if n == 0 {
			return "", err
		}
		return fmt.Sprintf("%d attempts have not ended: run this again, or with --expire", n), err
	}
	err = wait(ctx, cfg.Wait, attempts)
	if !errors.Is(err, errWaited) || !cfg.Expire {
		return err
	}
	n, err := source.ExpireLeases(ctx, cfg.Tenant)
	if err != nil {
		return err
	}
	cfg.Note(fmt.Sprintf("%d attempts were ended: the tasks are run again after the move", n))
	return wait(ctx, rescueWait, attempts)
}

// errWaited says that something took too long.
var errWaited = errors.New("tenant is still refused here")

// wait calls look until it returns no text.
func wait(ctx context.Context, most time.Duration, look func() (string, error)) error {
	until := time.Now().Add(most)
	for {
		text, err := look()
		if err != nil || text == "" {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s (%w)", text, errWaited)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
