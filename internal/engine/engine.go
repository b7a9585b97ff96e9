// Package engine carries out the operations of the protocol, independent of its versions and
// bindings. It decides who may see a task, where a stream starts and ends, and how long a blocking
// send waits.
//
// It runs no agent and stores nothing: tasks are in the store, and their progress arrives as a
// stream of events.
package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/tracing"
)

// Config limits what callers may ask for. Zero values mean no limit, except for PageKey, which must
// be 32 bytes that all replicas share.
type Config struct {
	BlockingMaxWait    time.Duration // longest blocking send, which then returns the task as it is
	MaxMessageBytes    int64
	MaxTaskBytes       int64
	MaxHistory         int64
	MaxInFlight        int // unfinished tasks of one owner
	MaxPending         int // reads, and as many writes, of this process that use or wait for the database; not streams
	MaxStreams         int // open streams of this process
	MaxStreamsPerOwner int
	PageKey            []byte
	MaxPageToken       int // bytes; 0: 1 KiB
	Push               PushRules
	// Drain ends when the server is about to stop. Blocking sends then return the task as it is, and subscriptions
	// that wait in line are refused.
	Drain  context.Context  //nolint:containedctx // a signal for context.AfterFunc, which needs no goroutine per send
	Now    func() time.Time // says when to count an owner's unfinished tasks again; nil: time.Now
	Tracer *tracing.Tracer  // nil: no traces
}

// Engine is safe for concurrent use.
type Engine struct {
	store    *store.Store
	follower *stream.Follower
	cfg      Config
	pages    *pageSealer
	streams  streamCount
	flights  flights
	openings line
	reads    gate
	large    slots
	writes   gate
}

// New returns an engine over s and f.
func New(s *store.Store, f *stream.Follower, cfg Config) (*Engine, error) {
	if cfg.MaxPageToken == 0 {
		cfg.MaxPageToken = 1 << 10
	}
	pages, err := newPageSealer(cfg.PageKey, cfg.MaxPageToken)
	if err != nil {
		return nil, err
	}
	e := &Engine{store: s, follower: f, cfg: cfg, pages: pages}
	e.reads, e.writes = newGate(cfg.MaxPending), newGate(cfg.MaxPending)
	e.large = make(slots, maxLarge)
	e.openings.turns = make(slots, s.DB.StreamConns())
	if e.flights.now = cfg.Now; e.flights.now == nil {
		e.flights.now = time.Now
	}
	e.streams.total, e.streams.perOwner = cfg.MaxStreams, cfg.MaxStreamsPerOwner
	e.streams.owners = make(map[owner]int)
	return e, nil
}

// Send submits a message and returns the task. If op.Blocking it first waits until the task has
// ended or waits for its client. If op and the agent allow direct replies, the result may be one:
// see a2a.Task.Replied.
func (e *Engine) Send(ctx context.Context, c db.Caller, agent *a2a.Agent, op *a2a.SendMessage) (*a2a.Task, error) {
	in, err := e.submission(c, agent, op)
	if err != nil {
		return nil, err
	}
	in.Undecided = op.Blocking && in.Task.IsZero() && agent.MayReply(&op.Message)
	var cursor *stream.Cursor
	if op.Blocking && in.Task.IsZero() {
		// The cursor exists before the task, so that it need not read events it missed.
		in.NewTask = db.NewTaskID()
		cursor = e.follower.FollowNew(in.NewTask, in.ContextID)
		defer cursor.Close()
	}
	sub, err := e.submit(ctx, &in)
	if err != nil {
		return nil, err
	}
	if !op.Blocking && in.Task.IsZero() && !sub.Replay {
		return freshTask(&in, &sub, op.HistoryLength), nil
	}
	known := forget(budget.From(ctx), &in, op)
	if !op.Blocking {
		return e.answer(ctx, c, sub.Task, tasks.Want{History: op.HistoryLength, Artifacts: true})
	}
	if cursor == nil || sub.Replay {
		cursor = e.follower.Follow(sub.Task, sub.ContextID, sub.After, sub.After)
		defer cursor.Close()
	}
	cursor.Made()
	if sub.Replay {
		return e.awaitTask(ctx, c, cursor, &sub, op)
	}
	seen, err := e.await(ctx, cursor)
	if err != nil {
		return nil, err
	}
	if in.Task.IsZero() && !in.Undecided && known {
		if t, ok := seen.task(&in, &sub, op.HistoryLength); ok {
			return t, nil
		}
	}
	return e.taskAnswer(ctx, c, &sub, seen.ended, op)
}

// submit stores a message.
func (e *Engine) submit(ctx context.Context, in *tasks.Submission) (tasks.Submitted, error) {
	ctx, span := e.cfg.Tracer.Start(ctx, "submit", tracing.Internal, "")
	sub, err := e.admitted(ctx, in)
	if span == nil {
		return sub, err
	}
	if err != nil {
		span.Fail(a2a.CodeOf(err).Reason())
	} else {
		span.Set(tracing.Agent(in.Agent), tracing.Task(sub.Task.String()), tracing.Context(sub.ContextID),
			tracing.State(sub.State))
	}
	span.End()
	return sub, err
}

// taskAnswer reads the task for an answer. It first reveals a task that clients cannot see yet.
func (e *Engine) taskAnswer(ctx context.Context, c db.Caller, sub *tasks.Submitted, ended bool,
	op *a2a.SendMessage) (*a2a.Task, error) {
	if sub.Undecided && !ended {
		if err := e.store.Tasks.Reveal(ctx, sub.Task); err != nil {
			return nil, err
		}
	}
	budget.From(ctx).ShrinkTo(0) // the message is no longer needed
	return e.answer(ctx, c, sub.Task, tasks.Want{History: op.HistoryLength, Artifacts: true})
}

// admitted passes a message to the store, if the limits allow it.
func (e *Engine) admitted(ctx context.Context, in *tasks.Submission) (tasks.Submitted, error) {
	leave, err := e.writes.enter()
	if err != nil {
		return tasks.Submitted{}, err
	}
	defer leave()
	if in.Task.IsZero() && e.cfg.MaxInFlight > 0 {
		if err := e.flights.admit(ctx, e.store, in.Caller, e.cfg.MaxInFlight); err != nil {
			return tasks.Submitted{}, err
		}
	}
	return e.store.Tasks.Submit(ctx, *in)
}

// awaitTask waits for a task that an earlier request made. The turn may have ended already, after
// the event at which the cursor starts, so it checks the state first.
func (e *Engine) awaitTask(ctx context.Context, c db.Caller, cursor *stream.Cursor, sub *tasks.Submitted,
	op *a2a.SendMessage) (*a2a.Task, error) {
	ended := sub.State.EndsTurn()
	if !ended {
		seen, err := e.await(ctx, cursor)
		if err != nil {
			return nil, err
		}
		ended = seen.ended
	}
	return e.taskAnswer(ctx, c, sub, ended, op)
}

// await returns when the turn has ended, the longest wait is over, or the server drains. It returns
// what it has seen until then.
func (e *Engine) await(ctx context.Context, cursor *stream.Cursor) (*seen, error) {
	if e.cfg.BlockingMaxWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, e.cfg.BlockingMaxWait, errWaitedEnough)
		defer cancel()
	}
	ctx, stop := withDrain(ctx, e.cfg.Drain)
	defer stop()
	var s seen
	for {
		items, err := cursor.Next(ctx)
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, errWaitedEnough), errors.Is(cause, ErrDraining):
			return &s, nil
		case err != nil:
			return nil, fmt.Errorf("wait for the task: %w", err)
		}
		s.add(items)
		for _, it := range items {
			if it.State().EndsTurn() {
				s.ended = true
				return &s, nil
			}
		}
	}
}

var errWaitedEnough = errors.New("waited long enough")

// ErrDraining ends waits and streams when the server is about to stop.
var ErrDraining = errors.New("server is draining")

// withDrain ends ctx with ErrDraining when drain ends.
func withDrain(ctx, drain context.Context) (context.Context, func()) {
	if drain == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(drain, func() { cancel(ErrDraining) })
	return ctx, func() { stop(); cancel(nil) }
}

// submission turns a decoded message into a submission for the store.
func (e *Engine) submission(c db.Caller, agent *a2a.Agent, op *a2a.SendMessage) (tasks.Submission, error) {
	if err := checkSize(&op.Message, e.cfg.MaxMessageBytes); err != nil {
		return tasks.Submission{}, err
	}
	if err := agents.CheckInput(agent, &op.Message); err != nil {
		return tasks.Submission{}, err
	}
	push, err := e.newPush(agent, op.Push)
	if err != nil {
		return tasks.Submission{}, err
	}
	in := tasks.Submission{
		Caller: c, Agent: agent.Name, ContextID: op.Message.ContextID, Message: op.Message, Digest: op.Digest,
		Reject: agent.OnBusy == a2a.OnBusyReject, MaxBytes: e.cfg.MaxTaskBytes, MaxSeq: e.cfg.MaxHistory,
		Push: push, MaxPushes: e.cfg.Push.Max, Asked: op.Asked, Traceparent: op.Traceparent,
	}
	in.Message.RequestMetadata = op.Metadata
	in.Message.Role = a2a.RoleUser // reads show this role, whatever the client called itself
	switch {
	case op.Idempotency != "":
		in.Key = "h:" + op.Idempotency
	case agent.DedupeByID:
		in.Key = "m:" + op.Message.ID
	}
	if op.Message.TaskID == "" {
		if in.ContextID == "" {
			in.ContextID = db.NewUID().String()
		}
		return in, nil
	}
	id, err := a2a.ParseID(op.Message.TaskID)
	if err != nil {
		return in, a2a.ErrTaskNotFound
	}
	in.Task = id
	in.Answers = func(expects a2a.Raw) error { return agents.CheckAnswer(expects, &op.Message) }
	return in, nil
}

// freshTask returns a new task as it is before any event. This saves a read.
func freshTask(in *tasks.Submission, sub *tasks.Submitted, history *int) *a2a.Task {
	t := &a2a.Task{
		ID: sub.Task, Agent: in.Agent, ContextID: sub.ContextID,
		Status:    a2a.Status{State: a2a.StateSubmitted, Time: sub.At},
		CreatedAt: sub.At, LastSeq: 1, LastUID: sub.UID,
	}
	if history == nil || *history > 0 {
		t.History = []a2a.Message{in.Message}
	}
	return t
}

// Get reads one task of the caller.
func (e *Engine) Get(ctx context.Context, c db.Caller, agent *a2a.Agent, op *a2a.GetTask) (*a2a.Task, error) {
	leave, err := e.reads.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	id, head, err := e.head(ctx, c, agent, op.ID)
	if err != nil {
		return nil, err
	}
	return e.snapshotOf(ctx, c, id, head.Bytes, tasks.Want{History: op.HistoryLength, Artifacts: true})
}

// head checks that the caller may see a task, and that the task belongs to this agent.
func (e *Engine) head(ctx context.Context, c db.Caller, agent *a2a.Agent, taskID string) (a2a.ID, tasks.Head, error) {
	id, err := a2a.ParseID(taskID)
	if err != nil {
		return id, tasks.Head{}, a2a.ErrTaskNotFound
	}
	h, err := e.store.Tasks.Head(ctx, c, id)
	if err == nil && h.Agent != agent.Name {
		err = a2a.ErrTaskNotFound
	}
	return id, h, err
}

// Cancel ends one task of the caller and returns it.
func (e *Engine) Cancel(ctx context.Context, c db.Caller, agent *a2a.Agent, op *a2a.CancelTask) (*a2a.Task, error) {
	id, err := a2a.ParseID(op.ID)
	if err != nil {
		return nil, a2a.ErrTaskNotFound
	}
	state, err := e.cancel(ctx, c, agent, id, op)
	repeated := op.RepeatOK && state == a2a.StateCanceled && a2a.CodeOf(err) == a2a.CodeTaskNotCancelable
	if err != nil && !repeated {
		return nil, err
	}
	return e.answer(ctx, c, id, tasks.Want{Artifacts: true})
}

func (e *Engine) cancel(
	ctx context.Context, c db.Caller, agent *a2a.Agent, id a2a.ID, op *a2a.CancelTask,
) (a2a.State, error) {
	leave, err := e.writes.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	return e.store.Tasks.CancelWith(ctx, c, agent.Name, id, op.Metadata)
}

// Page sizes of ListTasks.
const (
	defaultPage = 50
	maxPage     = 100
)

// List reads a page of the caller's tasks of one agent, the newest status first.
func (e *Engine) List(ctx context.Context, c db.Caller, agent *a2a.Agent, op *a2a.ListTasks) (*a2a.Page, error) {
	leave, err := e.reads.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	size := op.PageSize
	switch {
	case size == 0:
		size = defaultPage
	case size < 0 || size > maxPage:
		return nil, a2a.InvalidParams("pageSize", "must be between 1 and %d", maxPage)
	}
	f := tasks.Filter{Agent: agent.Name, ContextID: op.ContextID, State: op.State, Since: op.UpdatedAfter,
		Limit: size + 1}
	if op.PageToken != "" {
		pos, err := e.pages.open(op.PageToken, bound(c, &f))
		if err != nil {
			return nil, err
		}
		f.BeforeAt, f.BeforeID = pos.At, pos.ID
	}
	found, total, err := e.store.Tasks.Page(ctx, c, f)
	if err != nil {
		return nil, err
	}
	page := &a2a.Page{PageSize: size, Total: total.N, Estimated: total.Estimated, Tasks: []a2a.Task{}}
	ids := make([]a2a.ID, min(len(found), size))
	for i := range ids {
		ids[i] = found[i].ID
	}
	n := 0
	if len(ids) > 0 {
		page.Tasks, n, err = e.tasksOf(ctx, c, ids,
			tasks.Want{History: op.HistoryLength, Artifacts: op.IncludeArtifacts})
	}
	if err == nil && n < len(found) {
		page.NextToken = e.pages.seal(found[n-1], bound(c, &f))
	}
	return page, err
}
