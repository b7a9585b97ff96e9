package worker_test

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

// tally is a tracer that counts statements by their names.
type tally struct {
	mu    sync.Mutex
	count map[string]int // guarded by mu
	polls chan struct{}  // one for each statement of the name that is waited for
	name  string
}

var statementName = regexp.MustCompile(`name: (\w+) `)

func newTally(name string) *tally {
	return &tally{count: make(map[string]int), polls: make(chan struct{}, 10_000), name: name}
}

func (s *tally) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	name := data.SQL
	if m := statementName.FindStringSubmatch(data.SQL); m != nil {
		name = m[1]
	}
	s.mu.Lock()
	s.count[name]++
	s.mu.Unlock()
	if name == s.name {
		s.polls <- struct{}{}
	}
	return ctx
}

func (*tally) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *tally) of(names ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		n += s.count[name]
	}
	return n
}

func manyAgents(n int, e agentFunc) (agents []worker.Agent) {
	for i := range n {
		agents = append(agents, agent(fmt.Sprintf("agent-%04d", i), e))
	}
	return agents
}

// A poll is one statement for all agents, and there are no claims for agents without tasks.
func TestPollOfManyAgentsIsOneStatement(t *testing.T) {
	t.Parallel()
	s := newTally("QueuesDue")
	f := newFixture(t, func(c *store.Config) { c.Tracer = s })
	p := f.start(
		config(
			func(c *worker.Config) { c.Poll = 5 * time.Millisecond },
			manyAgents(1000, say(status(a2a.StateCompleted)))...),
	)
	const polls = 20
	for range polls {
		receive(t, "poll", s.polls)
	}
	if n := s.of("TaskClaim", "LaneHeads"); n != 0 {
		t.Errorf("%d claims and polls while nothing waited: %v", n, s.count)
	}
	f.hub.WakeAll() // as after the listener has connected again
	for range polls {
		receive(t, "poll", s.polls)
	}
	if n := s.of("TaskClaim", "LaneHeads"); n > 20 { // from the ones that were woken first
		t.Errorf("%d claims and polls after all were woken", n)
	}
	// Tasks without a wake-up are found by the poll, with a claim or two for each.
	taskList := make([]a2a.ID, 5)
	for i := range taskList {
		taskList[i] = f.submitSilently(fmt.Sprintf("agent-%04d", i*200))
	}
	for _, task := range taskList {
		f.waitState(task, a2a.StateCompleted)
	}
	p.stop()
	if n := s.of("TaskClaim", "LaneHeads"); n > 20+4*len(taskList) {
		t.Errorf("%d claims and polls for %d tasks", n, len(taskList))
	}
}

// submitSilently submits a task like another replica whose wake-up is lost.
func (f *fixture) submitSilently(agent string) a2a.ID {
	f.t.Helper()
	other, err := store.Open(f.t.Context(), store.Config{Config: db.Config{URL: f.url, Replica: "r2", PoolSize: 2}})
	if err != nil {
		f.t.Fatal(err)
	}
	defer other.Close()
	out, err := other.Tasks.Submit(
		f.t.Context(),
		tasks.Submission{Caller: ann, Agent: agent, ContextID: "ctx", Message: message("x")},
	)
	if err != nil {
		f.t.Fatal(err)
	}
	return out.Task
}
