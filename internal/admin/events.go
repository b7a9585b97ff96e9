package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/tail"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
)

// Streams sets the streams of an API up. Zero durations take the defaults of package sse, or 15 s for Ping.
type Streams struct {
	Follower *stream.Follower // reads the logs; nil: there are no streams
	Tail     *tail.Tail       // the changes of all tasks; nil: there are no streams of them
	// Open counts a stream of a caller until leave, and refuses it if there are too many; nil: no limit.
	Open func(r *http.Request, p auth.Principal) (leave func(), err error)
	// Drain ends streams; nil: only their requests do.
	Drain        context.Context //nolint:containedctx // a signal for context.AfterFunc, which needs no goroutine
	Ping         time.Duration   // after so long without an event a stream sends a comment
	WriteTimeout time.Duration   // of one event; a client that reads more slowly is cut off
	Retry        time.Duration   // after so long clients connect again; 0: they choose
}

const defaultPing = 15 * time.Second

// EventQuery says where a stream of events begins.
type EventQuery struct {
	After int64 `json:"after,omitempty" doc:"Only the events after this one. Missing: begin with the task as it is."`
}

// errPing says that a stream has had no event for a while, and errDrained that its server is about to stop.
var (
	errPing    = errors.New("no event within the ping interval")
	errDrained = errors.New("the server drains")
)

// eventStream is one stream of the events of a task.
type eventStream struct {
	api   *API
	r     *request
	out   *sse.Writer
	codec v03.Codec

	task  *a2a.Task // to begin with; nil: the stream begins with an event
	ended bool      // no event follows the task
}

// followTask serves GET /tasks/{task}/events. It returns an error only if the stream did not begin. A client that has
// not seen the end of the task connects again, and names the last event that it has.
func (a *API) followTask(ctx context.Context, r *request, w http.ResponseWriter) error {
	q := r.query.(*EventQuery) //nolint:forcetypeassert // the route says so
	if a.cfg.Streams.Follower == nil {
		return a2a.Errorf(a2a.CodeUnavailable, "this server has no streams")
	}
	if open := a.cfg.Streams.Open; open != nil {
		leave, err := open(r.Request, r.principal)
		if err != nil {
			return err
		}
		defer leave()
	}
	id, row, err := a.find(ctx, r)
	if err != nil {
		return err
	}
	s := &eventStream{api: a, r: r, out: sse.NewWriter(w, a.cfg.Streams.WriteTimeout)}
	after, err := s.begin(ctx, id, &row, q.After)
	if err != nil {
		return err
	}
	var cursor *stream.Cursor
	if !s.ended {
		cursor = a.cfg.Streams.Follower.Follow(id, row.ContextID, after, max(after, row.Events))
		defer cursor.Close()
	}
	ctx, stop := a.untilDrain(ctx)
	defer stop()
	err = s.send(ctx, cursor)
	if err != nil && ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		a.cfg.Logger.DebugContext(ctx, "stream of an operator ended", "task_id", id.String(), "err", err)
	}
	return nil
}

// begin decides whether a stream begins with the task as it is or with an event, and returns the event after which it
// continues. It begins with the task if retention has removed the events that were asked for.
func (s *eventStream) begin(ctx context.Context, id a2a.ID, row *Task, after int64) (int64, error) {
	state, err := ParseState(row.State)
	if err != nil {
		return 0, err
	}
	after = max(after, 0)
	next, err := s.api.store.Tasks.EventsAfter(ctx, id, after, 1)
	if err != nil {
		return 0, err
	}
	pruned := len(next) == 1 && next[0].Seq > after+1
	if after > 0 && !pruned && !(state.Terminal() && after >= row.Events) {
		return min(after, row.Events), nil
	}
	if s.task, err = s.api.snapshot(ctx, s.r, id, row, tasks.Want{Artifacts: true}); err != nil {
		return 0, err
	}
	s.ended = s.task.Status.State.Terminal()
	return s.task.LastSeq, nil
}

// untilDrain returns a context that also ends when the server drains.
func (a *API) untilDrain(ctx context.Context) (_ context.Context, stop func()) {
	if a.cfg.Streams.Drain == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	undo := context.AfterFunc(a.cfg.Streams.Drain, func() { cancel(errDrained) })
	return ctx, func() {
		undo()
		cancel(nil)
	}
}

// send writes the task, if the stream begins with it, and then events until the task has ended.
func (s *eventStream) send(ctx context.Context, cursor *stream.Cursor) error {
	if d := s.api.cfg.Streams.Retry; d > 0 {
		if err := s.out.Retry(d); err != nil {
			return err
		}
	}
	if t := s.task; t != nil {
		if err := s.out.Event(sse.FormatID(t.LastSeq, t.LastUID.Short()), s.codec.AppendSnapshot(nil, t)); err != nil {
			return err
		}
		s.task = nil // the stream may wait for days: it must not keep what was sent in memory
	} else if err := s.out.Comment("after"); err != nil { // the client learns that it is connected
		return err
	}
	for !s.ended {
		s.r.mem.Release()
		items, err := s.next(ctx, cursor)
		if errors.Is(err, errPing) {
			err = s.out.Comment("ping")
		}
		if err == nil {
			err = s.events(ctx, items)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// next waits for events. If none comes for a while it returns errPing.
func (s *eventStream) next(ctx context.Context, cursor *stream.Cursor) ([]*stream.Item, error) {
	wait, cancel := context.WithTimeoutCause(ctx, s.api.cfg.Streams.Ping, errPing)
	defer cancel()
	items, err := cursor.Next(wait)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(wait), errPing) {
		return nil, errPing
	}
	return items, err
}

// events writes events.
func (s *eventStream) events(ctx context.Context, items []*stream.Item) error {
	for _, it := range items {
		if err := s.r.mem.Grow(ctx, 2*int64(it.Size())); err != nil { // the event and its encoding
			return err
		}
		s.ended = it.State().Terminal()
		data := s.codec.AppendEvent(nil, &it.Entry, s.ended)
		if err := s.out.Event(sse.FormatID(it.Seq, it.UID.Short()), data); err != nil {
			return fmt.Errorf("send event %d: %w", it.Seq, err)
		}
		if err := context.Cause(ctx); err != nil || s.ended { // a client that is always late never waits
			return err
		}
	}
	return nil
}
