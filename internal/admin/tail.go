package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/tail"
)

// TailQuery selects the tasks whose changes a stream has.
type TailQuery struct {
	TaskFilter
	After string `json:"after,omitempty" doc:"Only the changes after the one with this id of an event."`
}

// TaskChange is an event of a stream of changes. It has one of its members.
type TaskChange struct {
	Task   *Task  `json:"task,omitempty"`
	Missed string `json:"missed,omitempty"` // why changes before this event may be missing
	End    string `json:"end,omitempty"`    // why the stream ends
}

// Texts of TaskChange.
const (
	textMissed = "changes before this event may be missing: list the tasks"
	textSlow   = "the reader is too slow: connect again"
)

// tailTasks serves GET /tasks/tail. It returns an error only if the stream did not begin.
func (a *API) tailTasks(ctx context.Context, r *request, w http.ResponseWriter) error {
	q := r.query.(*TailQuery) //nolint:forcetypeassert // the route says so
	search, err := q.search()
	if err != nil {
		return err
	}
	if q.Outcome+q.Text+q.Error+q.MetadataKey != "" || q.NotRetried {
		return a2a.InvalidParams("", "outcome, text, error, metadataKey and notRetried are for lists of tasks")
	}
	first, last, err := operate.PrefixRange(q.ID)
	if err != nil {
		return a2a.InvalidParams("id", "no task id begins like this")
	}
	if a.cfg.Streams.Tail == nil {
		return a2a.Errorf(a2a.CodeUnavailable, "this server has no streams")
	}
	some := r.restrict(&search)
	if open := a.cfg.Streams.Open; open != nil {
		leave, err := open(r.Request, r.principal)
		if err != nil {
			return err
		}
		defer leave()
	}
	follower := a.cfg.Streams.Tail.Follow(q.After)
	defer follower.Close()
	ctx, stop := a.untilDrain(ctx)
	defer stop()
	s := &tailStream{api: a, out: sse.NewWriter(w, a.cfg.Streams.WriteTimeout)}
	s.matches = func(t *operate.TaskRow) bool {
		begins := bytes.Compare(t.ID[:], first[:]) >= 0 && bytes.Compare(t.ID[:], last[:]) <= 0
		return some && begins && selects(&search, t)
	}
	if err := s.send(ctx, follower); err != nil && ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		a.cfg.Logger.DebugContext(ctx, "stream of changes ended", "err", err)
	}
	return nil
}

// selects reports whether a search selects a task, by what lists show of it.
func selects(f *operate.TaskSearch, t *operate.TaskRow) bool {
	return (f.IDs == nil || slices.Contains(f.IDs, t.ID)) &&
		(f.States == nil || slices.Contains(f.States, t.State)) &&
		(f.Agents == nil || slices.Contains(f.Agents, t.Agent)) &&
		(f.Tenant == "" || t.Tenant == f.Tenant) &&
		(f.Owner == "" || t.Owner == f.Owner) &&
		(f.ContextID == "" || t.ContextID == f.ContextID) &&
		(f.Since.IsZero() || !t.CreatedAt.Before(f.Since)) &&
		(f.Until.IsZero() || t.CreatedAt.Before(f.Until)) &&
		(!f.Parked || t.Parked != nil) &&
		(!f.Roots || t.Parent.IsZero())
}

// tailStream is one stream of the changes of tasks.
type tailStream struct {
	api     *API
	out     *sse.Writer
	matches func(*operate.TaskRow) bool
}

// send writes changes until the client is gone or too slow.
func (s *tailStream) send(ctx context.Context, follower *tail.Follower) error {
	if d := s.api.cfg.Streams.Retry; d > 0 {
		if err := s.out.Retry(d); err != nil {
			return err
		}
	}
	if err := s.out.Comment("after"); err != nil { // the client learns that it is connected
		return err
	}
	for {
		list, err := s.next(ctx, follower)
		switch {
		case errors.Is(err, errPing):
			err = s.out.Comment("ping")
		case errors.Is(err, tail.ErrSlow):
			return errors.Join(err, s.event("", TaskChange{End: textSlow}))
		case err == nil:
			err = s.changes(ctx, list)
		}
		if err != nil {
			return err
		}
	}
}

// next waits for changes. If none comes for a while it returns errPing.
func (s *tailStream) next(ctx context.Context, follower *tail.Follower) ([]tail.Change, error) {
	wait, cancel := context.WithTimeoutCause(ctx, s.api.cfg.Streams.Ping, errPing)
	defer cancel()
	list, err := follower.Next(wait)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(wait), errPing) {
		return nil, errPing
	}
	return list, err
}

// changes writes those that match.
func (s *tailStream) changes(ctx context.Context, list []tail.Change) (err error) {
	for i := range list {
		switch c := &list[i]; {
		case c.Missed:
			err = s.event(c.ID, TaskChange{Missed: textMissed})
		case s.matches(&c.Task.TaskRow):
			row := newTask(&c.Task)
			err = s.event(c.ID, TaskChange{Task: &row})
		}
		if err == nil {
			err = context.Cause(ctx) // a client that is always late never waits
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *tailStream) event(id string, c TaskChange) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return s.out.Event(id, data)
}
