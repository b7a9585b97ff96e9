package webhooks

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/webhooks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// NewWebhook is a webhook to be set. Seal encrypts its secrets for storage; the encrypted bytes are bound to the row's
// id.
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

// sealed returns the URL and the secrets in the form that is stored.
func (p *NewWebhook) sealed(row a2a.ID) (s Secrets, err error) {
	if s.Token, s.Credentials, err = p.Seal(row); err != nil {
		return s, err
	}
	if s.URL = p.URL; p.SealURL != nil {
		s.URL, s.Query, err = p.SealURL(row)
	}
	return s, err
}

// Secrets are the URL of a webhook and its parts that are stored encrypted.
type Secrets struct {
	URL         string // ends in a2a.RedactedQuery if there is a Query
	Token       []byte
	Credentials []byte
	Query       []byte
}

// Webhook is a webhook as its client may see it: without secrets. The query of its URL is a secret.
type Webhook struct {
	Row       a2a.ID
	ConfigID  string
	URL       string
	Schemes   []string
	CreatedAt time.Time // with Row, its position in the list
}

// Setting is a webhook to be set, with the facts of its task.
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

// Set adds or replaces a webhook of a task that the transaction has locked or inserted.
func Set(ctx context.Context, tx *db.Tx, in Setting) error {
	q := dbsqlc.New(tx)
	p := in.Webhook
	have, err := q.PushOfTaskForCaller(ctx, dbsqlc.PushOfTaskForCallerParams{
		TaskID: db.PGID(in.Task), Tenant: in.Owner.Tenant, Owner: in.Owner.Owner,
	})
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
		ID: db.PGID(row), TaskID: db.PGID(in.Task), ConfigID: p.ConfigID, Tenant: in.Owner.Tenant,
		Owner: in.Owner.Owner, Agent: in.Agent,
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

// gatherPush is how long chunks of artifacts gather before they are delivered: the body of a request is the whole task,
// so one request can cover many chunks.
const gatherPush = 250 * time.Millisecond

// HeadMoves collects the tasks that get events in a transaction, for their webhooks.
type HeadMoves struct {
	ids    []pgtype.UUID
	urgent []bool
}

// Add records that a task has new events. Urgent events do not wait for more.
func (m *HeadMoves) Add(id pgtype.UUID, hasPush, urgent bool) {
	if hasPush {
		m.ids, m.urgent = append(m.ids, id), append(m.urgent, urgent)
	}
}

// Move moves the heads of the webhooks. If one has something to deliver, deliverers are woken after the commit.
func (m *HeadMoves) Move(ctx context.Context, tx *db.Tx) error {
	if len(m.ids) == 0 {
		return nil
	}
	n, err := dbsqlc.New(tx).PushHeadMove(ctx, dbsqlc.PushHeadMoveParams{
		TaskIds: m.ids, Urgent: m.urgent, Gather: db.PGInterval(gatherPush),
	})
	if n > 0 {
		tx.Wake(wake.Webhooks)
	}
	return err
}

// OfTask lists the webhooks of a task of the caller, oldest first; with an id, only that one. The caller has checked
// that the task exists.
func (s *Store) OfTask(ctx context.Context, c db.Caller, task a2a.ID, configID string) ([]Webhook, error) {
	var rows []dbsqlc.PushOfTaskForCallerRow
	err := s.db.RepeatRead(ctx, func() (err error) {
		rows, err = dbsqlc.New(s.db.As(c)).PushOfTaskForCaller(ctx, dbsqlc.PushOfTaskForCallerParams{
			TaskID: db.PGID(task), Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared, ConfigID: configID,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	out := make([]Webhook, len(rows))
	for i, r := range rows {
		out[i] = Webhook{
			Row: r.ID.Bytes, ConfigID: r.ConfigID, URL: a2a.RedactURL(r.Url), Schemes: r.Schemes,
			CreatedAt: r.CreatedAt.Time.UTC(),
		}
	}
	return out, nil
}

const deletePoll = 20 * time.Millisecond

// Delete deletes a webhook. After it returns, no request to the webhook starts: it waits until a delivery that is being
// sent is recorded, or until its lease has expired, after which its deliverer sends nothing. Deleting a webhook that
// does not exist is no error, and waits in the same way, because an earlier delete may have been interrupted.
func (s *Store) Delete(ctx context.Context, c db.Caller, task a2a.ID, configID string) error {
	err := dbsqlc.New(s.db.Work()).PushDelete(ctx, dbsqlc.PushDeleteParams{
		TaskID: db.PGID(task), ConfigID: configID, Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared,
	})
	if err != nil {
		return fmt.Errorf("delete webhook: %w", db.Unavailable(err))
	}
	ticker := time.NewTicker(deletePoll)
	defer ticker.Stop()
	for {
		busy, err := dbsqlc.New(s.db.Work()).PushBusy(ctx, dbsqlc.PushBusyParams{
			TaskID: db.PGID(task), ConfigID: configID, Tenant: c.Tenant, Owner: c.Owner, Shared: c.Shared,
		})
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
