package engine

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
)

// Frame is one item of a stream: a snapshot of the task, or an event.
type Frame struct {
	Task *a2a.Task
	Item *stream.Item
	Last bool // the stream ends with this frame
	Gap  bool // a snapshot replaces events that the client asked to resume after, because they are missing
}

// Seq returns the number and uid of the newest event that the frame includes.
func (f *Frame) Seq() (int64, a2a.ID) {
	if f.Task != nil {
		return f.Task.LastSeq, f.Task.LastUID
	}
	return f.Item.Seq, f.Item.UID
}

// Stream is one client's view of one task. It is not safe for concurrent use.
type Stream struct {
	TaskID  a2a.ID
	size    int64 // of the task when the stream was opened; 0: unknown
	caller  db.Caller
	mem     *budget.Lease // memory of ready and items; nil: no limit
	rules   a2a.StreamRules
	history *int // of the task that the stream starts with
	endedOK bool // the task may have ended before

	ready  []Frame // frames to deliver before the cursor is read
	items  []*stream.Item
	cursor *stream.Cursor // nil: nothing follows ready
	open   *undecided     // nil: it is known to be the stream of a task
	ends   func(a2a.State) bool
	done   bool
	leave  func()
}

// Next returns the next frame, and waits for it until ctx is done. After the last one it returns
// io.EOF.
func (s *Stream) Next(ctx context.Context) (Frame, error) {
	if s.open != nil {
		if err := s.decide(ctx); err != nil {
			return Frame{}, err
		}
	}
	if len(s.ready) > 0 {
		f := s.ready[0]
		s.ready[0] = Frame{} // a stream may wait for days: it must not keep sent frames in memory
		s.ready = s.ready[1:]
		return f, nil
	}
	if s.done || s.cursor == nil {
		return Frame{}, io.EOF
	}
	if len(s.items) == 0 {
		items, err := s.fetch(ctx)
		if err != nil {
			return Frame{}, err
		}
		s.items = items
	}
	f := Frame{Item: s.items[0]}
	if s.items = s.items[1:]; len(s.items) == 0 {
		s.items = nil
	}
	s.done = s.ends(f.Item.State())
	f.Last = s.done
	return f, nil
}

// fetch waits for the next events. The stream holds no memory while it waits.
func (s *Stream) fetch(ctx context.Context) ([]*stream.Item, error) {
	s.mem.Release()
	items, err := s.cursor.Next(ctx)
	if err != nil || s.mem == nil {
		return items, err
	}
	var size int64
	for _, it := range items {
		size += int64(it.Size())
	}
	if size <= freeItems {
		return items, nil
	}
	return items, s.mem.Grow(ctx, 2*size) // the events and their encoding
}

// freeItems is the size of events that a stream may keep without drawing memory. Most have no more
// between two writes.
const freeItems = 4 << 10

// Pending reports whether Next would return without waiting.
func (s *Stream) Pending() bool { return len(s.ready) > 0 || len(s.items) > 0 }

// Close ends the stream. The task continues.
func (s *Stream) Close() {
	if s.cursor != nil {
		s.cursor.Close()
	}
	if s.leave != nil {
		s.leave()
		s.leave = nil
	}
}

// A message stream ends when the task ends or asks for input. A subscription lasts for the whole
// task. A task that waits for authentication may continue without a message, so neither stream ends
// there (T-03 in docs/reference/protocol.md).
func endsMessageStream(s a2a.State) bool { return s.Terminal() || s == a2a.StateInputRequired }

func endsSubscription(s a2a.State) bool { return s.Terminal() }

// Stream submits a message and returns the stream of its results, which starts with the task. A
// replay of an Idempotency-Key follows the task that the key made.
func (e *Engine) Stream(ctx context.Context, c db.Caller, agent *a2a.Agent, op *a2a.SendMessage) (*Stream, error) {
	in, err := e.submission(c, agent, op)
	if err != nil {
		return nil, err
	}
	leave, err := e.streams.enter(c)
	if err != nil {
		return nil, err
	}
	s := &Stream{caller: c, mem: budget.From(ctx), rules: op.StreamRules, history: op.HistoryLength, endedOK: true,
		ends: endsMessageStream, leave: leave}
	if err := e.openMessageStream(ctx, s, agent, &in, op); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (e *Engine) openMessageStream(ctx context.Context, s *Stream, agent *a2a.Agent, in *tasks.Submission,
	op *a2a.SendMessage) error {
	if in.Task.IsZero() {
		in.Undecided = agent.MayReply(&op.Message)
		in.NewTask = db.NewTaskID()
		s.cursor = e.follower.FollowNew(in.NewTask, in.ContextID)
	}
	sub, err := e.submit(ctx, in)
	if err != nil {
		return err
	}
	s.TaskID = sub.Task
	if in.Task.IsZero() && !sub.Replay {
		s.mem.ShrinkTo(2 * messageSize(&op.Message))
		s.cursor.Made()
		s.ready = []Frame{{Task: freshTask(in, &sub, op.HistoryLength)}}
		if sub.Undecided {
			e.leaveOpen(s)
		}
		return nil
	}
	in.Message, op.Message, op.Metadata = a2a.Message{}, a2a.Message{}, nil
	s.mem.ShrinkTo(0)
	if s.cursor != nil {
		s.cursor.Close()
		s.cursor = nil
	}
	ctx, leave, err := e.openings.enter(ctx, nil) // the message is stored: its stream is not refused
	if err != nil {
		return err
	}
	defer leave()
	switch {
	case sub.Undecided: // undecided, and a replay
		if err := e.openAt(ctx, s, sub.After, sub.After); err != nil {
			return err
		}
		e.leaveOpen(s)
		return nil
	case sub.Replay && s.rules.LastEventID != "":
		return e.resume(ctx, s)
	case sub.Resumed:
		// The stream shows the whole turn that the message begins, even if the agent is ahead.
		return e.openAt(ctx, s, sub.After, sub.After)
	}
	return e.openSnapshot(ctx, s, false)
}

// openAt starts s with the task as it was at event seq. head is the newest known event.
func (e *Engine) openAt(ctx context.Context, s *Stream, seq, head int64) error {
	t, err := e.snapshotAt(ctx, s.TaskID, seq, tasks.Want{History: s.history, Artifacts: true})
	if err != nil {
		return err
	}
	s.ready = []Frame{{Task: t}}
	s.cursor = e.follower.Follow(t.ID, t.ContextID, seq, head)
	return nil
}

// Subscribe follows a task of the caller, from its present state or after the event that the client
// saw last.
func (e *Engine) Subscribe(ctx context.Context, c db.Caller, agent *a2a.Agent, op *a2a.Subscribe) (*Stream, error) {
	if _, err := a2a.ParseID(op.ID); err != nil {
		return nil, a2a.ErrTaskNotFound
	}
	leave, err := e.streams.enter(c)
	if err != nil {
		return nil, err
	}
	s := &Stream{caller: c, mem: budget.From(ctx), rules: op.StreamRules, endedOK: op.EndedOK,
		ends: endsSubscription, leave: leave}
	if err := e.openSubscription(ctx, s, agent, op); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (e *Engine) openSubscription(ctx context.Context, s *Stream, agent *a2a.Agent, op *a2a.Subscribe) error {
	s.mem.ShrinkTo(0) // the body is no longer needed
	ctx, leave, err := e.openings.enter(ctx, e.cfg.Drain)
	if err != nil {
		return err
	}
	defer leave()
	id, head, err := e.head(ctx, s.caller, agent, op.ID)
	if err != nil {
		return err
	}
	s.TaskID, s.size = id, head.Bytes
	switch {
	case op.LastEventID != "":
		return e.resume(ctx, s)
	case head.State.Terminal() && !op.EndedOK:
		return hasEnded(head.State)
	}
	return e.openSnapshot(ctx, s, false)
}

func hasEnded(state a2a.State) error {
	return a2a.Errorf(a2a.CodeUnsupportedOperation, "the task is already %s", state)
}

// openSnapshot starts s with the task as it is. If nothing more can come, the last status of the
// task follows as the last event, where clients expect one (T-04 in docs/reference/protocol.md).
func (e *Engine) openSnapshot(ctx context.Context, s *Stream, gap bool) error {
	t, err := e.snapshotOf(ctx, s.caller, s.TaskID, s.size, tasks.Want{History: s.history, Artifacts: true})
	if err != nil {
		return err
	}
	s.ready = []Frame{{Task: t, Gap: gap}}
	if t.Replied {
		s.ready = []Frame{{Task: t, Last: true}}
		return nil
	}
	if !s.ends(t.Status.State) {
		s.cursor = e.follower.Follow(t.ID, t.ContextID, t.LastSeq, t.LastSeq)
		return nil
	}
	if !s.rules.LastStatus {
		return nil
	}
	entries, err := e.store.Tasks.EventsAfter(ctx, t.ID, t.LastSeq-1, 1)
	if err != nil {
		return err
	}
	if len(entries) == 1 {
		entries[0].ContextID = t.ContextID
		s.ready = append(s.ready, Frame{Item: &stream.Item{Entry: entries[0]}, Last: true})
	}
	return nil
}

// resume starts s after the event that the client saw last: with the next event, or with the task
// as of that event. The log may have no such event with that uid, because it is from another server
// or was lost in a failover. Then the client gets a snapshot that says so. It never gets other
// events under numbers that it has seen.
func (e *Engine) resume(ctx context.Context, s *Stream) error {
	seq, short, ok := sse.ParseID(s.rules.LastEventID)
	if ok {
		uid, found, err := e.store.Tasks.EventUID(ctx, s.TaskID, seq)
		if err != nil {
			return err
		}
		ok = found && uid.Short() == short
	}
	if !ok {
		return e.openSnapshot(ctx, s, true)
	}
	want := tasks.Want{History: new(int)}
	if s.rules.ResumeAsTask {
		want = tasks.Want{History: s.history, Artifacts: true}
	}
	t, err := e.snapshotOf(ctx, s.caller, s.TaskID, s.size, want)
	if err != nil {
		return err
	}
	if t.Replied {
		return e.openSnapshot(ctx, s, false)
	}
	if s.ends(t.Status.State) && seq >= t.LastSeq {
		if !s.endedOK {
			return hasEnded(t.Status.State)
		}
		return e.openSnapshot(ctx, s, false)
	}
	if s.rules.ResumeAsTask && seq < t.LastSeq {
		return e.openAt(ctx, s, seq, t.LastSeq)
	}
	if s.rules.ResumeAsTask { // the current task says more: the client may have sent messages since
		s.ready = []Frame{{Task: t}}
	}
	s.cursor = e.follower.Follow(t.ID, t.ContextID, seq, t.LastSeq)
	return nil
}

// streamCount limits the open streams of a process and of each owner.
type streamCount struct {
	total, perOwner int // limits; 0: no limit

	mu     sync.Mutex
	open   int           // guarded by mu
	owners map[owner]int // guarded by mu
}

func (n *streamCount) enter(c db.Caller) (leave func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.total > 0 && n.open >= n.total {
		return nil, &a2a.Error{Code: a2a.CodeUnavailable, Message: "too many open streams"}
	}
	who := owner{c.Tenant, c.Owner}
	if n.perOwner > 0 && n.owners[who] >= n.perOwner {
		return nil, &a2a.Error{Code: a2a.CodeRateLimited, Message: fmt.Sprintf("more than %d open streams", n.perOwner)}
	}
	n.open++
	n.owners[who]++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.open--
		if n.owners[who]--; n.owners[who] == 0 {
			delete(n.owners, who)
		}
	}, nil
}

// OpenStream counts a stream of a caller that another part sends, until leave. The limits of all streams apply to it.
func (e *Engine) OpenStream(c db.Caller) (leave func(), err error) { return e.streams.enter(c) }

// Streams returns how many streams are open or wait to begin.
func (e *Engine) Streams() int {
	e.streams.mu.Lock()
	defer e.streams.mu.Unlock()
	return e.streams.open
}

// Waiting returns how many streams wait for their turn to begin.
func (e *Engine) Waiting() int { return int(e.openings.waiting.Load()) }
