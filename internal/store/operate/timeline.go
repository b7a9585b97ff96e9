package operate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	// Cut says that older rows are left out, and Bytes about how much memory the others take.
	Cut   bool
	Bytes int64
}

// A timeline has the newest rows of each kind.
const (
	timelinePage    = 500     // events of one read
	timelineBytes   = 8 << 20 // of events, about
	timelineSteps   = 10_000
	timelineRows    = 2000 // of each other kind
	timelineActions = 1000
	rowBytes        = 512 // of a row, in addition to its text
)

// Timeline reads what happened to a task, for the operator. What happens while it reads may be in one part and not in
// another. Of texts it has the beginning.
func (s *Store) Timeline(ctx context.Context, id a2a.ID) (*Timeline, error) {
	t := &Timeline{}
	err := s.db.Lookup(ctx, s.db.StatementTimeout(), func(ctx context.Context, tx *db.Tx) error {
		q := dbsqlc.New(tx)
		if err := t.readEvents(ctx, q, id); err != nil {
			return err
		}
		if err := t.readMessages(ctx, q, id); err != nil {
			return err
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
	t.Actions = actions
	slices.Reverse(t.Actions)
	t.Cut = t.Cut || len(t.Attempts) == timelineRows || len(actions) == timelineActions
	for i := range t.Attempts {
		t.Bytes += int64(len(t.Attempts[i].Error))
	}
	t.Bytes += rowBytes * int64(len(t.Messages)+len(t.Attempts)+len(t.Steps)+len(t.Signals)+len(t.Tries)+len(t.Actions))
	return t, nil
}

func (t *Timeline) readEvents(ctx context.Context, q *dbsqlc.Queries, id a2a.ID) error {
	for before, room := int64(math.MaxInt64), int64(timelineBytes); ; {
		rows, err := q.TimelineEvents(ctx, dbsqlc.TimelineEventsParams{
			TaskID: db.PGID(id), Before: before, Max: timelinePage,
		})
		if err != nil {
			return err
		}
		for _, r := range rows {
			e, err := loggedEvent(&r)
			if err != nil {
				return fmt.Errorf("event %d: %w", r.Seq, err)
			}
			t.Events = append(t.Events, Logged{
				Seq: r.Seq, At: db.WireTime(r.CommittedAt), Source: r.Source, Worker: r.Worker, Epoch: r.Epoch,
				Event: e, Bytes: r.Bytes,
			})
			before = r.Seq
			room -= rowBytes + int64(len(r.Body))
		}
		if len(rows) == timelinePage && room > 0 {
			continue
		}
		t.Bytes += timelineBytes - room
		t.Cut = len(rows) == timelinePage
		slices.Reverse(t.Events)
		return nil
	}
}

// loggedEvent decodes an event. If only its beginning is known, it has its first text.
func loggedEvent(r *dbsqlc.TimelineEventsRow) (a2a.Event, error) {
	if !r.Cut {
		return tasks.DecodeEvent(r.Kind, r.State, r.ArtifactID, []byte(r.Body), nil)
	}
	e, err := tasks.DecodeEvent(r.Kind, r.State, r.ArtifactID, nil, nil)
	if status, ok := e.(*a2a.StatusUpdate); ok {
		status.Status.Message = &a2a.Message{Role: a2a.RoleAgent, Parts: beginning(r.Body)}
	}
	return e, err
}

func (t *Timeline) readMessages(ctx context.Context, q *dbsqlc.Queries, id a2a.ID) error {
	p := dbsqlc.TimelineMessagesParams{TaskID: db.PGID(id), Max: timelineRows}
	if t.Cut {
		p.FirstEvent = t.Events[0].Seq
	}
	rows, err := q.TimelineMessages(ctx, p)
	for _, r := range slices.Backward(rows) {
		m := a2a.Message{Role: a2a.RoleUser, Parts: partsOf(r.Body, r.Cut)}
		t.Messages = append(t.Messages, Said{Seq: r.Seq, AtSeq: r.AtSeq, Message: m})
		t.Bytes += int64(len(r.Body))
	}
	t.Cut = t.Cut || len(rows) == timelineRows
	return err
}

// partsOf decodes the parts of a stored message. If it is cut, there is one part.
func partsOf(body string, cut bool) []a2a.Part {
	switch {
	case cut:
		return beginning(body)
	case body == "":
		return nil
	}
	return tasks.DecodeMessage([]byte(body), a2a.RoleAgent).Parts
}

// beginning returns the first text of a message of which only the beginning is known.
func beginning(body string) []a2a.Part {
	return []a2a.Part{{Kind: a2a.PartText, Text: firstText(body) + "…"}}
}

func (t *Timeline) readTries(ctx context.Context, q *dbsqlc.Queries, id a2a.ID) error {
	rows, err := q.TimelineTries(ctx, db.PGID(id), timelineRows)
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
	slices.Reverse(t.Tries)
	t.Cut = t.Cut || len(rows) == timelineRows
	return err
}
