package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/webhooks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// The methods of this file are for the operator, who sees every tenant.

// ErrNotFound says that the webhook does not exist, or was deleted.
var ErrNotFound = errors.New("no such webhook")

// ErrNothingToReplay says that no event follows the one after which a webhook was to deliver again.
var ErrNothingToReplay = errors.New("all of it is delivered")

// Row is a webhook as the operator sees it.
type Row struct {
	Row           a2a.ID
	Task          a2a.ID
	ConfigID      string
	Tenant        string
	Owner         string
	URL           string
	Origin        string
	State         string // active, done, dead or disabled
	Reason        string
	Cursor, Head  int64
	Attempt       int
	NextAttemptAt time.Time // zero: there is nothing to deliver
	CreatedAt     time.Time
	DeletedAt     time.Time // zero: in force
	OpenUntil     time.Time // the circuit breaker of its destination is open until then; zero: it is closed
	DisabledAt    time.Time // its destination is disabled since; zero: it is not
}

// Filter selects webhooks; zero values select all.
type Filter struct {
	Row    a2a.ID
	Task   a2a.ID
	Tenant string
	Owner  string
	Origin string
	State  string
	Before a2a.ID // only those set before this one
	Limit  int

	Timeout time.Duration // of the search; 0: that of every statement
}

// List returns webhooks, newest first.
func (s *Store) List(ctx context.Context, f Filter) ([]Row, error) {
	p := dbsqlc.PushListParams{
		ID:     pgtype.UUID{Bytes: f.Row, Valid: !f.Row.IsZero()},
		TaskID: pgtype.UUID{Bytes: f.Task, Valid: !f.Task.IsZero()}, Tenant: f.Tenant, Owner: f.Owner, Origin: f.Origin,
		State:  f.State,
		Before: pgtype.UUID{Bytes: f.Before, Valid: !f.Before.IsZero()}, Max: int32(f.Limit),
	}
	var rows []dbsqlc.PushListRow
	limit := cmp.Or(f.Timeout, s.db.StatementTimeout())
	err := s.db.Browse(ctx, limit, func(ctx context.Context, tx *db.Tx) (err error) {
		q := dbsqlc.New(tx)
		rows, err = q.PushList(ctx, p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	out := make([]Row, len(rows))
	for i, r := range rows {
		out[i] = Row{
			Row: r.ID.Bytes, Task: r.TaskID.Bytes, ConfigID: r.ConfigID, Tenant: r.Tenant, Owner: r.Owner,
			URL: a2a.RedactURL(r.Url), Origin: r.Origin, State: r.State,
			Reason: r.Reason, Cursor: r.CursorSeq, Head: r.HeadSeq, Attempt: int(r.Attempt),
			CreatedAt: r.CreatedAt.Time.UTC(),
			DeletedAt: db.TimeOrZero(r.DeletedAt), OpenUntil: db.TimeOrZero(r.OpenUntil),
			DisabledAt: db.TimeOrZero(r.DisabledAt),
		}
		waits := r.State == "active" && r.CursorSeq < r.HeadSeq && !r.DeletedAt.Valid
		if waits && r.NextAttemptAt.InfinityModifier == pgtype.Finite {
			out[i].NextAttemptAt = db.TimeOrZero(r.NextAttemptAt)
		}
	}
	return out, nil
}

// LedgerEntry is one recorded attempt of a webhook, or a skip.
type LedgerEntry struct {
	From, Seq int64 // it covers the events after From, up to Seq
	Outcome   string
	Attempt   int
	Trigger   string // TriggerAuto or TriggerManual
	StartedAt time.Time
	Try
}

// Attempts returns the recorded attempts of a webhook, newest first, or ErrNotFound.
func (s *Store) Attempts(ctx context.Context, row a2a.ID, limit int) ([]LedgerEntry, error) {
	q := dbsqlc.New(s.db.Work())
	rows, err := q.PushAttempts(ctx, int32(limit), db.PGID(row))
	if err == nil && len(rows) == 0 {
		var known bool
		if known, err = q.PushKnown(ctx, db.PGID(row)); err == nil && !known {
			err = ErrNotFound
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list attempts of a webhook: %w", err)
	}
	out := make([]LedgerEntry, len(rows))
	for i, r := range rows {
		out[i] = LedgerEntry{
			From: r.FromSeq, Seq: r.Seq, Outcome: r.Outcome, Attempt: int(r.Attempt), Trigger: r.Trigger,
			StartedAt: r.StartedAt.Time.UTC(),
			Try: Try{
				Took: time.Duration(r.DurationMs) * time.Millisecond, RemoteIP: r.RemoteIp, Status: int(r.Status),
				Class: r.Class, Reason: r.Reason, Answer: r.Answer,
			},
		}
	}
	return out, nil
}

// Replay delivers the events after after again, and makes a dead or disabled webhook active. If the webhook has
// delivered less, it continues from there. Attempts at events that exist now are recorded as TriggerManual, and the
// schedule starts from the beginning. A request that is being sent ends first, and is not recorded. If the webhook has
// nothing to deliver, it returns ErrNothingToReplay.
func (s *Store) Replay(ctx context.Context, row a2a.ID, after int64) error {
	err := db.DoInTx(ctx, s.db.Work(), func(tx *db.Tx) error {
		q := dbsqlc.New(tx)
		tx.Wake(wake.Webhooks)
		r, err := q.PushReplay(ctx, after, db.PGID(row))
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		if r.State == "done" {
			return ErrNothingToReplay
		}
		return access.Record(ctx, tx, access.Action{
			Name: access.ActionPushReplay, Tenant: r.Tenant, Owner: r.Owner, Task: r.TaskID.Bytes,
			Detail: map[string]any{"webhook": row.String(), "after": r.CursorSeq},
		})
	})
	if err != nil {
		return fmt.Errorf("replay webhook: %w", db.Unavailable(err))
	}
	return nil
}

// SweepPolicy says what Sweep removes.
type SweepPolicy struct {
	Keep   time.Duration // age of failed attempts, answers and deleted webhooks; 0: for ever
	Forget time.Duration // age of the first failure of a destination that is no longer called
	Batch  int           // rows of each kind at once
}

// Sweep removes a batch of old rows: failed attempts, stored answers, deleted webhooks, and the breakers of
// destinations that do not fail or are no longer called. It reports whether there may be more. If another process is
// doing this, it does nothing.
func (s *Store) Sweep(ctx context.Context, w SweepPolicy) (more bool, err error) {
	more, err = db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (bool, error) {
		q := dbsqlc.New(tx)
		free, err := tx.TryChore(ctx, db.ChoreWebhooks)
		if err != nil || !free {
			return false, err
		}
		if _, err := q.PushSweepDestinations(ctx, db.PGInterval(w.Forget)); err != nil || w.Keep <= 0 {
			return false, err
		}
		tries, err := q.PushSweepTries(ctx, db.PGInterval(w.Keep), int32(w.Batch))
		if err != nil {
			return false, err
		}
		deleted, err := q.PushSweepDeleted(ctx, db.PGInterval(w.Keep), int32(w.Batch))
		return tries == int64(w.Batch) || deleted == int64(w.Batch), err
	})
	if err != nil {
		return false, fmt.Errorf("sweep webhooks: %w", db.Unavailable(err))
	}
	return more, nil
}

// Reseal calls reseal with the secrets of every webhook and stores what it returns. It returns how many webhooks were
// changed. Secrets for which reseal fails stay as they are, and the error names them after the others are done. It may
// be repeated.
func (s *Store) Reseal(
	ctx context.Context, reseal func(row a2a.ID, s Secrets) (again Secrets, changed bool, err error),
) (int, error) {
	const page = 500
	q := dbsqlc.New(s.db.Work())
	changed := 0
	var refused []error
	for after := (a2a.ID{}); ; {
		rows, err := q.PushSecrets(ctx, db.PGID(after), page)
		if err != nil {
			return changed, fmt.Errorf("read encrypted secrets: %w", db.Unavailable(err))
		}
		for _, r := range rows {
			after = r.ID.Bytes
			s, differ, err := reseal(after, Secrets{
				URL: r.Url, Token: r.Token, Credentials: r.Credentials, Query: r.Query,
			})
			if err != nil {
				refused = append(refused, fmt.Errorf("reseal webhook %s: %w", after, err))
				continue
			}
			if !differ {
				continue
			}
			n, err := q.PushReseal(ctx, dbsqlc.PushResealParams{
				ID: r.ID, Token: s.Token, Credentials: s.Credentials, Url: s.URL, Query: s.Query,
				OldToken: r.Token, OldCredentials: r.Credentials, OldUrl: r.Url, OldQuery: r.Query,
			})
			if err != nil {
				return changed, fmt.Errorf("store resealed secret: %w", db.Unavailable(err))
			}
			changed += int(n)
		}
		if len(rows) < page {
			return changed, errors.Join(refused...)
		}
	}
}
