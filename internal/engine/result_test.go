package engine_test

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wake"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
	"github.com/a2ad/a2ad/internal/worker"
)

var ann = db.Caller{Tenant: "acme", Owner: "ann"}

// played is an executor that yields the given events.
type played func(run executor.Run) []a2a.Event

// Execute yields the events.
func (p played) Execute(_ context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		for _, e := range p(run) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// start runs a replica without its HTTP server until the test ends.
func start(t *testing.T, agent *a2a.Agent, e executor.Executor) (*engine.Engine, *store.Store) {
	t.Helper()
	hub := &notify.Hub{}
	var follower *stream.Follower
	s, err := store.Open(t.Context(), store.Config{
		Config: db.Config{URL: storetest.New(t).URL, Replica: "r1", PoolSize: 8, Wake: hub.Wake},
		Committed: func(id a2a.ID, events []a2a.Entry) {
			if !follower.Offer(id, events) {
				hub.Wake(wake.Task(id))
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	follower = stream.New(s.Tasks, hub, time.Second, logger)
	eng, err := engine.New(s, follower, engine.Config{PageKey: make([]byte, 32), BlockingMaxWait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	pool := worker.New(s.Tasks, hub, worker.Config{
		Worker: "r1", Slots: 4, Agents: []worker.Agent{{Agent: agent, Executor: e}},
		Limits: a2a.Limits{LeaseTTL: time.Minute, MaxAttempts: 1, Deadline: time.Hour},
		Poll:   time.Second, Drain: time.Second, Logger: logger,
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{follower.Run, pool.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		running.Wait()
		s.Close()
	})
	return eng, s
}

func say(text string) *a2a.SendMessage {
	return &a2a.SendMessage{Blocking: true, Message: a2a.Message{
		ID: "m-" + text, Role: a2a.RoleUser, ContextID: "c1", Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}},
		Extensions: []string{"x"}, Metadata: a2a.Raw(`{"n":1.0}`),
	}}
}

func status(s a2a.State, text string) a2a.Event {
	u := &a2a.StatusUpdate{Status: a2a.Status{State: s}}
	if text != "" {
		u.Status.Message = &a2a.Message{ID: "s-" + text, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}},
			Metadata: a2a.Raw(`{"a":[ 1 ]}`)}
	}
	return u
}

func artifact(id, text string, more bool) a2a.Event {
	return &a2a.ArtifactUpdate{Append: more, LastChunk: true, Metadata: a2a.Raw(`{"e":1}`), Artifact: a2a.Artifact{
		ID: id, Name: "n" + id, Description: "d", Metadata: a2a.Raw(`{"b": 1e2}`),
		Parts: []a2a.Part{{Kind: a2a.PartText, Text: text, MediaType: "text/plain"}},
	}}
}

// TestSendAnswersLikeARead: a blocking send that answers from the events it has seen returns what a
// read would.
func TestSendAnswersLikeARead(t *testing.T) {
	t.Parallel()
	working, done := status(a2a.StateWorking, "on it"), status(a2a.StateCompleted, "")
	many := make([]a2a.Event, 0, 101)
	for range 100 {
		many = append(many, artifact("a", "piece", true))
	}
	scripts := map[string][]a2a.Event{
		"nothing":  {done},
		"artifact": {artifact("a", "x", false), done},
		"chunks":   {artifact("a", "x", false), artifact("b", "y", true), artifact("a", "z", true), done},
		"replaced": {artifact("a", "x", false), artifact("b", "y", false), artifact("a", "z", false), done},
		"statuses": {working, artifact("a", "x", false), status(a2a.StateWorking, "still"), working,
			status(a2a.StateCompleted, "there")},
		"quiet":       {working, status(a2a.StateWorking, ""), done},
		"input":       {working, status(a2a.StateInputRequired, "which?")},
		"auth":        {artifact("a", "x", false), status(a2a.StateAuthRequired, "sign in")},
		"failed":      {artifact("a", "x", false), status(a2a.StateFailed, "no")},
		"no end":      {artifact("a", "x", false)},
		"many events": append(many, done),
		"much":        {artifact("a", strings.Repeat("x", 100_000), false), done},
	}
	agent := &a2a.Agent{Name: "player"}
	eng, s := start(t, agent, played(func(run executor.Run) []a2a.Event {
		return scripts[run.Messages[0].Parts[0].Text]
	}))
	for name := range scripts {
		for _, history := range []*int{nil, new(int), new(1)} {
			op := say(name)
			op.HistoryLength = history
			got, err := eng.Send(t.Context(), ann, agent, op)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want, err := s.Tasks.SnapshotOfAny(t.Context(), got.ID, tasks.Want{History: history, Artifacts: true})
			if err != nil {
				t.Fatal(err)
			}
			codec := v03.Codec{}
			if diff := cmp.Diff(string(codec.AppendSent(nil, want)), string(codec.AppendSent(nil, got))); diff != "" {
				t.Errorf("%s: (-read +sent):\n%s", name, diff)
			}
			if got.LastSeq != want.LastSeq || got.LastUID != want.LastUID || !got.CreatedAt.Equal(want.CreatedAt) {
				t.Errorf("%s: sent %d %s %s, read %d %s %s", name, got.LastSeq, got.LastUID, got.CreatedAt,
					want.LastSeq, want.LastUID, want.CreatedAt)
			}
		}
	}
}

// TestSendIncludesMessagesOfOtherRequests: no event contains the message that another request sent
// to the task meanwhile.
func TestSendIncludesMessagesOfOtherRequests(t *testing.T) {
	t.Parallel()
	started, goOn := make(chan a2a.ID, 2), make(chan struct{})
	agent := &a2a.Agent{Name: "player"}
	eng, s := start(t, agent, played(func(run executor.Run) []a2a.Event {
		started <- run.Task.ID
		<-goOn
		return []a2a.Event{status(a2a.StateCompleted, "")}
	}))
	type answer struct {
		task *a2a.Task
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		task, err := eng.Send(t.Context(), ann, agent, say("first"))
		answers <- answer{task, err}
	}()
	id := <-started
	second := say("second")
	second.Blocking, second.Message.TaskID = false, id.String()
	if _, err := eng.Send(t.Context(), ann, agent, second); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	want, err := s.Tasks.SnapshotOfAny(t.Context(), id, tasks.Want{Artifacts: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(want.History) != 2 {
		t.Fatalf("the task has %d messages, want both", len(want.History))
	}
	if diff := cmp.Diff(want, a.task); diff != "" {
		t.Errorf("(-read +sent):\n%s", diff)
	}
}
