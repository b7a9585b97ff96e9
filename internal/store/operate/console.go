package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// The reads of this file are for the console. Each is bounded by time and by rows, so that its cost does not grow with
// the table. An empty tenant means all tenants.

// Sampled is a task of which statistics are made.
type Sampled struct {
	Agent     string
	State     a2a.State
	CreatedAt time.Time
	StatusAt  time.Time
}

// Activity is what the agents do now, and what became of the newest tasks.
type Activity struct {
	Recent      []Sampled   // newest first
	Open        []TaskCount // of tasks that have not ended, by agent and state
	Queues      []QueueDepth
	Unreachable []Outage
	Waiting     []WaitingCount
	Workers     []WorkerLoad
	Silent      []RunSeen // the runs that have been silent longest, at most ten
	Push        PushBacklog
	Down        []DestinationDown // at most a hundred
}

// Activity reads the tasks created since a time, at most most of them, and the state of all queues.
func (s *Store) Activity(ctx context.Context, since time.Time, most int) (*Activity, error) {
	a := &Activity{}
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) error {
		q := dbsqlc.New(tx)
		recent, err := q.RecentTasks(ctx, dbsqlc.RecentTasksParams{FirstID: db.PGID(db.IDAt(since)), Max: int32(most)})
		if err != nil {
			return err
		}
		a.Recent = make([]Sampled, len(recent))
		for i, r := range recent {
			a.Recent[i] = Sampled{r.Agent, a2a.State(r.State), r.CreatedAt.Time.UTC(), r.StatusAt.Time.UTC()}
		}
		open, err := q.CountOpen(ctx)
		if err != nil {
			return err
		}
		for _, r := range open {
			a.Open = append(a.Open, TaskCount{Agent: r.Agent, State: a2a.State(r.State), Tasks: r.Tasks})
		}
		return a.readQueues(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("read activity: %w", db.Unavailable(err))
	}
	return a, nil
}

func (a *Activity) readQueues(ctx context.Context, tx *db.Tx) (err error) {
	q, o := dbsqlc.New(tx), &Overview{}
	if o.Queues, err = queueDepths(ctx, q); err != nil {
		return err
	}
	if a.Unreachable, err = tasks.ReadOutages(ctx, tx); err != nil {
		return err
	}
	if a.Waiting, err = countWaiting(ctx, q, waitingPages); err != nil {
		return err
	}
	if err := o.readRuns(ctx, q, 10); err != nil {
		return err
	}
	if err := o.readPush(ctx, tx); err != nil {
		return err
	}
	a.Queues, a.Workers, a.Silent, a.Push, a.Down = o.Queues, o.Workers, o.Runs, o.Push, o.Down
	return nil
}

// Failure is a task that failed or was rejected.
type Failure struct {
	TaskRow
	Message []a2a.Part // of its last status: of a long one, the beginning
	Error   string     // of its last attempt: its beginning; may be empty
}

// Failures returns the newest tasks that failed or were rejected, of those created since a time.
func (s *Store) Failures(ctx context.Context, tenant string, since time.Time, most int) ([]Failure, error) {
	var rows []dbsqlc.RecentFailuresRow
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).RecentFailures(ctx, dbsqlc.RecentFailuresParams{
			FirstID: db.PGID(db.IDAt(since)), Tenant: tenant, Max: int32(most),
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list failures: %w", db.Unavailable(err))
	}
	list := make([]Failure, len(rows))
	for i, r := range rows {
		list[i] = Failure{TaskRow: TaskRow{
			ID: r.ID.Bytes, Tenant: r.Tenant, Owner: r.Owner, Agent: r.Agent, ContextID: r.ContextID,
			State: a2a.State(r.State), StatusAt: r.StatusAt.Time.UTC(), CreatedAt: r.CreatedAt.Time.UTC(),
		}, Error: r.Error, Message: partsOf(r.Message, r.Cut)}
	}
	return list, nil
}

// QuestionFilter selects questions; zero values select all.
type QuestionFilter struct {
	Task          a2a.ID
	Tenant, Owner string
	Agent         string
	Assignee      *string // of this person; "": not assigned; nil: all
	After         a2a.ID  // only of tasks created after this one
	Limit         int
}

// Question is a task that waits for a person.
type Question struct {
	TaskRow
	Message []a2a.Part // the question; may be empty
	Expects a2a.Raw    // what an answer must look like: see `wait.expects`; empty: anything
	Large   bool       // Message is only its beginning, or Expects is left out
	// Who has assigned it to TaskRow.Assignee, and when.
	AssignedBy string
	AssignedAt time.Time
}

// questionBytes is how many bytes of messages a read of questions returns, and how many of expectations.
const questionBytes = 8 << 20

// Questions returns tasks that wait for a person, the oldest task first. The fewer it may return, the larger they may
// be.
func (s *Store) Questions(ctx context.Context, f QuestionFilter) ([]Question, error) {
	var rows []dbsqlc.QuestionsRow
	err := s.db.Lookup(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) (err error) {
		rows, err = dbsqlc.New(tx).Questions(ctx, dbsqlc.QuestionsParams{
			TaskID: pgtype.UUID{Bytes: f.Task, Valid: !f.Task.IsZero()}, Tenant: f.Tenant, Owner: f.Owner,
			Agent: f.Agent, Assignee: f.Assignee, After: db.PGID(f.After), Max: int32(f.Limit),
			Most: int32(questionBytes / max(f.Limit, 1)),
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list questions: %w", db.Unavailable(err))
	}
	list := make([]Question, len(rows))
	for i, r := range rows {
		list[i] = Question{TaskRow: TaskRow{
			ID: r.ID.Bytes, Tenant: r.Tenant, Owner: r.Owner, Agent: r.Agent, ContextID: r.ContextID,
			State: a2a.State(r.State), StatusAt: r.StatusAt.Time.UTC(), CreatedAt: r.CreatedAt.Time.UTC(),
			Assignee: r.Assignee,
		}, Expects: a2a.Raw(r.Expects), AssignedBy: r.AssignedBy, AssignedAt: db.TimeOrZero(r.AssignedAt),
			Message: partsOf(r.Message, r.Cut), Large: r.Cut || r.LeftOut}
	}
	return list, nil
}

// DestinationsDown returns the destinations whose circuit breaker is open, and those that are disabled, at most a
// hundred.
func (s *Store) DestinationsDown(ctx context.Context) ([]DestinationDown, error) {
	o := &Overview{}
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) error {
		return o.readDown(ctx, dbsqlc.New(tx))
	})
	if err != nil {
		return nil, fmt.Errorf("list destinations: %w", db.Unavailable(err))
	}
	return o.Down, nil
}
