package tasks

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
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Park ends an attempt and parks its task, because its attempts are used up: the task stays working, and no worker
// claims it until an operator resumes it. reason goes into the record of attempts and to the client. After limit the
// task fails; 0 is no limit. It returns ErrLeaseLost if the lease is lost.
func (s *Store) Park(ctx context.Context, l *Lease, reason string, limit time.Duration) error {
	p := dbsqlc.LeaseParkParams{TaskID: db.PGID(l.TaskID), Epoch: l.Epoch, Error: reason}
	if limit > 0 {
		p.ParkFor = db.PGInterval(limit)
	}
	_, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (none struct{}, err error) {
		row, err := dbsqlc.New(tx).LeasePark(ctx, p)
		if err != nil {
			return none, err
		}
		s.tell(tx, l.TaskID)
		if l.Counted {
			tx.Wake(wake.Ready(l.Agent)) // it has made room for a run of another task
		}
		var m webhooks.HeadMoves
		m.Add(row.ID, row.HasPush, true)
		return none, m.Move(ctx, tx)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return db.ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("park: %w", db.UnavailableToRun(err))
	}
	return nil
}

// Resumed is a task that was parked and has fresh attempts.
type Resumed struct {
	Task                 a2a.ID
	Agent, Tenant, Owner string
	Parked               string // why it was parked
}

// Resume gives parked tasks fresh attempts and puts them into the queue. reason goes to their clients and into the
// audit log. It returns those that were parked, in the order of their ids, all or none.
func (s *Store) Resume(ctx context.Context, ids []a2a.ID, reason string) ([]Resumed, error) {
	out, err := db.InTxOnce(ctx, s.db, func(tx *db.Tx) ([]Resumed, error) { return s.ResumeIn(ctx, tx, ids, reason) })
	if err != nil {
		return nil, fmt.Errorf("resume tasks: %w", db.Unavailable(err))
	}
	return out, nil
}

// ResumeIn is Resume in a transaction of the caller.
func (s *Store) ResumeIn(ctx context.Context, tx *db.Tx, ids []a2a.ID, reason string) ([]Resumed, error) {
	rows, err := dbsqlc.New(tx).ParkedResume(ctx, db.PGIDs(ids), reason)
	if err != nil {
		return nil, err
	}
	list := make([]Resumed, len(rows))
	for i, r := range rows {
		list[i] = Resumed{r.ID.Bytes, r.Agent, r.Tenant, r.Owner, r.Reason}
		if err := access.Record(ctx, tx, access.Action{
			Name: access.ActionTaskResume, Tenant: r.Tenant, Owner: r.Owner, Task: r.ID.Bytes,
			Detail: map[string]any{"reason": reason, "parked": r.Reason},
		}); err != nil {
			return nil, err
		}
		tx.Wake(wake.Ready(r.Agent))
	}
	return list, nil
}

// ExpireParked fails at most batch tasks that have been parked for as long as they may, and returns how many. If
// another process is doing this, it does nothing.
func (s *Store) ExpireParked(ctx context.Context, batch int) (int, error) {
	n, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) { return s.expireParkedIn(ctx, tx, batch) })
	if err != nil {
		return 0, fmt.Errorf("fail parked tasks: %w", db.Unavailable(err))
	}
	return n, nil
}

func (s *Store) expireParkedIn(ctx context.Context, tx *db.Tx, batch int) (int, error) {
	q := dbsqlc.New(tx)
	if free, err := tx.TryChore(ctx, db.ChoreParked); err != nil || !free {
		return 0, err
	}
	if err := q.ParkedAnchor(ctx); err != nil {
		return 0, err
	}
	rows, err := q.ParkedOverdue(ctx, int32(batch))
	if err != nil {
		return 0, err
	}
	ids, texts := make([]pgtype.UUID, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		ids[i], texts[i] = r.ID, "parked for too long: "+r.Reason
	}
	return s.failIn(ctx, tx, ids, texts)
}
