package a2a

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	over  bool // the status that ends the turn is out
	told  bool // something is out that tells of a task
	reply bool // the end of the turn is a message by itself

	started   bool      // this attempt has started an upstream task, or tried to
	broken    bool      // a connection broke or there was none: what was heard may have gaps
	noStream  bool      // resumed streams are of no use here
	fruitless int       // resumed streams in a row that brought nothing
	stale     int       // looks in a row that showed a question we had relayed
	refused   int       // answers of the client that the upstream did not take, in a row
	failures  int       // in a row
	failing   time.Time // since when
}

func newSession(e *Executor, run *executor.Run, emit func(a2a.Event) error) *session {
	said, fresh := executor.Conversation(*run)
	s := &session{
		e: e, run: run, said: said, fresh: fresh, pos: decodePosition(run.Checkpoint, len(said)), rec: newRecord(&run.Task),
		log: e.c.Log.With("task_id", run.Task.ID.String(), "agent", run.Agent, "epoch", run.Epoch),
	}
	s.emit = func(event a2a.Event) error {
		if _, ok := event.(*a2a.Checkpoint); !ok {
			s.told = true
		}
		return emit(event)
	}
	return s
}

// errForgotten says that the upstream knows nothing of the task.
var errForgotten = errors.New("the upstream agent no longer knows the task")

// do relays until the turn has ended.
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
		case errors.Is(err, errForgotten):
			if err = s.forget(); err != nil {
				return err
			}
			continue
		case err != nil:
			return s.verdict(err)
		case end == nil && s.pos.Task == "":
			end, err = s.send(ctx)
		case end == nil:
			end, err = s.follow(ctx)
		case s.unsaid(end.Status.State):
			if err = s.pass(end); err != nil {
				return err
			}
			if end.Status.State.Terminal() {
				s.next()
			}
			end, err = s.send(ctx)
		default:
			return s.finish(ctx, end)
		}
	}
}

// find reads the card.
func (s *session) find(ctx context.Context) (err error) {
	for {
		if s.at, err = s.e.cards.get(ctx); err == nil {
			return nil
		}
		if !passing(err) {
			return s.verdict(err)
		}
		if err := s.pause(ctx, err); err != nil {
			return s.verdict(err)
		}
	}
}

// unsaid reports whether the client has said more than the upstream, which is in this state, has
// heard. What a task that has ended was told before this turn needs no answer any more.
func (s *session) unsaid(state a2a.State) bool {
	if state.Terminal() {
		s.pos.Said = max(s.pos.Said, s.fresh)
	}
	return s.pos.Said < len(s.said)
}

// next leaves an upstream task that has ended for another one in the same context.
func (s *session) next() {
	if s.pos.Said >= len(s.said) {
		s.pos.Said = min(s.fresh, len(s.said)-1)
	}
	s.pos = position{Context: s.pos.Context, Before: s.pos.Task, Nth: s.pos.Nth + 1, From: s.pos.Said, Said: s.pos.Said}
	s.started = false
}

// forget decides what becomes of a task that the upstream has lost. An attempt starts one upstream
// task only, so that the record of attempts explains how many there were.
func (s *session) forget() error {
	s.log.Warn("upstream has lost the task", "upstream_task", s.pos.Task)
	switch {
	case s.e.c.OnLostTask == LostTaskFail:
		return executor.Permanent(errForgotten)
	case s.started:
		return errForgotten
	}
	s.pos = position{Context: s.pos.Context, Before: s.pos.Before, Nth: s.pos.Nth, From: s.pos.From, Said: s.pos.From}
	return nil
}

// message is the next one for the upstream. Its id is the same whenever it is sent.
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

// send passes the next message on and relays what comes back. Without an end and an error the
// upstream has the message, or it can be found out whether it has.
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
		case s.pos.Task != "" && isTaskNotFound(err): // which only a look tells for sure
		case context.Cause(ctx) != nil || !passing(err):
			return nil, err
		case unsent(err):
			if wait := asked(err); wait > 0 {
				return nil, executor.RetryAfter(err, wait)
			}
			if err := s.pause(ctx, err); err != nil {
				return nil, err
			}
			continue
		case s.pos.Task == "" && s.e.c.OnLostTask == LostTaskFail:
			return nil, executor.Permanent(fmt.Errorf("the upstream agent may have started the task: %w", err))
		case s.pos.Task == "":
			return nil, err // the next attempt sends it again, under the same ids
		}
		// Following shows whether the upstream has heard it.
		s.broken = true
		if s.refused++; s.refused > maxRefused {
			return nil, err
		}
		return nil, s.pause(ctx, err)
	}
}

// maxRefused is how often in a row the upstream may fail to take an answer to its own question.
const maxRefused = 10

func isTaskNotFound(err error) bool {
	var said *answer.Error
	return errors.As(err, &said) && said.Code == answer.CodeTaskNotFound
}

// sendOnce fails with an error that is passing only if nothing was heard in answer.
func (s *session) sendOnce(ctx context.Context, m *a2a.Message) (*a2a.StatusUpdate, error) {
	if !s.at.streaming {
		result, err := s.e.call(ctx, s.at, s.at.send, s.at.sendParams(m, false), m.ID)
		if err != nil {
			return nil, err
		}
		item, err := answer.Decode(result)
		if err != nil {
			return nil, invalid("the upstream's %s: %w", s.at.send, err)
		}
		s.broken = true // what happens behind this answer is not heard
		return s.first(&item)
	}
	st, err := s.e.open(ctx, s.at, s.at.stream, s.at.sendParams(m, true), m.ID)
	var item answer.Item
	if err == nil {
		defer st.close()
		item, err = st.next()
	}
	var said *answer.Error
	if errors.As(err, &said) && (said.Code == answer.CodeUnsupported || said.Code == answer.CodeMethodNotFound) && s.pos.Task == "" {
		at := *s.at // its card promises more than it does
		at.streaming = false
		s.at = &at
		return s.sendOnce(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	end, err := s.first(&item)
	if end != nil || err != nil {
		return end, err
	}
	return s.listen(ctx, st)
}

// first takes the first thing that the upstream says to a message: that it has it.
func (s *session) first(item *answer.Item) (*a2a.StatusUpdate, error) {
	s.failures, s.refused = 0, 0
	s.reply = item.Message != nil && s.pos.Task == ""
	if s.reply { // a direct reply, whatever task it names
		s.pos.Said++
		s.pos.Context = item.ContextID
		return &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted, Message: item.Message}}, nil
	}
	if s.pos.Task == "" {
		s.pos.Task, s.pos.Context = item.TaskID, item.ContextID
	}
	s.pos.Said++
	if err := s.save(); err != nil {
		return nil, err
	}
	if item.Task != nil && item.Task.Status.State.Interrupted() {
		// It may be of the moment before the message arrived.
		if err := s.ours(item); err != nil {
			return nil, err
		}
		return nil, s.catchUp(item.Task)
	}
	return s.take(item)
}

// save has the checkpoint written now: one that another follows is saved by itself.
func (s *session) save() error {
	for range 2 {
		if err := s.emit(&a2a.Checkpoint{Body: s.pos.encode()}); err != nil {
			return err
		}
	}
	return nil
}

// listen relays a stream to its end, or to the status that ends the turn.
func (s *session) listen(ctx context.Context, st *stream) (*a2a.StatusUpdate, error) {
	for {
		item, err := st.next()
		if err != nil {
			s.broken = true
			if context.Cause(ctx) == nil && passing(err) {
				s.log.Info("upstream's stream ended early", "err", err)
				return nil, nil
			}
			return nil, err
		}
		end, err := s.take(&item)
		if end != nil || err != nil {
			return end, err
		}
	}
}

// pause waits before the next try. It returns err when the upstream has been away for too long.
func (s *session) pause(ctx context.Context, err error) error {
	if s.failures == 0 {
		s.failing = time.Now()
	}
	s.failures++
	if time.Since(s.failing) > s.e.c.Patience {
		return err
	}
	s.e.cards.doubt()
	s.log.Debug("upstream is away", "err", err)
	return wait(ctx, 50*time.Millisecond+backoff.Policy{Base: 200 * time.Millisecond, Max: 5 * time.Second}.Delay(s.failures-1, nil))
}

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

// cancel tells the upstream, once, that its work is not wanted any more.
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
		return nil // there is nothing to end any more
	}
	return err
}

// passing reports whether trying again may help.
func passing(err error) bool {
	var broke *lostError
	var said *answer.Error
	var refused *refusal
	switch {
	case executor.IsPermanent(err):
		return false
	case errors.As(err, &broke):
		return true
	case errors.As(err, &said):
		switch said.Code {
		case answer.CodeParse, answer.CodeInvalidRequest, answer.CodeMethodNotFound, answer.CodeInvalidParams:
			return false
		}
		return said.Code > answer.CodeTaskNotFound || said.Code <= answer.CodeVersion // of A2A itself
	case errors.As(err, &refused):
		return refused.passing()
	}
	return false
}

// unsent reports whether the upstream certainly has not taken the request.
func unsent(err error) bool {
	var broke *lostError
	var refused *refusal
	switch {
	case errors.As(err, &broke):
		return !broke.sent
	case errors.As(err, &refused):
		return refused.turnedAway()
	}
	return false
}

func asked(err error) time.Duration {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused.after
	}
	return 0
}

// verdict is what an error says about the run. What no other attempt would mend is permanent. It
// is shown to the client, who need not know where the upstream is.
func (s *session) verdict(err error) error {
	var said *answer.Error
	var broke *lostError
	var refused *refusal
	switch {
	case executor.IsPermanent(err), executor.RetryDelay(err) > 0:
		return err
	case errors.As(err, &broke):
		s.log.Warn("upstream is away", "err", broke.err)
	case errors.As(err, &said):
		if said.Code == answer.CodeVersion || said.Code == answer.CodeMethodNotFound {
			s.e.cards.doubt() // it may speak another version now
		}
		err = fmt.Errorf("the upstream agent answers with %w", err)
	case errors.As(err, &refused):
	default:
		return err
	}
	if wait := asked(err); wait > 0 && passing(err) {
		return executor.RetryAfter(err, wait)
	}
	if !passing(err) {
		return executor.Permanent(err)
	}
	return err
}
