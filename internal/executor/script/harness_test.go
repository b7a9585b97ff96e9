package script_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/script"
	"github.com/a2ad/a2ad/internal/executor/script/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is what a worker and a store are to an executor, with a log in memory: an event
// is saved together with the checkpoint before it, a checkpoint that another follows is
// saved by itself, and what was not saved dies with the attempt.
type server struct {
	exec       *script.Executor
	task       a2a.Task
	fresh      []a2a.Message // of this turn
	checkpoint a2a.Raw
	log        []a2a.Event
	attempt    int // of this turn
	runs       int
}

func newServer(c script.Config) *server {
	if c.Allow == nil {
		c.Allow = netip.Addr.IsLoopback
	}
	return &server{exec: script.New(c), task: a2a.Task{ID: a2a.ID{1}, ContextID: "c"}}
}

func say(id, text string) a2a.Message {
	return a2a.Message{ID: id, Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}
}

func play(ops string) a2a.Message {
	return a2a.Message{ID: "m", Role: a2a.RoleUser,
		Parts: []a2a.Part{{Kind: a2a.PartText, Text: "play"},
			{Kind: a2a.PartData, Data: a2a.Raw(`{"script":` + ops + `}`)}}}
}

// send starts a turn with these messages.
func (s *server) send(messages ...a2a.Message) {
	s.fresh, s.attempt = messages, 0
	s.task.History = append(s.task.History, messages...)
}

// queue adds a message while a turn is being worked on and, as no attempt has finished
// the turn, to what the next attempt is given.
func (s *server) queue(m a2a.Message) {
	s.fresh = append(s.fresh, m)
	s.task.History = append(s.task.History, m)
}

// run makes one attempt that dies when it yields for the (crash+1)th time, before that
// is looked at. over says that the turn ended.
func (s *server) run(ctx context.Context, crash int) (over bool, err error) {
	s.attempt++
	s.runs++
	s.become(a2a.Status{State: a2a.StateWorking}) // as a claim does
	run := executor.Run{Task: s.task, Messages: s.fresh, Attempt: s.attempt, Epoch: int64(s.runs),
		Checkpoint: s.checkpoint}
	var pending a2a.Raw
	yields := 0
	for event, err := range s.exec.Execute(ctx, run) {
		if yields == crash {
			return false, nil
		}
		yields++
		if err != nil {
			return executor.IsPermanent(err), err
		}
		if c, ok := event.(*a2a.Checkpoint); ok {
			if pending != nil {
				s.checkpoint = pending
			}
			pending = c.Body
			continue
		}
		if pending != nil {
			s.checkpoint, pending = pending, nil
		}
		if over = s.commit(event); over {
			return true, nil
		}
	}
	return false, fmt.Errorf("the run ended without a final status")
}

func (s *server) commit(event a2a.Event) (over bool) {
	s.log = append(s.log, event)
	switch e := event.(type) {
	case *a2a.ArtifactUpdate:
		s.task.Artifacts = a2a.Fold(s.task.Artifacts, e)
	case *a2a.StatusUpdate:
		s.become(e.Status)
		return e.Status.State.EndsTurn()
	}
	return false
}

func (s *server) become(status a2a.Status) {
	if old := s.task.Status.Message; old != nil {
		s.task.History = append(s.task.History, *old)
	}
	s.task.Status = status
}

const never = 1 << 30

func (s *server) events() []model.Event {
	var events []model.Event
	for _, e := range s.log {
		events = append(events, model.Of(e))
	}
	return events
}

// finish runs attempts to the end of the turn.
func (s *server) finish(t *testing.T) {
	t.Helper()
	for range 100 {
		if over, err := s.run(t.Context(), never); over {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("100 attempts were not enough")
}
