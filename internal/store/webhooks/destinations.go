package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/webhooks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// Destination is where webhooks of a tenant are delivered to, as the operator sees it.
type Destination struct {
	Tenant, Origin         string
	Active, Dead, Disabled int64     // webhooks in these states
	Backlog                int64     // events that the active ones have to deliver
	Fails                  int       // in a row
	OpenUntil              time.Time // the circuit breaker is open until then; zero: it is closed
	DisabledAt             time.Time // zero: it is not disabled
	LastError              string    // of the newest request; empty: it succeeded
	NextAt                 time.Time // the next attempt; zero: there is nothing to deliver, or it is disabled
}

// DestinationFilter selects destinations; zero values select all.
type DestinationFilter struct {
	Tenant, Origin           string
	AfterTenant, AfterOrigin string // only those after this one
	Limit                    int
	Timeout                  time.Duration // of the search; 0: that of every statement
}

// Destinations returns destinations with webhooks that are not deleted, by tenant and origin.
func (s *Store) Destinations(ctx context.Context, f DestinationFilter) ([]Destination, error) {
	var rows []dbsqlc.PushDestinationsRow
	limit := cmp.Or(f.Timeout, s.db.StatementTimeout())
	err := s.db.Browse(ctx, limit, func(ctx context.Context, tx *db.Tx) (err error) {
		q := dbsqlc.New(tx)
		rows, err = q.PushDestinations(ctx, dbsqlc.PushDestinationsParams{
			Tenant: f.Tenant, Origin: f.Origin, AfterTenant: f.AfterTenant, AfterOrigin: f.AfterOrigin,
			Max: int32(f.Limit),
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list destinations: %w", db.Unavailable(err))
	}
	out := make([]Destination, len(rows))
	for i, r := range rows {
		d := Destination{
			Tenant: r.Tenant, Origin: r.Origin, Active: r.Active, Dead: r.Dead, Disabled: r.Disabled,
			Backlog: r.Backlog, Fails: int(r.Fails), OpenUntil: db.TimeOrZero(r.OpenUntil),
			DisabledAt: db.TimeOrZero(r.DisabledAt), LastError: r.LastError,
		}
		if r.NextAt.Valid && r.NextAt.InfinityModifier == pgtype.Finite && d.DisabledAt.IsZero() {
			if d.NextAt = r.NextAt.Time.UTC(); d.OpenUntil.After(d.NextAt) {
				d.NextAt = d.OpenUntil // no webhook is tried while the breaker is open
			}
		}
		out[i] = d
	}
	return out, nil
}

// ReplayRange says which webhooks of a destination to replay, and from when on.
type ReplayRange struct {
	Tenant, Origin string
	Since          time.Time     // events that were committed at or after this time
	From           a2a.ID        // only webhooks after this one
	Limit          int           // of webhooks
	Timeout        time.Duration // of the search for them; 0: that of every statement
}

// Replayed is what ReplaySince has done.
type Replayed struct {
	Webhooks int
	Last     a2a.ID // the newest webhook that it has come to
	More     bool   // whether there are webhooks after it
}

// ReplaySince replays webhooks of a destination, each as Replay does, so that the events since a time are delivered
// again. After an error that comes in the middle it returns what it has done; then there is more.
func (s *Store) ReplaySince(ctx context.Context, r ReplayRange) (done Replayed, err error) {
	var rows []dbsqlc.PushesSinceRow
	limit := cmp.Or(r.Timeout, s.db.StatementTimeout())
	err = s.db.Browse(ctx, limit, func(ctx context.Context, tx *db.Tx) (err error) {
		q := dbsqlc.New(tx)
		rows, err = q.PushesSince(ctx, dbsqlc.PushesSinceParams{
			Since: db.PGTime(r.Since), Tenant: r.Tenant, Origin: r.Origin, FromID: db.PGID(r.From),
			Max: int32(r.Limit) + 1,
		})
		return err
	})
	if err != nil {
		return done, fmt.Errorf("find webhooks to replay: %w", db.Unavailable(err))
	}
	if done.More = len(rows) > r.Limit; done.More {
		rows = rows[:r.Limit]
	}
	done.Last = r.From
	for _, row := range rows {
		err := s.Replay(ctx, row.ID.Bytes, row.After)
		switch {
		case err == nil:
			done.Webhooks++
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrNothingToReplay): // it has changed meanwhile
		case done.Webhooks > 0 && ctx.Err() == nil:
			done.More = true
			return done, nil
		default:
			return done, err
		}
		done.Last = row.ID.Bytes
	}
	return done, nil
}

// EnableDestination closes the circuit breaker of a destination and enables it, so that it is called again at once. It
// reports whether that changed anything.
func (s *Store) EnableDestination(ctx context.Context, tenant, origin string) (bool, error) {
	n, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int64, error) {
		q := dbsqlc.New(tx)
		tx.Wake(wake.Webhooks)
		n, err := q.DestinationEnable(ctx, tenant, origin)
		if err != nil || n == 0 {
			return n, err
		}
		if err := q.PushListDue(ctx, tenant, origin); err != nil {
			return n, err
		}
		return n, access.Record(ctx, tx, access.Action{
			Name: access.ActionPushEnable, Tenant: tenant, Detail: map[string]any{"destination": origin},
		})
	})
	if err != nil {
		return false, fmt.Errorf("enable destination: %w", db.Unavailable(err))
	}
	return n > 0, nil
}
