package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// NewPush is a webhook to be set. Seal turns its secrets into what is stored; it is given
// the row's id, to which the sealed bytes are bound.
type NewPush struct {
	ConfigID string
	URL      string
	Origin   string
	Schemes  []string
	Version  int16 // of the payloads: a2a.PushV03 or a2a.PushV10
	Seal     func(row a2a.ID) (token, credentials []byte, err error)
	// SealURL returns the URL without its query, and the query sealed; nil keeps the URL as it is.
	SealURL func(row a2a.ID) (url string, query []byte, err error)
}

// sealed returns what is stored of the URL and the secrets.
func (p *NewPush) sealed(row a2a.ID) (s PushSecrets, err error) {
	if s.Token, s.Credentials, err = p.Seal(row); err != nil {
		return s, err
	}
	if s.URL = p.URL; p.SealURL != nil {
		s.URL, s.Query, err = p.SealURL(row)
	}
	return s, err
}

// PushSecrets are the URL of a webhook and what is stored sealed of it.
type PushSecrets struct {
	URL         string // ends in a2a.RedactedQuery if there is a Query
	Token       []byte
	Credentials []byte
	Query       []byte
}

// Push is a webhook as its client may see it: without secrets, of which the query of its URL is one.
type Push struct {
	Row       a2a.ID
	ConfigID  string
	URL       string
	Schemes   []string
	CreatedAt time.Time // with Row its place in the list
}

// pushSetting is a webhook to be set, with what the transaction knows of its task.
type pushSetting struct {
	Owner   Caller // of the task, whichever caller of the tenant sets it
	Agent   string
	Task    a2a.ID
	Webhook *NewPush
	Limit   int   // webhooks of the task; 0: no limit
	From    int64 // events up to it are not delivered
	Head    int64 // the newest event to deliver
	Ended   bool  // the task has ended
}

// setPush adds or replaces a webhook of a task that the transaction has locked or made.
func setPush(ctx context.Context, tx *Tx, in pushSetting) error {
	q := dbsqlc.New(tx)
	p := in.Webhook
	have, err := q.PushOfTaskForCaller(ctx, dbsqlc.PushOfTaskForCallerParams{TaskID: pgID(in.Task), Tenant: in.Owner.Tenant, Owner: in.Owner.Owner})
	if err != nil {
		return err
	}
	for _, h := range have {
		if h.ConfigID != p.ConfigID {
			continue
		}
		sealed, err := p.sealed(h.ID.Bytes)
		if err != nil {
			return err
		}
		return q.PushReplace(ctx, dbsqlc.PushReplaceParams{
			ID: h.ID, Url: sealed.URL, Query: sealed.Query, Origin: p.Origin, Schemes: schemes(p.Schemes),
			Token: sealed.Token, Credentials: sealed.Credentials, WireVersion: p.Version,
		})
	}
	if in.Limit > 0 && len(have) >= in.Limit {
		return a2a.InvalidParams("pushNotificationConfig", "the task has its limit of %d webhooks", in.Limit)
	}
	row := NewTaskID()
	sealed, err := p.sealed(row)
	if err != nil {
		return err
	}
	err = q.PushInsert(ctx, dbsqlc.PushInsertParams{
		ID: pgID(row), TaskID: pgID(in.Task), ConfigID: p.ConfigID, Tenant: in.Owner.Tenant, Owner: in.Owner.Owner, Agent: in.Agent,
		Url: sealed.URL, Query: sealed.Query, Origin: p.Origin, Schemes: schemes(p.Schemes), Token: sealed.Token,
		Credentials: sealed.Credentials, WireVersion: p.Version, Ended: in.Ended, FromSeq: in.From, HeadSeq: in.Head,
	})
	if err != nil {
		return err
	}
	return q.TaskHasPush(ctx, pgID(in.Task))
}

func schemes(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// gatherPush is how long chunks of artifacts gather before a webhook is told of them: its
// body is the whole task, and one request may cover many chunks.
const gatherPush = 250 * time.Millisecond

// moved collects the tasks of a transaction that got events, for their webhooks.
type moved struct {
	ids    []pgtype.UUID
	urgent []bool
}

func (m *moved) add(id pgtype.UUID, hasPush, urgent bool) {
	if hasPush {
		m.ids, m.urgent = append(m.ids, id), append(m.urgent, urgent)
	}
}

// heads moves the heads of the webhooks, which are woken after the commit if one has something to deliver.
func (m *moved) heads(ctx context.Context, tx *Tx) error {
	if len(m.ids) == 0 {
		return nil
	}
	n, err := dbsqlc.New(tx).PushHeadMove(ctx, dbsqlc.PushHeadMoveParams{TaskIds: m.ids, Urgent: m.urgent, Gather: pgInterval(gatherPush)})
	if n > 0 {
		tx.Wake(wake.Webhooks)
	}
	return err
}

// Pushes lists the webhooks of a task of the caller, oldest first; with an id only that one.
// Whether the task exists is for the caller to ask first.
func (s *Store) Pushes(ctx context.Context, c Caller, task a2a.ID, configID string) ([]Push, error) {
	var rows []dbsqlc.PushOfTaskForCallerRow
	err := s.repeat(ctx, func() (err error) {
		rows, err = dbsqlc.New(s.as(c)).PushOfTaskForCaller(ctx, dbsqlc.PushOfTaskForCallerParams{TaskID: pgID(task), Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared, ConfigID: configID})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	out := make([]Push, len(rows))
	for i, r := range rows {
		out[i] = Push{Row: r.ID.Bytes, ConfigID: r.ConfigID, URL: a2a.RedactURL(r.Url), Schemes: r.Schemes, CreatedAt: r.CreatedAt.Time.UTC()}
	}
	return out, nil
}

const deletePoll = 20 * time.Millisecond

// DeletePush ends a webhook. When it returns no request to it starts any more: it waits until
// a delivery that is under way is recorded, or its lease has run out, after which its deliverer
// sends nothing. Deleting what is not there is fine, and waits for what an earlier delete may
// not have waited for.
func (s *Store) DeletePush(ctx context.Context, c Caller, task a2a.ID, configID string) error {
	err := dbsqlc.New(s.work).PushDelete(ctx, dbsqlc.PushDeleteParams{TaskID: pgID(task), ConfigID: configID, Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared})
	if err != nil {
		return fmt.Errorf("delete webhook: %w", unavailable(err))
	}
	ticker := time.NewTicker(deletePoll)
	defer ticker.Stop()
	for {
		busy, err := dbsqlc.New(s.work).PushBusy(ctx, dbsqlc.PushBusyParams{TaskID: pgID(task), ConfigID: configID, Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared})
		switch {
		case err == nil && !busy:
			return nil
		case err != nil && !lost(err):
			return fmt.Errorf("delete webhook: %w", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Delivery is one webhook with what it has to deliver: its task as of Seq.
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
	Token       []byte // sealed
	Credentials []byte // sealed
	Query       []byte // of URL, sealed; nil: URL is whole
	Version     int16
	Cursor      int64 // events up to it are settled
	Seq         int64 // the delivery covers the events behind Cursor up to it; the same on every retry
	Attempt     int   // failed tries so far
	Epoch       int64
	Manual      bool            // an operator asked for it
	Traceparent a2a.Traceparent // of the client's newest request that had one
}

// RenewPushes extends the leases of deliveries and returns the rows of those that are held for
// that long from when it was called. One that is not among them may be held still: it stands
// till its lease runs out.
func (s *Store) RenewPushes(ctx context.Context, held []*Delivery, lease time.Duration) ([]a2a.ID, error) {
	ids, epochs := make([]pgtype.UUID, len(held)), make([]int64, len(held))
	for i, d := range held {
		ids[i], epochs[i] = pgID(d.Row), d.Epoch
	}
	rows, err := dbsqlc.New(s.renews).PushRenew(ctx, dbsqlc.PushRenewParams{Ids: ids, Epochs: epochs, Lease: pgInterval(lease)})
	if err != nil {
		return nil, fmt.Errorf("renew webhooks: %w", unavailable(err))
	}
	out := make([]a2a.ID, len(rows))
	for i, r := range rows {
		out[i] = r.Bytes
	}
	return out, nil
}

// What made a try: the schedule, or an operator who asked for a replay.
const (
	TriggerAuto   = "auto"
	TriggerManual = "manual"
)

// Try is what one request to a webhook came to, for the ledger.
type Try struct {
	Took     time.Duration
	RemoteIP string
	Status   int
	Class    string // of a failure
	Reason   string // of a failure
	Answer   []byte // head of the answer, without our secrets
}

func (s *Store) writeTry(ctx context.Context, tx *Tx, d *Delivery, t *Try, outcome string) error {
	q := dbsqlc.New(tx)
	p := dbsqlc.PushAttemptInsertParams{
		PushID: pgID(d.Row), TaskID: pgID(d.Task), FromSeq: d.Cursor, Seq: d.Seq, Outcome: outcome, Attempt: int32(d.Attempt + 1), Trigger: TriggerAuto,
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
	return q.PushAttemptInsert(ctx, p)
}

// Delivered records that the webhook's server took the delivery. It returns ErrLeaseLost,
// having recorded nothing, if another process has the webhook by now, or if its client has
// set it again: then it is free at once.
func (s *Store) Delivered(ctx context.Context, d *Delivery, t *Try, terminal bool) error {
	return s.settled(ctx, d, t, terminal, "delivered")
}

// SkippedPush records that the webhook's server does not want this delivery, and goes on
// behind it. The errors are those of Delivered.
func (s *Store) SkippedPush(ctx context.Context, d *Delivery, t *Try, terminal bool) error {
	return s.settled(ctx, d, t, terminal, "skipped")
}

func (s *Store) settled(ctx context.Context, d *Delivery, t *Try, terminal bool, outcome string) error {
	seq := &d.Seq
	err := doInTx(ctx, s.work, func(tx *Tx) error {
		q := dbsqlc.New(tx)
		more, err := q.PushDelivered(ctx, dbsqlc.PushDeliveredParams{ID: pgID(d.Row), Epoch: d.Epoch, Seq: seq, Terminal: terminal})
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
		return fmt.Errorf("record delivery: %w", unavailable(err))
	}
	return nil
}

// errReplaced says that the webhook is another process's by now, or was set again.
var errReplaced = errors.New("webhook replaced")

// replaced frees a webhook of which nothing was recorded, and returns ErrLeaseLost.
func (s *Store) replaced(ctx context.Context, d *Delivery) error {
	if err := s.releasePush(ctx, d, wake.Webhooks); err != nil {
		return err
	}
	return ErrLeaseLost
}

// destinationUp closes the breaker of a destination that answers. If it had failed, what is parked there may go on.
func destinationUp(ctx context.Context, tx *Tx, d *Delivery) error {
	q := dbsqlc.New(tx)
	n, err := q.DestinationUp(ctx, d.Tenant, d.Origin)
	if err != nil || n == 0 {
		return err
	}
	tx.Wake(wake.Webhooks)
	return q.PushListLook(ctx, d.Tenant, d.Origin)
}

// Breaker says when a destination rests after failures.
type Breaker struct {
	Fails        int
	FirstOpen    time.Duration
	MaxOpen      time.Duration
	DisableAfter time.Duration
}

// Failure is what becomes of a webhook after a failed try. With a Fate ("dead" or
// "disabled") there is no next one.
type Failure struct {
	Delay   time.Duration
	Fate    string
	Breaker *Breaker // nil: the destination is not to blame
}

// Failed records a failed try, and reports whether the destination is disabled. The errors
// are those of Delivered.
func (s *Store) Failed(ctx context.Context, d *Delivery, t *Try, f Failure) (disabled bool, err error) {
	disabled, err = inTx(ctx, s.work, func(tx *Tx) (bool, error) { return s.failedIn(ctx, tx, d, t, f) })
	if errors.Is(err, errReplaced) {
		return false, s.replaced(ctx, d)
	}
	if err != nil {
		return false, fmt.Errorf("record failed delivery: %w", unavailable(err))
	}
	return disabled, nil
}

func (s *Store) failedIn(ctx context.Context, tx *Tx, d *Delivery, t *Try, f Failure) (disabled bool, err error) {
	q := dbsqlc.New(tx)
	n, err := q.PushFailed(ctx, dbsqlc.PushFailedParams{
		ID: pgID(d.Row), Epoch: d.Epoch, Seq: &d.Seq, Delay: pgtype.Interval{Microseconds: f.Delay.Microseconds(), Valid: true}, Fate: f.Fate, Reason: t.Reason,
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
	if f.Breaker == nil { // it answers: what is wrong is this webhook alone
		return false, destinationUp(ctx, tx, d)
	}
	before, err := q.DestinationLock(ctx, d.Tenant, d.Origin)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, err
	}
	down, err := q.DestinationDown(ctx, dbsqlc.DestinationDownParams{
		Tenant: d.Tenant, Origin: d.Origin, LastError: t.Reason, MaxFails: int32(f.Breaker.Fails), FirstOpen: pgInterval(f.Breaker.FirstOpen),
		MaxOpen: pgInterval(f.Breaker.MaxOpen), DisableAfter: pgInterval(f.Breaker.DisableAfter),
	})
	if err != nil {
		return false, err
	}
	if !down.Disabled || before {
		return down.Disabled, nil
	}
	return true, record(ctx, tx, Action{Name: ActionPushDisable, Tenant: d.Tenant, Detail: map[string]any{"destination": d.Origin}})
}

// ReleasePush gives a webhook back untried.
func (s *Store) ReleasePush(ctx context.Context, d *Delivery) error { return s.releasePush(ctx, d) }

func (s *Store) releasePush(ctx context.Context, d *Delivery, wakes ...string) error {
	_, err := autocommit(ctx, s.work, func(tx *Tx) (struct{}, error) {
		tx.Wake(wakes...)
		return struct{}{}, dbsqlc.New(tx).PushReleased(ctx, pgID(d.Row), d.Epoch)
	})
	if err != nil {
		return fmt.Errorf("release webhook: %w", unavailable(err))
	}
	return nil
}

// endPushes deletes the webhooks of tasks and returns when none of their requests can start.
func (s *Store) endPushes(ctx context.Context, ids []pgtype.UUID) error {
	q := dbsqlc.New(s.work)
	if err := s.repeat(ctx, func() error { return q.PushesEnd(ctx, ids) }); err != nil {
		return err
	}
	ticker := time.NewTicker(deletePoll)
	defer ticker.Stop()
	for {
		busy, err := q.PushesBusy(ctx, ids)
		switch {
		case err == nil && !busy:
			return nil
		case err != nil && !lost(err):
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
