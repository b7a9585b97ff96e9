package tasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// SetWebhook adds a webhook to a task of the caller. It delivers the events from now on. A webhook with the same id is
// replaced, and the new one continues at its position in the log. Errors for the caller: CodeTaskNotFound,
// CodeInvalidParams (more than limit).
func (s *Store) SetWebhook(
	ctx context.Context, c db.Caller, agent string, task a2a.ID, p webhooks.NewWebhook, limit int,
) error {
	push := &p
	err := db.DoInTx(ctx, s.db.Work(), func(tx *db.Tx) error {
		q := dbsqlc.New(tx)
		t, err := lockForCaller(ctx, q, c, task)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && t.Agent != agent {
			return a2a.ErrTaskNotFound
		}
		if err != nil {
			return err
		}
		tx.Wake(wake.Webhooks)
		return webhooks.Set(ctx, tx, webhooks.Setting{
			Owner: db.Caller{Tenant: t.Tenant, Owner: t.Owner}, Agent: agent, Task: task, Webhook: push, Limit: limit,
			From: t.LastSeq, Head: t.LastSeq, Ended: a2a.State(t.State).Terminal(),
		})
	})
	if err != nil {
		return fmt.Errorf("set webhook: %w", db.Unavailable(err))
	}
	return nil
}
