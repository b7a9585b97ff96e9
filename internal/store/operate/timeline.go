package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// What wrote an event.
const (
	SourceWorker int16 = 1
	SourceCaller int16 = 2
	SourceServer int16 = 3
)

// Logged is an event of a task as an operator sees it.
type Logged struct {
	Seq    int64
	At     time.Time
	Source int16 // one of the Source… constants
	Worker string
	Epoch  int64
	Event  a2a.Event // of an artifact without its parts
	Bytes  int64     // of these parts
}

// Said is a message with the first event whose snapshot shows it.
type Said struct {
	Seq, AtSeq int64
	Message    a2a.Message
}

// Tried is an attempt at a webhook of a task.
type Tried struct {
	ConfigID string
	URL      string
	webhooks.LedgerEntry
}

// Timeline is everything that happened to one task.
type Timeline struct {
	Events   []Logged
	Messages []Said
	Attempts []Attempt
	Steps    []Recorded
	Signals  []Signaled
	Waits    *Waiting    // nil: the task does not wait
	Usage    []a2a.Usage // by model
	Tries    []Tried
	Actions  []access.Recorded // oldest first
	// TraceID is the trace of the client's newest message that had one, and of the attempts since; empty: none had.
	TraceID string
}

const (
	timelinePage    = 2000
	timelineTries   = 10_000
	timelineActions = 1000
)

// Timeline reads what happened to a task, for the operator. What happens while it reads may be in one part and not in
// another.
func (s *Store) Timeline(ctx context.Context, id a2a.ID) (*Timeline, error) {
	t := &Timeline{}
	err := s.db.Browse(ctx, s.db.StatementTimeout(), func(tx *db.Tx) error {
		q := dbsqlc.New(tx)
		if err := t.readEvents(ctx, q, id); err != nil {
			return err
		}
		messages, err := q.TimelineMessages(ctx, db.PGID(id))
		if err != nil {
			return err
		}
		for _, r := range messages {
			t.Messages = append(t.Messages, Said{
				Seq: r.Seq, AtSeq: r.AtSeq, Message: tasks.DecodeMessage(r.Body, a2a.Role(r.Role)),
			})
		}
		if err := t.readSteps(ctx, q, id); err != nil {
			return err
		}
		trace, err := q.TraceOfTask(ctx, db.PGID(id))
		if err != nil && !errors.Is(err, pgx.ErrNoRows) { // the task was removed meanwhile
			return err
		}
		t.TraceID = a2a.Traceparent(trace).TraceID()
		if t.Usage, err = usageOfTask(ctx, q, id); err != nil {
			return err
		}
		return t.readTries(ctx, q, id)
	})
	if err != nil {
		return nil, fmt.Errorf("read timeline: %w", db.Unavailable(err))
	}
	if t.Attempts, err = s.Attempts(ctx, id); err != nil {
		return nil, err
	}
	actions, err := s.access.Actions(ctx, access.ActionFilter{Task: id, Limit: timelineActions})
	if err != nil {
		return nil, err
	}
	for i := range actions {
		t.Actions = append(t.Actions, actions[len(actions)-1-i])
	}
	return t, nil
}

func (t *Timeline) readEvents(ctx context.Context, q *dbsqlc.Queries, id a2a.ID) error {
	for after := int64(0); ; {
		rows, err := q.TimelineEvents(ctx, dbsqlc.TimelineEventsParams{
			TaskID: db.PGID(id), After: after, Max: timelinePage,
		})
		if err != nil {
			return err
		}
		for _, r := range rows {
			e, err := tasks.DecodeEvent(r.Kind, r.State, r.ArtifactID, r.Body, nil)
			if err != nil {
				return fmt.Errorf("event %d: %w", r.Seq, err)
			}
			t.Events = append(t.Events, Logged{
				Seq: r.Seq, At: db.WireTime(r.CommittedAt), Source: r.Source, Worker: r.Worker, Epoch: r.Epoch,
				Event: e, Bytes: r.Bytes,
			})
			after = r.Seq
		}
		if len(rows) < timelinePage {
			return nil
		}
	}
}

func (t *Timeline) readTries(ctx context.Context, q *dbsqlc.Queries, id a2a.ID) error {
	rows, err := q.TimelineTries(ctx, db.PGID(id), timelineTries)
	for _, r := range rows {
		entry := webhooks.LedgerEntry{
			From: r.FromSeq, Seq: r.Seq, Outcome: r.Outcome, Attempt: int(r.Attempt), Trigger: r.Trigger,
			StartedAt: r.StartedAt.Time.UTC(),
			Try: webhooks.Try{
				Took: time.Duration(r.DurationMs) * time.Millisecond, Status: int(r.Status), Class: r.Class,
				Reason: r.Reason,
			},
		}
		t.Tries = append(t.Tries, Tried{ConfigID: r.ConfigID, URL: a2a.RedactURL(r.Url), LedgerEntry: entry})
	}
	return err
}
