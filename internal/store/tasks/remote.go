package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// RemoteLease is the lease that a remote worker says it has. Agents are those that it may work for, with the terms of
// each. A task of another agent is not found.
type RemoteLease struct {
	Task   a2a.ID
	Epoch  int64
	Batch  string // id of the batch that it is about to write; may be empty
	Agents map[string]Terms
}

// Terms are the times that an agent grants a run.
type Terms struct {
	TTL      time.Duration // of a lease
	Deadline time.Duration // of a turn; 0: none
}

// RemoteRun is a lease of a remote worker that was just renewed.
type RemoteRun struct {
	Lease
	ContextID string
	Fresh     time.Duration // for which a renewal would leave the lease as it is
	Silent    time.Duration // since the last event of the task
	Overdue   bool          // the deadline of the turn has passed
	Repeat    *Written      // the answer to an earlier batch with the same id
}

// Written is the answer to a batch.
type Written struct {
	LastSeq int64
	Until   time.Time
}

// RenewRemote renews a lease and reads what the process of a local worker would know of the run. It returns
// ErrLeaseLost if this epoch has no lease, or if the lease has expired, even if no other worker has claimed the task.
func (s *Store) RenewRemote(ctx context.Context, g RemoteLease) (*RemoteRun, error) {
	p := dbsqlc.LeaseRenewRemoteParams{TaskID: db.PGID(g.Task), Epoch: g.Epoch, BatchID: g.Batch}
	for agent, terms := range g.Agents {
		p.Agents, p.Ttls = append(p.Agents, agent), append(p.Ttls, terms.TTL.Milliseconds())
	}
	r, err := db.Repeat(ctx, s.db, func(int) (dbsqlc.LeaseRenewRemoteRow, error) {
		return dbsqlc.New(s.db.Work()).LeaseRenewRemote(ctx, p)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, db.ErrLeaseLost
	}
	if err != nil {
		return nil, fmt.Errorf("hold a lease: %w", db.UnavailableToRun(err))
	}
	if r.BatchUntil.Valid {
		if err := s.confirmBatch(ctx); err != nil {
			return nil, err
		}
	}
	h := &RemoteRun{
		Lease: Lease{
			TaskID: g.Task, Agent: r.Agent, Tenant: r.Tenant, Owner: r.Owner, Worker: r.Worker, Epoch: g.Epoch,
			Attempt: int(r.Attempt),
			Through: r.Through, Until: db.WireTime(r.LeaseUntil), Kept: true, LastSeq: r.LastSeq, Bytes: r.Bytes,
			Steps: int(r.Steps), StepBytes: r.StepBytes, Depth: int(r.Depth),
			HasPush: r.HasPush, Counted: r.Counted, Traceparent: a2a.Traceparent(r.Traceparent),
		},
		ContextID: r.ContextID, Fresh: time.Duration(r.FreshMs) * time.Millisecond,
		Silent:  time.Duration(r.SilentMs) * time.Millisecond,
		Overdue: r.HasDeadline && r.DeadlineInMs <= 0,
		Repeat:  written(r.BatchSeq, r.BatchUntil),
	}
	if r.HasDeadline {
		h.Left = max(time.Duration(r.DeadlineInMs)*time.Millisecond, 1)
	}
	if most := g.Agents[r.Agent].Deadline; most > 0 && h.Left > most {
		h.Left = most
		err := s.db.RepeatRead(ctx, func() error {
			return dbsqlc.New(s.db.Work()).DeadlineBound(ctx, dbsqlc.DeadlineBoundParams{
				TaskID: p.TaskID, Epoch: g.Epoch, Deadline: db.PGInterval(most),
			})
		})
		if err != nil {
			return nil, fmt.Errorf("bound a deadline: %w", db.UnavailableToRun(err))
		}
	}
	return h, nil
}

// RenewedShare is the part of its time that a lease must have left for RenewRemote to leave it as it is.
const RenewedShare = 0.75

// Remote is the run of a claim, as RenewRemote would return it after the claim. ContextID is that of the task.
func (l *Lease) Remote(contextID string, ttl time.Duration) *RemoteRun {
	r := &RemoteRun{Lease: *l, ContextID: contextID, Fresh: time.Duration((1 - RenewedShare) * float64(ttl))}
	r.Checkpoint = nil
	r.Kept = true // another replica may save a checkpoint for the run
	return r
}

// confirmBatch comes before an answer that a batch was written, or that a run has ended: the request that did so may
// have got no answer, because its commit was not on a standby yet.
func (s *Store) confirmBatch(ctx context.Context) error {
	if err := s.db.Confirm(ctx); err != nil {
		return fmt.Errorf("confirm a batch: %w", db.UnavailableToRun(err))
	}
	return nil
}

func written(seq int64, until pgtype.Timestamptz) *Written {
	if !until.Valid {
		return nil
	}
	return &Written{LastSeq: seq, Until: db.WireTime(until)}
}

// RunEnd says how a run ended.
type RunEnd struct {
	Outcome string // as in the record of attempts
	At      time.Time
	LastSeq int64
	Repeat  *Written // the answer to an earlier batch with the same id
}

// EndOfRun reads how a run ended whose lease RenewRemote found lost. It returns ErrLeaseLost if the task, the epoch or
// the agent does not exist, or if the run has no end yet although its lease has expired.
func (s *Store) EndOfRun(ctx context.Context, g RemoteLease) (*RunEnd, error) {
	p := dbsqlc.RunEndedParams{TaskID: db.PGID(g.Task), Epoch: g.Epoch, BatchID: g.Batch}
	for agent := range g.Agents {
		p.Agents = append(p.Agents, agent)
	}
	var r dbsqlc.RunEndedRow
	err := s.db.RepeatRead(ctx, func() (err error) {
		r, err = dbsqlc.New(s.db.Work()).RunEnded(ctx, p)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, db.ErrLeaseLost
	}
	if err != nil {
		return nil, fmt.Errorf("read the end of a run: %w", db.UnavailableToRun(err))
	}
	if err := s.confirmBatch(ctx); err != nil {
		return nil, err
	}
	return &RunEnd{
		Outcome: *r.Outcome, At: db.WireTime(r.EndedAt), LastSeq: r.LastSeq, Repeat: written(r.BatchSeq, r.BatchUntil),
	}, nil
}

// ArtifactIDs returns the ids of the artifacts that the events of a task after seq after name.
func (s *Store) ArtifactIDs(ctx context.Context, task a2a.ID, after int64) (ids []string, err error) {
	err = s.db.RepeatRead(ctx, func() (err error) {
		ids, err = dbsqlc.New(s.db.Work()).ArtifactIDs(ctx, db.PGID(task), after)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read artifact ids: %w", db.UnavailableToRun(err))
	}
	return ids, nil
}

// ForgetBatches removes at most batch ids of batches that are older than that, and returns how many.
func (s *Store) ForgetBatches(ctx context.Context, older time.Duration, batch int) (int, error) {
	n, err := dbsqlc.New(s.db.Work()).BatchesDelete(ctx, db.PGInterval(older), int32(batch))
	if err != nil {
		return 0, fmt.Errorf("forget batch ids: %w", db.Unavailable(err))
	}
	return int(n), nil
}
