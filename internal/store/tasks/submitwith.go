package tasks

import (
	"context"

	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// several reports whether a new task needs more than one statement.
func (it *submission) several() bool { return it.Push != nil || it.Action != nil || it.Webhooks != nil }

// submitWith stores what belongs to a new task: its action and its webhooks.
func submitWith(ctx context.Context, tx *db.Tx, it *submission) error {
	if it.Action != nil {
		if err := access.Record(ctx, tx, *it.Action); err != nil {
			return err
		}
	}
	if it.Webhooks != nil {
		if err := it.Webhooks.CopyTo(ctx, tx, it.Caller, it.Agent, it.id, 1); err != nil {
			return err
		}
	}
	if it.Push == nil {
		return nil
	}
	head := int64(1)
	if it.Undecided {
		head = 0 // there may be no task to tell of
	}
	return webhooks.Set(ctx, tx, webhooks.Setting{
		Owner: it.Caller, Agent: it.Agent, Task: it.id, Webhook: it.Push, Limit: it.MaxPushes, Head: head,
	})
}
