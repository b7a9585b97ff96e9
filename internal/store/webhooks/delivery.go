package webhooks

import (
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

// Delivery is one webhook and what it must deliver: its task as of Seq.
type Delivery struct {
	Row         a2a.ID
	Task        a2a.ID
	ConfigID    string
	Tenant      string
	Owner       string
	Agent       string
	URL         string
	Origin      string
	Schemes     []string
	Token       []byte // encrypted
	Credentials []byte // encrypted
	Query       []byte // of URL, encrypted; nil: URL is whole
	Version     int16
	Cursor      int64 // events up to it were delivered or skipped
	Seq         int64 // the delivery covers the events after Cursor, up to it; the same on every retry
	Attempt     int   // failed attempts so far
	Epoch       int64
	Manual      bool            // an operator asked for it
	Traceparent a2a.Traceparent // of the client's newest request that had one
}

// Renew renews the leases of deliveries and returns the rows of those that it renewed. Another delivery may still have
// its lease, until that expires.
func (s *Store) Renew(ctx context.Context, held []*Delivery, lease time.Duration) ([]a2a.ID, error) {
	ids, epochs := make([]pgtype.UUID, len(held)), make([]int64, len(held))
	for i, d := range held {
		ids[i], epochs[i] = db.PGID(d.Row), d.Epoch
	}
	rows, err := dbsqlc.New(s.db.Renews()).PushRenew(ctx, dbsqlc.PushRenewParams{
		Ids: ids, Epochs: epochs, Lease: db.PGInterval(lease),
	})
	if err != nil {
		return nil, fmt.Errorf("renew webhooks: %w", db.Unavailable(err))
	}
	out := make([]a2a.ID, len(rows))
	for i, r := range rows {
		out[i] = r.Bytes
	}
	return out, nil
}

// What caused an attempt: the schedule, or an operator who asked for a replay.
const (
	TriggerAuto   = "auto"
	TriggerManual = "manual"
)

// Try is the result of one request to a webhook, for the record of attempts.
type Try struct {
	Took     time.Duration
	RemoteIP string
	Status   int
	Class    string // of a failure
	Reason   string // of a failure
	Answer   []byte // head of the answer, without our secrets
}

func (s *Store) writeTry(ctx context.Context, tx *db.Tx, d *Delivery, t *Try, outcome string) error {
	return dbsqlc.New(tx).PushAttemptInsert(ctx, newTry(d, t, outcome))
}

// newTry is a row of the record of attempts.
func newTry(d *Delivery, t *Try, outcome string) dbsqlc.PushAttemptInsertParams {
	p := dbsqlc.PushAttemptInsertParams{
		PushID: db.PGID(d.Row), TaskID: db.PGID(d.Task), FromSeq: d.Cursor, Seq: d.Seq, Outcome: outcome,
		Attempt: int32(d.Attempt + 1), Trigger: TriggerAuto,
		DurationMs: int32(t.Took.Milliseconds()),
	}
	if d.Manual {
		p.Trigger = TriggerManual
	}
	if len(t.Answer) > 0 {
		p.Answer = t.Answer
	}
	set := func(dst **string, v string) {
		if v != "" {
			*dst = &v
		}
	}
	set(&p.RemoteIp, t.RemoteIP)
	set(&p.Class, t.Class)
	set(&p.Reason, t.Reason)
	if t.Status != 0 {
		status := int32(t.Status)
		p.Status = &status
	}
	return p
}

// RecordDelivery records that the webhook's server accepted the delivery. It returns ErrLeaseLost, and has recorded
// nothing, if another replica has the webhook now, or if its client has set it again. In the second case the webhook is
// free at once.
func (s *Store) RecordDelivery(ctx context.Context, d *Delivery, t *Try, terminal bool) error {
	return s.recordDelivered(ctx, d, t, terminal, "delivered")
}

// Delivered is a delivery that the webhook's server accepted.
type Delivered struct {
	*Delivery
	Try      *Try
	Terminal bool // it brought the receiver to the end of the task
}

// RecordDeliveries records deliveries in one statement, and reports which of them it recorded. The caller records the
// others with RecordDelivery: another transaction has their row, or their destination had failed, or their lease is
// lost. With an error nothing is known to be recorded.
func (s *Store) RecordDeliveries(ctx context.Context, list []Delivered) (recorded []bool, err error) {
	var p dbsqlc.PushesDeliveredParams
	for _, d := range list {
		t := newTry(d.Delivery, d.Try, "")
		p.Ids, p.Epochs = append(p.Ids, t.PushID), append(p.Epochs, d.Epoch)
		p.FromSeqs, p.Seqs = append(p.FromSeqs, t.FromSeq), append(p.Seqs, t.Seq)
		p.Terminal, p.Attempts = append(p.Terminal, d.Terminal), append(p.Attempts, t.Attempt)
		p.Triggers, p.DurationsMs = append(p.Triggers, t.Trigger), append(p.DurationsMs, t.DurationMs)
		p.RemoteIps, p.Statuses = append(p.RemoteIps, d.Try.RemoteIP), append(p.Statuses, int32(d.Try.Status))
		p.Answers = append(p.Answers, t.Answer)
	}
	rows, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) ([]dbsqlc.PushesDeliveredRow, error) {
		rows, err := dbsqlc.New(tx).PushesDelivered(ctx, p)
		for _, r := range rows {
			if r.More {
				tx.Wake(wake.Webhooks)
			}
		}
		return rows, err
	})
	if err != nil {
		return nil, fmt.Errorf("record deliveries: %w", db.Unavailable(err))
	}
	done := make(map[a2a.ID]bool, len(rows))
	for _, r := range rows {
		done[r.ID.Bytes] = true
	}
	recorded = make([]bool, len(list))
	for i, d := range list {
		recorded[i] = done[d.Row]
	}
	return recorded, nil
}

// RecordSkip records that the webhook's server refused this delivery, which is not repeated. The errors are those of
// RecordDelivery.
func (s *Store) RecordSkip(ctx context.Context, d *Delivery, t *Try, terminal bool) error {
	return s.recordDelivered(ctx, d, t, terminal, "skipped")
}

func (s *Store) recordDelivered(ctx context.Context, d *Delivery, t *Try, terminal bool, outcome string) error {
	seq := &d.Seq
	err := db.DoInTx(ctx, s.db.Work(), func(tx *db.Tx) error {
		q := dbsqlc.New(tx)
		more, err := q.PushDelivered(ctx, dbsqlc.PushDeliveredParams{
			ID: db.PGID(d.Row), Epoch: d.Epoch, Seq: seq, Terminal: terminal,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return errReplaced
		}
		if err != nil {
			return err
		}
		if more {
			tx.Wake(wake.Webhooks)
		}
		if err := s.writeTry(ctx, tx, d, t, outcome); err != nil {
			return err
		}
		return destinationUp(ctx, tx, d)
	})
	if errors.Is(err, errReplaced) {
		return s.replaced(ctx, d)
	}
	if err != nil {
		return fmt.Errorf("record delivery: %w", db.Unavailable(err))
	}
	return nil
}

// errReplaced says that another replica has the webhook now, or that its client has set it again.
var errReplaced = errors.New("webhook replaced")

// replaced releases a webhook for which nothing was recorded, and returns ErrLeaseLost.
func (s *Store) replaced(ctx context.Context, d *Delivery) error {
	if err := s.release(ctx, d, wake.Webhooks); err != nil {
		return err
	}
	return db.ErrLeaseLost
}

// destinationUp closes the breaker of a destination that answers. If it had failed, its parked webhooks may be
// delivered again.
func destinationUp(ctx context.Context, tx *db.Tx, d *Delivery) error {
	q := dbsqlc.New(tx)
	n, err := q.DestinationUp(ctx, d.Tenant, d.Origin)
	if err != nil || n == 0 {
		return err
	}
	tx.Wake(wake.Webhooks)
	return q.PushListDue(ctx, d.Tenant, d.Origin)
}

// Breaker says when the circuit breaker of a destination opens after failures.
type Breaker struct {
	Fails        int
	FirstOpen    time.Duration
	MaxOpen      time.Duration
	DisableAfter time.Duration
}

// Failure says what happens to a webhook after a failed attempt. With a Fate ("dead" or "disabled") there is no next
// attempt.
type Failure struct {
	Delay   time.Duration
	Fate    string
	Breaker *Breaker // nil: the destination is not the cause
}

// RecordFailure records a failed attempt, and reports whether the destination is disabled. The errors are those of
// RecordDelivery.
func (s *Store) RecordFailure(ctx context.Context, d *Delivery, t *Try, f Failure) (disabled bool, err error) {
	disabled, err = db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (bool, error) { return s.failedIn(ctx, tx, d, t, f) })
	if errors.Is(err, errReplaced) {
		return false, s.replaced(ctx, d)
	}
	if err != nil {
		return false, fmt.Errorf("record failed delivery: %w", db.Unavailable(err))
	}
	return disabled, nil
}

func (s *Store) failedIn(ctx context.Context, tx *db.Tx, d *Delivery, t *Try, f Failure) (disabled bool, err error) {
	q := dbsqlc.New(tx)
	n, err := q.PushFailed(ctx, dbsqlc.PushFailedParams{
		ID: db.PGID(d.Row), Epoch: d.Epoch, Seq: &d.Seq,
		Delay: pgtype.Interval{Microseconds: f.Delay.Microseconds(), Valid: true}, Fate: f.Fate, Reason: t.Reason,
	})
	if err != nil {
		return false, err
	}
	if n == 0 {
		return false, errReplaced
	}
	if err := s.writeTry(ctx, tx, d, t, "failed"); err != nil {
		return false, err
	}
	if f.Breaker == nil && t.Status == 0 {
		return false, nil
	}
	if f.Breaker == nil { // the destination answers: only this webhook has a problem
		return false, destinationUp(ctx, tx, d)
	}
	before, err := q.DestinationLock(ctx, d.Tenant, d.Origin)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, err
	}
	down, err := q.DestinationDown(ctx, dbsqlc.DestinationDownParams{
		Tenant: d.Tenant, Origin: d.Origin, LastError: t.Reason, MaxFails: int32(f.Breaker.Fails),
		FirstOpen: db.PGInterval(f.Breaker.FirstOpen),
		MaxOpen:   db.PGInterval(f.Breaker.MaxOpen), DisableAfter: db.PGInterval(f.Breaker.DisableAfter),
	})
	if err != nil {
		return false, err
	}
	if !down.Disabled || before {
		return down.Disabled, nil
	}
	return true, access.Record(ctx, tx, access.Action{
		Name: access.ActionPushDisable, Tenant: d.Tenant, Detail: map[string]any{"destination": d.Origin},
	})
}

// Release ends the lease of a webhook without an attempt.
func (s *Store) Release(ctx context.Context, d *Delivery) error { return s.release(ctx, d) }

func (s *Store) release(ctx context.Context, d *Delivery, wakes ...string) error {
	_, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (struct{}, error) {
		tx.Wake(wakes...)
		return struct{}{}, dbsqlc.New(tx).PushReleased(ctx, db.PGID(d.Row), d.Epoch)
	})
	if err != nil {
		return fmt.Errorf("release webhook: %w", db.Unavailable(err))
	}
	return nil
}
