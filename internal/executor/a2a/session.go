package a2a

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// session is one run. It belongs to the goroutine of Execute.
type session struct {
	e    *Executor
	run  *executor.Run
	emit func(a2a.Event) error
	log  *slog.Logger

	said  []a2a.Message // of the client, oldest first
	fresh int           // index of the first that is new in this turn
	pos   position
	rec   record
	at    *endpoint
	ended bool // the status that ends the turn is emitted
	reply bool // the end of the turn is a message by itself

	reported  bool      // an event is emitted, so the answer is a task
	started   bool      // this attempt has started an upstream task, or tried to
	broken    bool      // a connection broke or there was none, so events may have been missed
	whole     bool      // the Task has been read with or after the status that ends the turn
	noStream  bool      // resumed streams do not help with this upstream
	fruitless int       // resumed streams in a row without an event
	stale     int       // reads in a row that showed a question that was relayed already
	refused   int       // answers of the client in a row that the upstream did not accept
	failures  int       // in a row
	failing   time.Time // since when
}

func newSession(e *Executor, run *executor.Run, emit func(a2a.Event) error) *session {
	said, fresh := executor.Conversation(*run)
	s := &session{
		e: e, run: run, said: said, fresh: fresh,
		pos: decodePosition(run.Checkpoint, len(said)), rec: newRecord(&run.Task),
		log: e.c.Log.With("task_id", run.Task.ID.String(), "agent", run.Agent, "epoch", run.Epoch),
	}
	if s.pos.Task == "" && !s.pos.Status.State.EndsTurn() { // the upstream has not named the task that it has begun
		s.pos.Said = s.pos.From
	}
	s.emit = func(event a2a.Event) error {
		if _, ok := event.(*a2a.Checkpoint); !ok {
			s.reported = true
		}
		return emit(event)
	}
	return s
}

// errTaskLost says that the upstream does not know the task.
var errTaskLost = errors.New("the upstream agent no longer knows the task")

// do relays events until the turn has ended.
func (s *session) do(ctx context.Context) (err error) {
	if len(s.said) == 0 {
		return executor.Permanent(errors.New("there is no message to send"))
	}
	if err := s.find(ctx); err != nil {
		return err
	}
	if s.pos.Status.State.Terminal() {
		s.next()
	}
	var end *a2a.StatusUpdate
	for {
		switch {
		case errors.Is(err, errTaskLost):
			if err = s.loseTask(); err != nil {
				return err
			}
			continue
		case err != nil:
			return s.runError(err)
		case end == nil && s.pos.Task == "":
			end, err = s.send(ctx)
		case end == nil:
			end, err = s.follow(ctx)
		case !s.whole && s.pos.Task != "":
			end, err = s.settle(ctx, end)
		case s.hasUnsent(end.Status.State):
			if err = s.relayAsProgress(end); err != nil {
				return err
			}
			if end.Status.State.Terminal() {
				s.next()
			}
			end, err = s.send(ctx)
		default:
			return s.finish(end)
		}
	}
}

// find reads the card, and retries while the upstream is unreachable.
func (s *session) find(ctx context.Context) (err error) {
	for {
		if s.at, err = s.e.cards.get(ctx); err == nil {
			return nil
		}
		if !temporary(err) {
			return s.runError(err)
		}
		if err := s.pause(ctx, err); err != nil {
			return s.runError(err)
		}
	}
}

// hasUnsent reports whether the upstream, which is in this state, lacks messages of the client. If the upstream task
// has ended, messages of earlier turns need no answer any more.
func (s *session) hasUnsent(state a2a.State) bool {
	if state.Terminal() {
		s.pos.Said = max(s.pos.Said, s.fresh)
	}
	return s.pos.Said < len(s.said)
}

// next replaces an upstream task that has ended by a new one in the same context.
func (s *session) next() {
	if s.pos.Said >= len(s.said) {
		s.pos.Said = min(s.fresh, len(s.said)-1)
	}
	s.pos = position{
		Context: s.pos.Context, Before: s.pos.Task, Nth: s.pos.Nth + 1, From: s.pos.Said, Said: s.pos.Said,
	}
	s.started = false
}

// loseTask decides what happens with a task that the upstream has lost. An attempt starts only one upstream task, so
// that the record of attempts explains how many there were.
func (s *session) loseTask() error {
	s.log.Warn("upstream has lost the task", "upstream_task", s.pos.Task)
	switch {
	case s.e.c.OnLostTask == LostTaskFail:
		return executor.Permanent(errTaskLost)
	case s.started:
		return errTaskLost
	}
	s.pos = position{
		Context: s.pos.Context, Before: s.pos.Before, Nth: s.pos.Nth, From: s.pos.From, Said: s.pos.From,
	}
	return nil
}

// message returns the next message for the upstream. Its id is the same each time.
func (s *session) message() a2a.Message {
	m := s.said[s.pos.Said]
	m.ID = s.messageID(s.pos.Said)
	m.Role = a2a.RoleUser
	m.TaskID, m.ContextID, m.ReferenceTaskIDs = s.pos.Task, s.pos.Context, nil
	if m.ContextID == "" {
		m.ContextID = contextOf(s.run)
	}
	if s.pos.Task == "" && s.pos.Before != "" {
		m.ReferenceTaskIDs = []string{s.pos.Before}
	}
	return m
}

func (s *session) messageID(n int) string { return s.run.Task.ID.String() + "-" + strconv.Itoa(n+1) }

// send sends the next message and relays the answer. If it returns neither an end nor an error, the upstream has the
// message, or a read of the task shows whether it has.
func (s *session) send(ctx context.Context) (*a2a.StatusUpdate, error) {
	if s.pos.Task == "" {
		if s.started {
			return nil, errors.New("the upstream agent has named no task")
		}
		s.started = true
	}
	m := s.message()
	for {
		end, err := s.sendOnce(ctx, &m)
		switch {
		case err == nil:
			return end, nil
		case s.pos.Task != "" && isTaskNotFound(err): // only a read of the task is certain
		case context.Cause(ctx) != nil || !temporary(err):
			return nil, err
		case unsent(err):
			if wait := requestedDelay(err); wait > 0 {
				return nil, executor.RetryAfter(err, wait)
			}
			if err := s.pause(ctx, err); err != nil {
				return nil, err
			}
			continue
		case s.pos.Task == "" && s.e.c.OnLostTask == LostTaskFail:
			return nil, executor.Permanent(fmt.Errorf("the upstream agent may have started the task: %w", err))
		case s.pos.Task == "":
			return nil, err // the next attempt sends it again, with the same ids
		}
		// Following the task shows whether the upstream has received it.
		s.broken = true
		if s.refused++; s.refused > maxRefused {
			return nil, err
		}
		return nil, s.pause(ctx, err)
	}
}

// maxRefused is how often in a row the upstream may refuse an answer to its own question.
const maxRefused = 10

func isTaskNotFound(err error) bool {
	var said *answer.Error
	return errors.As(err, &said) && said.Code == answer.CodeTaskNotFound
}

// sendOnce sends a message once. Its error is temporary only if no part of an answer arrived.
func (s *session) sendOnce(ctx context.Context, m *a2a.Message) (*a2a.StatusUpdate, error) {
	if !s.at.streaming {
		result, err := s.e.call(ctx, s.at, s.at.send, s.at.sendParams(m, false), m.ID)
		if err != nil {
			return nil, err
		}
		item, err := answer.Decode(result)
		if err != nil {
			return nil, executor.InvalidResponse("the upstream's %s: %w", s.at.send, err)
		}
		s.broken = true // events after this answer are missed
		return s.first(&item)
	}
	st, err := s.e.open(ctx, s.at, s.at.stream, s.at.sendParams(m, true), m.ID)
	var item answer.Item
	if err == nil {
		defer st.close()
		item, err = st.next()
	}
	if plain, again := s.noStreaming(err); plain {
		at := *s.at // its card promises streaming, which it does not have
		at.streaming = false
		s.at = &at
		if again {
			return s.sendOnce(ctx, m)
		}
	}
	if err != nil {
		return nil, err
	}
	end, err := s.first(&item)
	if err != nil {
		return nil, err
	}
	return s.listen(ctx, st, end)
}

// noStreaming reports whether an upstream has refused to stream, and whether the message can be sent again at once.
// After a status of 500 the upstream may have it. So the first message is sent again only if a task may be started
// twice, and a later one only after a read of the Task.
func (s *session) noStreaming(err error) (plain, again bool) {
	var said *answer.Error
	var refused *refusal
	switch {
	case errors.As(err, &said):
		plain = s.pos.Task == "" && (said.Code == answer.CodeUnsupported || said.Code == answer.CodeMethodNotFound)
		return plain, plain
	case errors.As(err, &refused):
		switch refused.status {
		case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusNotImplemented:
			return true, true
		}
		return refused.status == http.StatusInternalServerError, s.pos.Task == "" && s.e.c.OnLostTask == LostTaskRetry
	}
	return false, false
}

// first processes the first item of the answer to a message. It shows that the upstream has the message.
func (s *session) first(item *answer.Item) (*a2a.StatusUpdate, error) {
	s.failures, s.refused = 0, 0
	s.reply = item.Message != nil && s.pos.Task == ""
	if s.reply { // a direct reply, even if it names a task
		s.received()
		s.pos.Context = item.ContextID
		return &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted, Message: item.Message}}, nil
	}
	if s.pos.Task == "" {
		s.pos.Task, s.pos.Context = item.TaskID, item.ContextID
	}
	s.received()
	if err := s.save(); err != nil {
		return nil, err
	}
	if item.Task != nil && item.Task.Status.State.Interrupted() {
		// It may be the state before the message arrived.
		if err := s.checkTask(item); err != nil {
			return nil, err
		}
		_, err := s.catchUp(item.Task, s.replaces(), nil)
		return nil, err
	}
	return s.relayItem(item)
}

// save makes the worker save the checkpoint now: a checkpoint that is followed by another one is saved by itself.
func (s *session) save() error {
	for range 2 {
		if err := s.emit(&a2a.Checkpoint{Body: s.pos.encode()}); err != nil {
			return err
		}
	}
	return nil
}

// listen relays a stream to its end, or to the status that ends the turn. end is that status if it came already.
func (s *session) listen(ctx context.Context, st *stream, end *a2a.StatusUpdate) (*a2a.StatusUpdate, error) {
	for {
		if end != nil {
			end, err := s.drain(ctx, st, end)
			if end != nil || err != nil {
				return end, err
			}
		}
		item, err := st.next()
		if err != nil {
			s.broken = true
			if context.Cause(ctx) == nil && temporary(err) {
				s.log.Info("upstream's stream ended early", "err", err)
				return nil, nil
			}
			return nil, err
		}
		if end, err = s.relayItem(&item); err != nil {
			return nil, err
		}
	}
}

// pause waits before the next try. It returns err if the upstream has been unreachable for too long.
func (s *session) pause(ctx context.Context, err error) error {
	if s.failures == 0 {
		s.failing = time.Now()
	}
	s.failures++
	if time.Since(s.failing) > s.e.c.Patience {
		return err
	}
	s.e.cards.expire()
	s.log.Debug("upstream is unreachable", "err", err)
	return wait(ctx, minPause+pauses.Delay(s.failures-1, nil))
}

// The pauses between tries.
const minPause = 50 * time.Millisecond

var pauses = backoff.Policy{Base: 200 * time.Millisecond, Max: 5 * time.Second}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cancel sends one cancel to the upstream, unless its task has ended.
func (s *session) cancel(ctx context.Context, metadata a2a.Raw) (err error) {
	if s.pos.Task == "" || s.pos.Status.State.Terminal() {
		return nil
	}
	ctx, stop := context.WithTimeoutCause(ctx, cancelTimeout, errSlow)
	defer stop()
	if s.at == nil {
		if s.at, err = s.e.cards.get(ctx); err != nil {
			return err
		}
	}
	_, err = s.e.call(ctx, s.at, s.at.cancel, s.at.taskParams(s.pos.Task, metadata), "")
	var said *answer.Error
	if errors.As(err, &said) && (said.Code == answer.CodeTaskNotFound || said.Code == answer.CodeNotCancelable) {
		return nil // it has ended
	}
	return err
}
