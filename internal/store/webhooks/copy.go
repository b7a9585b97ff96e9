package webhooks

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/webhooks/dbsqlc"
)

// Copy says that a new task gets the webhooks of another one.
type Copy struct {
	Of a2a.ID
	// Move encrypts the secrets of a webhook, which are bound to its row, for another row.
	Move func(from, to a2a.ID, s Secrets) (Secrets, error)
}

// CopyTo gives a task that the transaction has inserted the webhooks of another one of the same owner. They deliver all
// of its events, up to head for now. A webhook whose receiver asked to stop is not copied.
func (c *Copy) CopyTo(ctx context.Context, tx *db.Tx, owner db.Caller, agent string, task a2a.ID, head int64) error {
	q := dbsqlc.New(tx)
	rows, err := q.PushesToCopy(ctx, db.PGID(c.Of))
	if err != nil || len(rows) == 0 {
		return err
	}
	for i := range rows {
		r, id := &rows[i], db.NewTaskID()
		s := Secrets{URL: r.Url, Token: r.Token, Credentials: r.Credentials, Query: r.Query}
		s, err := c.Move(r.ID.Bytes, id, s)
		if err != nil {
			return fmt.Errorf("copy webhook %s: %w", r.ConfigID, err)
		}
		if err := q.PushInsert(ctx, dbsqlc.PushInsertParams{
			ID: db.PGID(id), TaskID: db.PGID(task), ConfigID: r.ConfigID, Tenant: owner.Tenant, Owner: owner.Owner,
			Agent: agent, Url: s.URL, Query: s.Query, Origin: r.Origin, Schemes: r.Schemes, Token: s.Token,
			Credentials: s.Credentials, WireVersion: r.WireVersion, HeadSeq: head,
		}); err != nil {
			return err
		}
	}
	return q.TaskHasPush(ctx, db.PGID(task))
}
