package operate

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// The reads of this file are for the operator, who sees every tenant.

// TaskFilter selects tasks; zero values select all.
type TaskFilter struct {
	ID                              a2a.ID
	Prefix                          string // of the id, as people type it
	Tenant, Owner, Agent, ContextID string
	States                          []a2a.State
	Since, Until                    time.Time // created in this time
	Before                          a2a.ID    // only those after this one in the list
	Parked                          bool      // only those that are parked
	Roots                           bool      // only those that no other task has called
	NotRetried                      bool      // only those that no task was made from
	Limit                           int
}

// ErrNoPrefix says that no id can begin like this.
var ErrNoPrefix = errors.New("no task id begins like this")

// bounds returns the least and the greatest id that ID and Prefix select.
func (f *TaskFilter) bounds() (first, last a2a.ID, err error) {
	if !f.ID.IsZero() {
		return f.ID, f.ID, nil
	}
	return PrefixRange(f.Prefix)
}

// PrefixRange returns the least and the greatest id that begin like a text, as people type it. It returns ErrNoPrefix.
func PrefixRange(text string) (first, last a2a.ID, err error) {
	for i := range last {
		last[i] = 0xff
	}
	digits := strings.ReplaceAll(strings.ToLower(text), "-", "")
	if len(digits) > 2*len(first) {
		return first, last, ErrNoPrefix
	}
	rest := strings.Repeat("0", 2*len(first))[len(digits):]
	if _, err := hex.Decode(first[:], []byte(digits+rest)); err != nil {
		return first, last, ErrNoPrefix
	}
	if _, err := hex.Decode(last[:], []byte(digits+strings.ReplaceAll(rest, "0", "f"))); err != nil {
		return first, last, ErrNoPrefix
	}
	return first, last, nil
}

// TaskRow is a task as the operator sees it in a list.
type TaskRow struct {
	ID         a2a.ID
	Tenant     string
	Owner      string
	Agent      string
	ContextID  string
	State      a2a.State
	StatusAt   time.Time
	CreatedAt  time.Time
	LastSeq    int64
	Attempt    int
	Epoch      int64
	ReadyAt    time.Time // zero: it does not wait for a worker
	Worker     string    // empty: no worker has it
	LeaseUntil time.Time
	Parked     *Parked // nil: it is not
	Parent     a2a.ID  // the task that has called it; zero: a client has sent it
	Assignee   string  // the person who is to answer its question; empty: none. ListTasks does not read it
}

// Parked says since when and why a task has been parked.
type Parked struct {
	Since  time.Time
	Until  time.Time // zero: it stays
	Reason string
}

// ListTasks returns tasks, newest first.
func (s *Store) ListTasks(ctx context.Context, f TaskFilter) ([]TaskRow, error) {
	first, last, err := f.bounds()
	if err != nil {
		return nil, err
	}
	p := dbsqlc.TaskListParams{
		Tenant: f.Tenant, Owner: f.Owner, Agent: f.Agent, ContextID: f.ContextID, States: make([]int16, len(f.States)),
		Max: int32(f.Limit), Parked: f.Parked, NotRetried: f.NotRetried, Roots: f.Roots,
		FirstID: db.PGID(first), LastID: db.PGID(last), Since: db.PGTime(f.Since), Until: db.PGTime(f.Until),
	}
	if !f.Before.IsZero() {
		p.Before, p.BeforeAt = db.PGID(f.Before), db.PGTime(db.IDTime(f.Before))
	}
	for i, st := range f.States {
		p.States[i] = int16(st)
	}
	var rows []dbsqlc.TaskListRow
	err = s.db.Search(ctx, func(tx *db.Tx) (err error) {
		q := dbsqlc.New(tx)
		rows, err = q.TaskList(ctx, p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	tasks := make([]TaskRow, len(rows))
	for i, r := range rows {
		tasks[i] = TaskRow{
			ID: r.ID.Bytes, Tenant: r.Tenant, Owner: r.Owner, Agent: r.Agent, ContextID: r.ContextID,
			State:    a2a.State(r.State),
			StatusAt: r.StatusAt.Time.UTC(), CreatedAt: r.CreatedAt.Time.UTC(), LastSeq: r.LastSeq,
			Attempt: int(r.Attempt), Epoch: r.LeaseEpoch,
			ReadyAt: db.TimeOrZero(r.ReadyAt), Worker: r.Worker, LeaseUntil: db.TimeOrZero(r.LeaseUntil),
			Parent: r.ParentID.Bytes,
		}
		if r.ParkedSince.Valid {
			tasks[i].Parked = &Parked{
				Since: r.ParkedSince.Time.UTC(), Until: db.TimeOrZero(r.ParkedUntil), Reason: r.ParkedReason,
			}
		}
	}
	return tasks, nil
}

// Attempt is one attempt at a task.
type Attempt struct {
	Epoch     int64
	Attempt   int
	Worker    string
	ClaimedAt time.Time
	EndedAt   time.Time // zero: it runs
	Outcome   string
	Error     string
}

// Attempts returns the newest 2,000 attempts at a task, the oldest of them first.
func (s *Store) Attempts(ctx context.Context, id a2a.ID) ([]Attempt, error) {
	rows, err := dbsqlc.New(s.db.Reads()).AttemptsOfTask(ctx, db.PGID(id), timelineRows)
	if err != nil {
		return nil, fmt.Errorf("list attempts: %w", err)
	}
	out := make([]Attempt, len(rows))
	for i, r := range rows {
		out[len(rows)-1-i] = Attempt{
			Epoch: r.Epoch, Attempt: int(r.Attempt), Worker: r.Worker, ClaimedAt: r.ClaimedAt.Time.UTC(),
			EndedAt: db.TimeOrZero(r.EndedAt),
			Outcome: r.Outcome, Error: r.Error,
		}
	}
	return out, nil
}

// Owner returns the owner of a task, or a2a.ErrTaskNotFound.
func (s *Store) Owner(ctx context.Context, id a2a.ID) (db.Caller, error) {
	r, err := dbsqlc.New(s.db.Work()).TaskOwner(ctx, db.PGID(id))
	if errors.Is(err, pgx.ErrNoRows) {
		return db.Caller{}, a2a.ErrTaskNotFound
	}
	if err != nil {
		return db.Caller{}, fmt.Errorf("read owner: %w", err)
	}
	return db.Caller{Tenant: r.Tenant, Owner: r.Owner}, nil
}
