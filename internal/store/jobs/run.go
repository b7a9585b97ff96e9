package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/jobs/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// leaseTTL is how long the lease of a job lasts unless a step renews it. After the death of its server, another one
// continues the job this much later.
const leaseTTL = 30 * time.Second

// Bounds of the step that collects tasks.
const (
	collectTimeout = leaseTTL / 2 // of one search
	collectBatch   = 1000         // tasks of one search
)

// ErrLost says that the lease of a job is lost: it was stopped or has ended, another server runs it, or an earlier try
// of the step was committed although its answer was lost. Nothing was written. Claim the job again, or another one.
var ErrLost = errors.New("the lease of the job is lost")

// Claim takes the lease of the job that no server runs and that was claimed longest ago. With own it is a job that was
// started for this worker, or nothing. A job whose action or filter only a newer version knows is left to its servers.
// It reports false if there is none.
func (s *Store) Claim(ctx context.Context, worker string, own bool) (*Job, bool, error) {
	actions := make([]string, len(Actions))
	for i, a := range Actions {
		actions[i] = string(a)
	}
	row, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (dbsqlc.A2aJob, error) {
		return dbsqlc.New(tx).JobClaim(ctx, dbsqlc.JobClaimParams{
			Worker: worker, Ttl: db.PGInterval(leaseTTL), Own: own, Actions: actions, Filters: filterNames(),
		})
	})
	if notFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("claim a job: %w", db.Unavailable(err))
	}
	job, err := decode(&row)
	if err != nil {
		return nil, false, fmt.Errorf("claim a job: %w", err)
	}
	return &job, true, nil
}

// Release gives the lease back, so that another server may claim the job at once. A lost lease is no error.
func (s *Store) Release(ctx context.Context, j *Job) error {
	_, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (int64, error) {
		n, err := dbsqlc.New(tx).JobRelease(ctx, db.PGID(j.ID), j.epoch)
		if n > 0 {
			tx.Wake(wake.Jobs)
		}
		return n, err
	})
	if err != nil {
		return fmt.Errorf("release a job: %w", db.Unavailable(err))
	}
	return nil
}

// Collect adds the next tasks to a job, at most 1,000, and changes j accordingly. Tasks that were created after the job
// do not belong to it. It returns ErrLost, or fails as SearchTasks does.
func (s *Store) Collect(ctx context.Context, j *Job) error {
	search, err := j.Filter.Search()
	if err != nil {
		return err
	}
	var found []operate.FoundTask
	if j.Action.Narrow(&search) {
		search.After, search.Limit, search.Timeout = j.last, collectBatch, collectTimeout
		until(&search, j.CreatedAt)
		if found, err = s.operate.SearchTasks(ctx, search); err != nil {
			return err
		}
	}
	p := dbsqlc.JobCollectParams{
		ID: db.PGID(j.ID), Epoch: j.epoch, Tasks: make([]pgtype.UUID, len(found)), Ttl: db.PGInterval(leaseTTL),
		Complete: len(found) < collectBatch,
		After:    pgtype.UUID{Bytes: j.last.ID, Valid: !j.last.ID.IsZero()},
	}
	last := j.last
	for i := range found {
		p.Tasks[i] = db.PGID(found[i].ID)
		last = operate.Position{CreatedAt: found[i].CreatedAt, ID: found[i].ID}
	}
	p.LastAt, p.LastID = db.PGTime(last.CreatedAt), pgtype.UUID{Bytes: last.ID, Valid: !last.ID.IsZero()}
	remaining, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (int32, error) {
		return dbsqlc.New(tx).JobCollect(ctx, p)
	})
	if notFound(err) {
		return ErrLost
	}
	if err != nil {
		return fmt.Errorf("collect tasks of a job: %w", db.Unavailable(err))
	}
	j.last, j.Collected, j.Remaining = last, p.Complete, int(remaining)
	j.Matched += len(found)
	return nil
}

// Act does the action of a job with its next task, and records what became of it in the same transaction. It changes
// j.Remaining accordingly. move encrypts the secrets of webhooks for the tasks of retries.
//
// It returns ErrLost, or another error if the action could not be done with the task, which stays the next one: repeat
// the call, or Fail the task. If COMMIT fails the outcome is unknown. Repeat the call: if it was committed, the second
// call returns ErrLost, or acts on the task after it.
func (s *Store) Act(ctx context.Context, j *Job, move tasks.MoveSecrets) error {
	next, err := s.next(ctx, j)
	if err != nil {
		return err
	}
	if !j.Webhooks {
		move = nil
	}
	a := &act{store: s, job: j, move: noticed(move), JobNextRow: next}
	if j.Action == Retry && next.Found {
		a.lane = s.tasks.Lane(ctx, next.Agent, db.Caller{Tenant: next.Tenant, Owner: next.Owner})
	}
	ctx = access.ActingBy(ctx, access.By{Actor: j.Actor, Reason: j.Reason, Job: j.ID})
	remaining, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
		p, err := a.do(ctx, tx)
		if err != nil {
			return 0, err
		}
		return s.advance(ctx, tx, j, next.N, p)
	})
	var secrets secretsError
	if errors.As(err, &secrets) {
		return fmt.Errorf("move the secrets of webhooks: %w", secrets.error)
	}
	if err != nil {
		return fmt.Errorf("act on a task: %w", db.Unavailable(err))
	}
	j.Remaining = remaining
	return nil
}

// secretsError is an error of MoveSecrets. It says nothing about the database.
type secretsError struct{ error }

// noticed makes the errors of move recognizable.
func noticed(move tasks.MoveSecrets) tasks.MoveSecrets {
	if move == nil {
		return nil
	}
	return func(from, to a2a.ID, in webhooks.Secrets) (webhooks.Secrets, error) {
		out, err := move(from, to, in)
		if err != nil {
			err = secretsError{err}
		}
		return out, err
	}
}

func (s *Store) next(ctx context.Context, j *Job) (dbsqlc.JobNextRow, error) {
	row, err := dbsqlc.New(s.db.Reads()).JobNext(ctx, db.PGID(j.ID), j.epoch)
	if notFound(err) {
		return row, ErrLost
	}
	if err != nil {
		return row, fmt.Errorf("read the next task of a job: %w", db.Unavailable(err))
	}
	return row, nil
}

// Fail records that the next task of a job has failed, and why, and moves to the task after it. It returns ErrLost.
func (s *Store) Fail(ctx context.Context, j *Job, why string) error {
	remaining, err := db.InTx(ctx, s.db.Work(), func(tx *db.Tx) (int, error) {
		return s.advance(ctx, tx, j, int32(j.Remaining), result{outcome: TaskFailed, detail: why})
	})
	if err != nil {
		return fmt.Errorf("record a failed task: %w", db.Unavailable(err))
	}
	j.Remaining = remaining
	return nil
}

// progressEvery is after how many tasks those who follow a job are woken.
const progressEvery = 25

// advance records what became of task n. It comes last in its transaction: so the row of the job is locked only for a
// moment, and an operator who stops the job does not wait.
func (s *Store) advance(ctx context.Context, tx *db.Tx, j *Job, n int32, r result) (int, error) {
	remaining, err := dbsqlc.New(tx).JobAdvance(ctx, dbsqlc.JobAdvanceParams{
		ID: db.PGID(j.ID), Epoch: j.epoch, N: n, Outcome: string(r.outcome), Detail: r.detail,
		NewTask: pgtype.UUID{Bytes: r.made, Valid: !r.made.IsZero()}, Ttl: db.PGInterval(leaseTTL),
	})
	if notFound(err) {
		return 0, ErrLost
	}
	if err == nil && remaining%progressEvery == 0 {
		tx.Wake(wake.Job(j.ID))
	}
	return int(remaining), err
}

// End ends a job: as done if failure is empty, and else as failed. It returns ErrLost.
func (s *Store) End(ctx context.Context, j *Job, failure string) error {
	p := dbsqlc.JobEndParams{ID: db.PGID(j.ID), Epoch: j.epoch, State: string(Done), Error: failure}
	if failure != "" {
		p.State = string(Failed)
	}
	n, err := db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) (int64, error) {
		tx.Wake(wake.Job(j.ID))
		return dbsqlc.New(tx).JobEnd(ctx, p)
	})
	if err != nil {
		return fmt.Errorf("end a job: %w", db.Unavailable(err))
	}
	if n == 0 {
		return ErrLost
	}
	return nil
}

// result is what became of a task.
type result struct {
	outcome Outcome
	made    a2a.ID
	detail  string
}

func skipped(why string) result { return result{outcome: TaskSkipped, detail: why} }

// act is one call of Act.
type act struct {
	dbsqlc.JobNextRow
	store *Store
	job   *Job
	move  tasks.MoveSecrets
	lane  int16
}

const (
	removed   = "it was removed"
	notParked = "it is not parked"
)

// do locks the task, checks that the action can still be done with it, and does it. Of the filter it checks again what
// can change: the states, and whether the task is parked. The rest is about what a task was made with, or once had.
func (a *act) do(ctx context.Context, tx *db.Tx) (out result, err error) {
	q := dbsqlc.New(tx)
	number, err := q.JobTaskLock(ctx, a.TaskID)
	if notFound(err) || err == nil && !a.Found {
		return skipped(removed), nil
	}
	if err != nil {
		return out, err
	}
	search, err := a.job.Filter.Search()
	if err != nil {
		return out, err
	}
	a.job.Action.Narrow(&search)
	if state := a2a.State(number); !slices.Contains(search.States, state) {
		return skipped("it is " + state.String()), nil
	}
	id := a2a.ID(a.TaskID.Bytes)
	switch a.job.Action {
	case Cancel:
		if search.Parked {
			if parked, err := q.JobTaskParked(ctx, a.TaskID); err != nil || !parked {
				return skipped(notParked), err
			}
		}
		owner := db.Caller{Tenant: a.Tenant, Owner: a.Owner}
		_, err = a.store.tasks.CancelIn(ctx, tx, owner, id) // it has not ended: it is locked
		return result{outcome: TaskDone}, err
	case Retry:
		if retried, err := q.JobTaskRetried(ctx, a.TaskID); err != nil || retried {
			return skipped("it was retried already"), err
		}
		made, err := a.store.tasks.RetryIn(ctx, tx, id, a.move, a.lane)
		return result{outcome: TaskDone, made: made}, err
	case Resume:
		reason := a.job.Reason
		if reason == "" {
			reason = "resumed by an operator"
		}
		list, err := a.store.tasks.ResumeIn(ctx, tx, []a2a.ID{id}, reason)
		if err != nil || len(list) == 0 {
			return skipped(notParked), err
		}
		return result{outcome: TaskDone, detail: list[0].Parked}, nil
	}
	return out, fmt.Errorf("unknown action %q", a.job.Action)
}
