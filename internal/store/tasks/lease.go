package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// Lease is a worker's claim on one task. Epoch fences its writes. LastSeq, Bytes and Steps follow what the worker
// appends; they belong to the goroutine that appends.
type Lease struct {
	TaskID      a2a.ID
	Agent       string
	Tenant      string
	Owner       string
	Worker      string // empty: this replica
	Epoch       int64
	Attempt     int
	Through     int64         // newest message of the client that this run knows of
	Read        int64         // newest message of the client that an earlier turn has read
	Left        time.Duration // to the deadline of the turn, by the database's clock; 0: none
	Until       time.Time     // when it expires, as of the claim or of RenewRemote
	Checkpoint  a2a.Raw
	Kept        bool // a checkpoint of the task may be stored: its end deletes it
	LastSeq     int64
	Bytes       int64
	Steps       int             // recorded so far
	StepBytes   int64           // of these
	Depth       int             // how many calls have led to the task; 0: a client sent it
	HasPush     bool            // the task had webhooks when it was last read
	Counted     bool            // it counts towards the runs that its agent may have at once
	Traceparent a2a.Traceparent // of the client's newest request that had one
}

// Renewal is the result of renewing one lease.
type Renewal int

// Locked means that another transaction has locked the lease, so it was not renewed. It may still be held.
const (
	Lost Renewal = iota
	Renewed
	Locked
)

// Renew renews the leases and returns the result for each. It waits for no lock, so a row that another transaction has
// locked does not delay the others.
func (s *Store) Renew(ctx context.Context, leases []*Lease, ttl time.Duration) ([]Renewal, error) {
	ids, epochs := columns(leases)
	rows, err := dbsqlc.New(s.db.Renews()).LeaseRenew(ctx, dbsqlc.LeaseRenewParams{
		TaskIds: ids, Epochs: epochs, Ttl: db.PGInterval(ttl),
	})
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", db.Unavailable(err))
	}
	type key struct {
		task  a2a.ID
		epoch int64 // one worker may have a run that lost its lease and the run that followed it
	}
	found := make(map[key]Renewal, len(rows))
	for _, r := range rows {
		found[key{r.TaskID.Bytes, r.Epoch}] = Locked
		if r.Renewed {
			found[key{r.TaskID.Bytes, r.Epoch}] = Renewed
		}
	}
	out := make([]Renewal, len(leases))
	for i, l := range leases {
		out[i] = found[key{l.TaskID, l.Epoch}]
	}
	return out, nil
}

func columns(leases []*Lease) (ids []pgtype.UUID, epochs []int64) {
	ids, epochs = make([]pgtype.UUID, len(leases)), make([]int64, len(leases))
	for i, l := range leases {
		ids[i], epochs[i] = db.PGID(l.TaskID), l.Epoch
	}
	return ids, epochs
}

// States returns the states of tasks, for a worker that has lost their leases. Tasks that do not exist are missing.
func (s *Store) States(ctx context.Context, ids []a2a.ID) (map[a2a.ID]a2a.State, error) {
	rows, err := dbsqlc.New(s.db.Work()).TaskStates(ctx, db.PGIDs(ids))
	if err != nil {
		return nil, fmt.Errorf("read states: %w", db.Unavailable(err))
	}
	out := make(map[a2a.ID]a2a.State, len(rows))
	for _, r := range rows {
		out[r.ID.Bytes] = a2a.State(r.State)
	}
	return out, nil
}

// CancelMetadata returns the metadata of the request that canceled a task, or nil.
func (s *Store) CancelMetadata(ctx context.Context, id a2a.ID) (a2a.Raw, error) {
	body, err := dbsqlc.New(s.db.Work()).EventCancel(ctx, db.PGID(id))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cancel: %w", db.Unavailable(err))
	}
	return rawjson.Get(body, "metadata"), nil
}

// Retry puts a task back into the queue after a failed attempt, to be claimed after delay. reason goes into the record
// of attempts and to the client. It returns ErrLeaseLost if the lease is lost.
func (s *Store) Retry(ctx context.Context, l *Lease, reason string, delay time.Duration) error {
	n, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (int64, error) {
		n, err := dbsqlc.New(tx).LeaseRetry(ctx, dbsqlc.LeaseRetryParams{
			TaskID: db.PGID(l.TaskID), Epoch: l.Epoch, Error: reason,
			Delay: pgtype.Interval{Microseconds: delay.Microseconds(), Valid: true},
		})
		if n > 0 && (delay <= 0 || l.Counted) {
			tx.Wake(wake.Ready(l.Agent))
		}
		return n, err
	})
	if err != nil {
		return fmt.Errorf("give back: %w", db.UnavailableToRun(err))
	}
	if n == 0 {
		return db.ErrLeaseLost
	}
	return nil
}

// Release puts tasks back into the queue at once, without counting the attempt. It skips leases that are lost. reason
// goes into the record of attempts and to the client.
func (s *Store) Release(ctx context.Context, leases []*Lease, reason string) error {
	ids, epochs := columns(leases)
	_, err := db.Repeat(ctx, s.db, func(int) (none struct{}, err error) {
		return db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (none struct{}, err error) {
			agents, err := dbsqlc.New(tx).LeaseRelease(ctx, dbsqlc.LeaseReleaseParams{
				TaskIds: ids, Epochs: epochs, Reason: reason,
			})
			for _, agent := range agents {
				tx.Wake(wake.Ready(agent))
			}
			return none, err
		})
	})
	if err != nil {
		return fmt.Errorf("release leases: %w", db.UnavailableToRun(err))
	}
	return nil
}
