package workerapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/workerapi"
)

// polls is a tracer that reports each poll and counts claims.
type polls struct {
	asked  chan struct{}
	claims atomic.Int64
}

func (p *polls) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.Contains(data.SQL, "name: QueuesDue "):
		p.asked <- struct{}{}
	case strings.Contains(data.SQL, "name: TaskClaim "), strings.Contains(data.SQL, "name: LaneHeads "):
		p.claims.Add(1)
	}
	return ctx
}

func (*polls) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestPollForManyAgentsIsOneStatement: claims that wait for very many agents cost one statement per
// poll.
func TestPollForManyAgentsIsOneStatement(t *testing.T) {
	t.Parallel()
	const agents = 64
	p := &polls{asked: make(chan struct{}, 10_000)}
	var list []*a2a.Agent
	var names []string
	for i := range agents {
		names = append(names, fmt.Sprintf("agent-%04d", i))
		list = append(list, &a2a.Agent{Name: names[i]})
	}
	f := newTracedFixture(t, p, func(c *workerapi.Config) { c.Agents, c.Poll = list, 5*time.Millisecond })
	said, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan reply, 1)
	go func() {
		r, err := f.tryAsk(t.Context(), f.at, "all", "POST", "/claim",
			fmt.Sprintf(`{"worker":"w","agents":%s,"waitSeconds":60}`, said))
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	for range 20 {
		select {
		case <-p.asked:
		case <-time.After(5 * time.Minute):
			t.Fatal("timed out waiting for a poll")
		}
	}
	if n := p.claims.Load(); n != 0 {
		t.Errorf("got %d claims for empty queues, want 0", n)
	}
	id := f.submit(names[agents-1], "ann")
	if runs := runsOf(t, <-got); len(runs) != 1 || runs[0].TaskID != id.String() {
		t.Errorf("runs %+v", runs)
	}
	if n := p.claims.Load(); n > 4 {
		t.Errorf("got %d claims for one task", n)
	}
}
