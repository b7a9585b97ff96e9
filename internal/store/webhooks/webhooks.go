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

// NewWebhook is a webhook to be set. Seal encrypts its secrets for storage; it is given the
// row's id, to which the encrypted bytes are bound.
type NewWebhook struct {
	ConfigID string
	URL      string
	Origin   string
	Schemes  []string
	Version  int16 // of the payloads: a2a.V03 or a2a.V10
	Seal     func(row a2a.ID) (token, credentials []byte, err error)
	// SealURL returns the URL without its query, and the encrypted query; nil keeps the URL as it is.
	SealURL func(row a2a.ID) (url string, query []byte, err error)
}

// sealed returns what is stored of the URL and the secrets.
func (p *NewWebhook) sealed(row a2a.ID) (s Secrets, err error) {
	if s.Token, s.Credentials, err = p.Seal(row); err != nil {
		return s, err
	}
	if s.URL = p.URL; p.SealURL != nil {
		s.URL, s.Query, err = p.SealURL(row)
	}
	return s, err
}

// Secrets are the URL of a webhook and what of it is stored encrypted.
type Secrets struct {
	URL         string // ends in a2a.RedactedQuery if there is a Query
	Token       []byte
	Credentials []byte
	Query       []byte
}

// Webhook is a webhook as its client may see it: without secrets, of which the query of its URL is one.
type Webhook struct {
	Row       a2a.ID
	ConfigID  string
	URL       string
	Schemes   []string
	CreatedAt time.Time // with Row its place in the list
}

// Setting is a webhook to be set, with what the transaction knows of its task.
type Setting struct {
	Owner   db.Caller // of the task, whichever caller of the tenant sets it
	Agent   string
	Task    a2a.ID
	Webhook *NewWebhook
	Limit   int   // webhooks of the task; 0: no limit
	From    int64 // events up to it are not delivered
	Head    int64 // the newest event to deliver
	Ended   bool  // the task has ended
}

// Set adds or replaces a webhook of a task that the transaction has locked or made.
func Set(ctx context.Context, tx *db.Tx, in Setting) error {
	q := dbsqlc.New(tx)
	p := in.Webhook
	have, err := q.PushOfTaskForCaller(ctx, dbsqlc.PushOfTaskForCallerParams{TaskID: db.PGID(in.Task), Tenant: in.Owner.Tenant, Owner: in.Owner.Owner})
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
	row := db.NewTaskID()
	sealed, err := p.sealed(row)
	if err != nil {
		return err
	}
	err = q.PushInsert(ctx, dbsqlc.PushInsertParams{
		ID: db.PGID(row), TaskID: db.PGID(in.Task), ConfigID: p.ConfigID, Tenant: in.Owner.Tenant, Owner: in.Owner.Owner, Agent: in.Agent,
		Url: sealed.URL, Query: sealed.Query, Origin: p.Origin, Schemes: schemes(p.Schemes), Token: sealed.Token,
		Credentials: sealed.Credentials, WireVersion: p.Version, Ended: in.Ended, FromSeq: in.From, HeadSeq: in.Head,
	})
	if err != nil {
		return err
	}
	return q.TaskHasPush(ctx, db.PGID(in.Task))
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

// HeadMoves collects the tasks of a transaction that got events, for their webhooks.
type HeadMoves struct {
	ids    []pgtype.UUID
	urgent []bool
}

// Add notes that a task has new events. Urgent ones do not wait for more to come.
func (m *HeadMoves) Add(id pgtype.UUID, hasPush, urgent bool) {
	if hasPush {
		m.ids, m.urgent = append(m.ids, id), append(m.urgent, urgent)
	}
}

// Move moves the heads of the webhooks, which are woken after the commit if one has something to deliver.
func (m *HeadMoves) Move(ctx context.Context, tx *db.Tx) error {
	if len(m.ids) == 0 {
		return nil
	}
	n, err := dbsqlc.New(tx).PushHeadMove(ctx, dbsqlc.PushHeadMoveParams{TaskIds: m.ids, Urgent: m.urgent, Gather: db.PGInterval(gatherPush)})
	if n > 0 {
		tx.Wake(wake.Webhooks)
	}
	return err
}

// OfTask lists the webhooks of a task of the caller, oldest first; with an id only that one.
// Whether the task exists is for the caller to ask first.
func (s *Store) OfTask(ctx context.Context, c db.Caller, task a2a.ID, configID string) ([]Webhook, error) {
	var rows []dbsqlc.PushOfTaskForCallerRow
	err := s.db.RepeatRead(ctx, func() (err error) {
		rows, err = dbsqlc.New(s.db.As(c)).PushOfTaskForCaller(ctx, dbsqlc.PushOfTaskForCallerParams{TaskID: db.PGID(task), Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared, ConfigID: configID})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	out := make([]Webhook, len(rows))
	for i, r := range rows {
		out[i] = Webhook{Row: r.ID.Bytes, ConfigID: r.ConfigID, URL: a2a.RedactURL(r.Url), Schemes: r.Schemes, CreatedAt: r.CreatedAt.Time.UTC()}
	}
	return out, nil
}

const deletePoll = 20 * time.Millisecond

// Delete ends a webhook. When it returns no request to it starts any more: it waits until
// a delivery that is under way is recorded, or its lease has run out, after which its deliverer
// sends nothing. Deleting what is not there is fine, and waits for what an earlier delete may
// not have waited for.
func (s *Store) Delete(ctx context.Context, c db.Caller, task a2a.ID, configID string) error {
	err := dbsqlc.New(s.db.Work()).PushDelete(ctx, dbsqlc.PushDeleteParams{TaskID: db.PGID(task), ConfigID: configID, Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared})
	if err != nil {
		return fmt.Errorf("delete webhook: %w", db.Unavailable(err))
	}
	ticker := time.NewTicker(deletePoll)
	defer ticker.Stop()
	for {
		busy, err := dbsqlc.New(s.db.Work()).PushBusy(ctx, dbsqlc.PushBusyParams{TaskID: db.PGID(task), ConfigID: configID, Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared})
		switch {
		case err == nil && !busy:
			return nil
		case err != nil && !db.ConnectionLost(err):
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
	Token       []byte // encrypted
	Credentials []byte // encrypted
	Query       []byte // of URL, encrypted; nil: URL is whole
	Version     int16
	Cursor      int64 // events up to it are settled
	Seq         int64 // the delivery covers the events after Cursor, up to it; the same on every retry
	Attempt     int   // failed tries so far
	Epoch       int64
	Manual      bool            // an operator asked for it
	Traceparent a2a.Traceparent // of the client's newest request that had one
}

// Renew extends the leases of deliveries and returns the rows of those that are held for
// that long from when it was called. One that is not among them may be held still: it stands
// till its lease runs out.
func (s *Store) Renew(ctx context.Context, held []*Delivery, lease time.Duration) ([]a2a.ID, error) {
	ids, epochs := make([]pgtype.UUID, len(held)), make([]int64, len(held))
	for i, d := range held {
		ids[i], epochs[i] = db.PGID(d.Row), d.Epoch
	}
	rows, err := dbsqlc.New(s.db.Renews()).PushRenew(ctx, dbsqlc.PushRenewParams{Ids: ids, Epochs: epochs, Lease: db.PGInterval(lease)})
	if err != nil {
		return nil, fmt.Errorf("renew webhooks: %w", db.Unavailable(err))
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

func (s *Store) writeTry(ctx context.Context, tx *db.Tx, d *Delivery, t *Try, outcome string) error {
	q := dbsqlc.New(tx)
	p := dbsqlc.PushAttemptInsertParams{
		PushID: db.PGID(d.Row), TaskID: db.PGID(d.Task), FromSeq: d.Cursor, Seq: d.Seq, Outcome: outcome, Attempt: int32(d.Attempt + 1), Trigger: TriggerAuto,
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
	return s.recordDelivered(ctx, d, t, terminal, "delivered")
}

// Skipped records that the webhook's server does not want this delivery, and continues
// after it. The errors are those of Delivered.
func (s *Store) Skipped(ctx context.Context, d *Delivery, t *Try, terminal bool) error {
	return s.recordDelivered(ctx, d, t, terminal, "skipped")
}

func (s *Store) recordDelivered(ctx context.Context, d *Delivery, t *Try, terminal bool, outcome string) error {
	seq := &d.Seq
	err := db.DoInTx(ctx, s.db.Work(), func(tx *db.Tx) error {
		q := dbsqlc.New(tx)
		more, err := q.PushDelivered(ctx, dbsqlc.PushDeliveredParams{ID: db.PGID(d.Row), Epoch: d.Epoch, Seq: seq, Terminal: terminal})
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

// errReplaced says that the webhook is another process's by now, or was set again.
var errReplaced = errors.New("webhook replaced")

// replaced frees a webhook of which nothing was recorded, and returns ErrLeaseLost.
func (s *Store) replaced(ctx context.Context, d *Delivery) error {
	if err := s.release(ctx, d, wake.Webhooks); err != nil {
		return err
	}
	return db.ErrLeaseLost
}

// destinationUp closes the breaker of a destination that answers. If it had failed, what is parked there may go on.
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
		ID: db.PGID(d.Row), Epoch: d.Epoch, Seq: &d.Seq, Delay: pgtype.Interval{Microseconds: f.Delay.Microseconds(), Valid: true}, Fate: f.Fate, Reason: t.Reason,
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
		Tenant: d.Tenant, Origin: d.Origin, LastError: t.Reason, MaxFails: int32(f.Breaker.Fails), FirstOpen: db.PGInterval(f.Breaker.FirstOpen),
		MaxOpen: db.PGInterval(f.Breaker.MaxOpen), DisableAfter: db.PGInterval(f.Breaker.DisableAfter),
	})
	if err != nil {
		return false, err
	}
	if !down.Disabled || before {
		return down.Disabled, nil
	}
	return true, access.Record(ctx, tx, access.Action{Name: access.ActionPushDisable, Tenant: d.Tenant, Detail: map[string]any{"destination": d.Origin}})
}

// Release gives a webhook back untried.
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

// EndOfTasks deletes the webhooks of tasks and returns when none of their requests can start.
func (s *Store) EndOfTasks(ctx context.Context, tasks []a2a.ID) error {
	q, ids := dbsqlc.New(s.db.Work()), db.PGIDs(tasks)
	if err := s.db.RepeatRead(ctx, func() error { return q.PushesEnd(ctx, ids) }); err != nil {
		return err
	}
	ticker := time.NewTicker(deletePoll)
	defer ticker.Stop()
	for {
		busy, err := q.PushesBusy(ctx, ids)
		switch {
		case err == nil && !busy:
			return nil
		case err != nil && !db.ConnectionLost(err):
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
