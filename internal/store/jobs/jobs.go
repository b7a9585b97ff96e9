// Package jobs keeps bulk jobs: an action of an operator on all tasks that filters select.
//
// What a job does to a task and the record of it are one transaction, fenced by the epoch of the job's lease. So a job
// skips no task and does nothing twice, whenever the server that runs it is killed. The package waits for nothing: its
// caller claims a job, and asks for one step after another.
package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/jobs/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Store is safe for concurrent use.
type Store struct {
	db      *db.DB
	tasks   *tasks.Store
	operate *operate.Store
}

// New returns the store of bulk jobs on a database.
func New(conns *db.DB, actions *tasks.Store, searches *operate.Store) *Store {
	return &Store{db: conns, tasks: actions, operate: searches}
}

// Action is what a job does to each of its tasks.
type Action string

// The actions.
const (
	Cancel Action = "cancel"
	Retry  Action = "retry"
	Resume Action = "resume"
)

// Actions are all of them.
var Actions = []Action{Cancel, Retry, Resume}

// State is the state of a job.
type State string

// A running job becomes one of the others.
const (
	Running State = "running"
	Done    State = "done"
	Stopped State = "stopped" // by an operator
	Failed  State = "failed"  // its tasks could not be searched for
)

// Outcome is what became of a task of a job.
type Outcome string

// Outcomes of tasks.
const (
	TaskDone    Outcome = "done"
	TaskSkipped Outcome = "skipped" // the action can no longer be done with it
	TaskFailed  Outcome = "failed"
)

// ErrNone says that there is no such job.
var ErrNone = errors.New("no such job")

// ErrAmbiguous says that the ids of several jobs begin like this.
var ErrAmbiguous = errors.New("the ids of several jobs begin like this")

// Job is a bulk job.
type Job struct {
	ID        a2a.ID
	Action    Action
	Filter    Filter
	Webhooks  bool // a retry copies the webhooks
	Actor     string
	Reason    string
	CreatedAt time.Time
	State     State
	EndedAt   time.Time // zero: it runs
	Error     string    // why it failed
	Worker    string    // that runs it, or ran it last

	// Until Collected is true, more tasks may be added.
	Collected                                 bool
	Matched, Remaining, Done, Skipped, Failed int

	epoch int64
	last  operate.Position // of the task that was collected last
}

func decode(r *dbsqlc.A2aJob) (Job, error) {
	j := Job{
		ID: r.ID.Bytes, Action: Action(r.Action), Webhooks: r.Webhooks, Actor: r.Actor, Reason: r.Reason,
		CreatedAt: r.CreatedAt.Time.UTC(), State: State(r.State), EndedAt: db.TimeOrZero(r.EndedAt), Error: r.Error,
		Worker: r.Worker, Collected: r.Collected, Matched: int(r.Matched), Remaining: int(r.Remaining),
		Done: int(r.Done), Skipped: int(r.Skipped), Failed: int(r.Failed), epoch: r.Epoch,
		last: operate.Position{CreatedAt: db.TimeOrZero(r.CollectedAt), ID: r.CollectedID.Bytes},
	}
	if err := json.Unmarshal(r.Filter, &j.Filter); err != nil {
		return j, fmt.Errorf("the filter of job %s: %w", j.ID, err)
	}
	return j, nil
}

// NewJob is a job that is about to be started.
type NewJob struct {
	Action   Action
	Filter   Filter
	Webhooks bool   // a retry copies the webhooks
	Holder   string // the worker that runs it first; empty: any server
}

// Start stores a job, which servers then run. The context says who starts it and why. If the outcome of its COMMIT is
// unknown there is an error, and the job may exist.
func (s *Store) Start(ctx context.Context, in NewJob) (Job, error) {
	filter, err := json.Marshal(in.Filter)
	if err != nil {
		return Job{}, fmt.Errorf("start a job: %w", err)
	}
	p := dbsqlc.JobInsertParams{
		ID: db.PGID(db.NewTaskID()), Action: string(in.Action), Filter: filter, Webhooks: in.Webhooks,
		Worker: in.Holder, Ttl: db.PGInterval(leaseTTL),
	}
	by := access.Action{}.Attributed(ctx)
	p.Reason, _ = by.Detail["reason"].(string)
	job, err := db.InTxOnce(ctx, s.db, func(tx *db.Tx) (Job, error) {
		p := p
		if p.Actor = by.Actor; p.Actor == "" {
			p.Actor = tx.Actor()
		}
		row, err := dbsqlc.New(tx).JobInsert(ctx, p)
		if err != nil {
			return Job{}, err
		}
		tx.Wake(wake.Jobs)
		detail := map[string]any{
			"job": a2a.ID(p.ID.Bytes).String(), "action": p.Action, "filter": json.RawMessage(filter),
		}
		if err := access.Record(ctx, tx, access.Action{Name: access.ActionJobStart, Detail: detail}); err != nil {
			return Job{}, err
		}
		return decode(&row)
	})
	if err != nil {
		return Job{}, fmt.Errorf("start a job: %w", db.Unavailable(err))
	}
	return job, nil
}

// Stop ends a job: after it, the job acts on no more tasks. It reports whether the job was running.
func (s *Store) Stop(ctx context.Context, id a2a.ID) (bool, error) {
	stopped, err := db.InTxOnce(ctx, s.db, func(tx *db.Tx) (bool, error) {
		n, err := dbsqlc.New(tx).JobStop(ctx, db.PGID(id))
		if err != nil {
			return false, err
		}
		if n == 0 {
			return false, tx.Confirm(ctx)
		}
		tx.Wake(wake.Job(id))
		return true, access.Record(ctx, tx, access.Action{
			Name: access.ActionJobStop, Detail: map[string]any{"job": id.String()},
		})
	})
	if err != nil {
		return false, fmt.Errorf("stop a job: %w", db.Unavailable(err))
	}
	return stopped, nil
}

// ListFilter selects jobs; zero values select all.
type ListFilter struct {
	State  State
	Before a2a.ID // only older ones
	Limit  int
}

// List returns jobs, newest first.
func (s *Store) List(ctx context.Context, f ListFilter) (list []Job, err error) {
	var rows []dbsqlc.A2aJob
	err = s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).JobList(ctx, dbsqlc.JobListParams{
			State: string(f.State), Before: pgtype.UUID{Bytes: f.Before, Valid: !f.Before.IsZero()},
			Max: int32(f.Limit),
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", db.Unavailable(err))
	}
	list = make([]Job, len(rows))
	for i := range rows {
		if list[i], err = decode(&rows[i]); err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
	}
	return list, nil
}

// Find returns the job with this id, or the only one whose id begins like this. It returns ErrNone or ErrAmbiguous.
func (s *Store) Find(ctx context.Context, id string) (Job, error) {
	first, last, err := operate.PrefixRange(id)
	if err != nil {
		return Job{}, ErrNone
	}
	var rows []dbsqlc.A2aJob
	err = s.db.Lookup(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).JobRange(ctx, db.PGID(first), db.PGID(last))
		return err
	})
	switch {
	case err != nil:
		return Job{}, fmt.Errorf("find a job: %w", db.Unavailable(err))
	case len(rows) == 0:
		return Job{}, ErrNone
	case len(rows) > 1:
		return Job{}, ErrAmbiguous
	}
	return decode(&rows[0])
}

// Task is what became of a task of a job.
type Task struct {
	N                             int // its number; a job goes from the highest to 1
	ID                            a2a.ID
	Outcome                       Outcome
	New                           a2a.ID // that a retry made
	Detail                        string // why it was skipped or failed; of a resumed task: why it was parked
	Agent, Tenant, Owner, Context string // empty: the task was removed
}

// TaskFilter selects tasks that a job has come to.
type TaskFilter struct {
	Job     a2a.ID
	Before  int  // only those with lower numbers: later ones; 0: all
	Refused bool // only those that were skipped or failed
	Limit   int
}

// Tasks returns what became of tasks, in the order in which the job has come to them.
func (s *Store) Tasks(ctx context.Context, f TaskFilter) ([]Task, error) {
	p := dbsqlc.JobTasksParams{JobID: db.PGID(f.Job), Before: int32(f.Before), Refused: f.Refused, Max: int32(f.Limit)}
	if p.Before == 0 {
		p.Before = 1<<31 - 1
	}
	var rows []dbsqlc.JobTasksRow
	err := s.db.Lookup(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).JobTasks(ctx, p)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list tasks of a job: %w", db.Unavailable(err))
	}
	list := make([]Task, len(rows))
	for i, r := range rows {
		list[i] = Task{
			N: int(r.N), ID: r.TaskID.Bytes, Outcome: Outcome(r.Outcome), New: r.NewTaskID.Bytes, Detail: r.Detail,
			Agent: r.Agent, Tenant: r.Tenant, Owner: r.Owner, Context: r.ContextID,
		}
	}
	return list, nil
}

// Refusal is how many tasks of a job were skipped or failed for one reason.
type Refusal struct {
	Outcome Outcome
	Why     string
	Tasks   int
}

// mostRefusals bounds the reasons that are counted.
const mostRefusals = 20

// Refusals counts the tasks that were skipped or failed, by reason, the most frequent first.
func (s *Store) Refusals(ctx context.Context, job a2a.ID) ([]Refusal, error) {
	var rows []dbsqlc.JobRefusalsRow
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).JobRefusals(ctx, db.PGID(job), mostRefusals)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count refusals of a job: %w", db.Unavailable(err))
	}
	list := make([]Refusal, len(rows))
	for i, r := range rows {
		list[i] = Refusal{Outcome(r.Outcome), r.Detail, int(r.Tasks)}
	}
	return list, nil
}

// Sweep removes a batch of what belongs to jobs that ended longer ago than keep, and returns how many tasks and jobs it
// has forgotten. If another process is doing this, it does nothing.
func (s *Store) Sweep(ctx context.Context, keep time.Duration, batch int) (int, error) {
	n, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
		if free, err := tx.TryChore(ctx, db.ChoreJobs); err != nil || !free {
			return 0, err
		}
		q := dbsqlc.New(tx)
		gone, err := q.JobTasksForget(ctx, int32(batch), db.PGInterval(keep))
		if err != nil {
			return 0, err
		}
		if gone < int64(batch) {
			jobs, err := q.JobsForget(ctx, db.PGInterval(keep))
			if err != nil {
				return 0, err
			}
			gone += jobs
		}
		tx.After(func() { s.db.CountSwept(db.SweepOfJobs, int(gone)) })
		return int(gone), nil
	})
	if err != nil {
		return 0, fmt.Errorf("sweep jobs: %w", db.Unavailable(err))
	}
	return n, nil
}

// notFound reports whether an error says that a statement had no row.
func notFound(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
