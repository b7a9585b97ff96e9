package script_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/script"
	"github.com/a2ad/a2ad/internal/executor/script/model"
	"github.com/a2ad/a2ad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// server replaces the worker and the store, with a log in memory. It saves an event together with the
// checkpoint before it. It saves a checkpoint alone if another one follows. Whatever was not saved is lost with
// the attempt.
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

// queue adds a message during a turn. No attempt has ended the turn, so the next attempt gets the message too.
func (s *server) queue(m a2a.Message) {
	s.fresh = append(s.fresh, m)
	s.task.History = append(s.task.History, m)
}

// run makes one attempt, which dies at its yield number crash+1, before the yield is processed. ended says that
// the turn has ended.
func (s *server) run(ctx context.Context, crash int) (ended bool, err error) {
	s.attempt++
	s.runs++
	s.become(a2a.Status{State: a2a.StateWorking}) // as on a claim
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
		if ended = s.commit(event); ended {
			return true, nil
		}
	}
	return false, fmt.Errorf("the run ended without a final status")
}

func (s *server) commit(event a2a.Event) (ended bool) {
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

// finish runs attempts until the turn ends.
func (s *server) finish(t *testing.T) {
	t.Helper()
	for range 100 {
		if ended, err := s.run(t.Context(), never); ended {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("100 attempts were not enough")
}
