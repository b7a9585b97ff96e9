package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// agents measures a server with a thousand agents: its transactions at rest, and the delay until a task that another
// replica accepted is claimed.
func (b *bench) agents(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	const agents = 1000
	dir := filepath.Join(b.dir, "many")
	if err := writeAgents(dir, agents); err != nil {
		return err
	}
	span := b.span(30*time.Second, 10*time.Second)
	without, err := b.transactions(ctx, url, span)
	if err != nil {
		return err
	}
	few, err := b.startWith(ctx, url, filepath.Join(b.dir, "agents"), "echo")
	if err != nil {
		return err
	}
	start := time.Now()
	works, err := b.serve(ctx, "bench-works", url, "A2AD_AGENTS="+dir, "A2AD_DEFAULT_AGENT=agent-0000")
	if err != nil {
		return err
	}
	defer works.stop()
	b.reportStart(works, time.Since(start), few)
	rate, err := b.transactions(ctx, url, span)
	if err != nil {
		return err
	}
	b.report.add(figure{
		Name: "1000 agents at rest: transactions", Value: rate - without, Unit: "/s", Target: atMost(5),
		Detail: fmt.Sprintf("of one replica, by pg_stat_database over %s, less the %.1f/s that PostgreSQL makes by "+
			"itself", span, without),
	})
	front, err := b.serve(ctx, "bench-front", url, "A2AD_AGENTS="+dir, "A2AD_DEFAULT_AGENT=agent-0000",
		"A2AD_WORKERS=0")
	if err != nil {
		return err
	}
	defer front.stop()
	tasks := b.number(1000, 200)
	for i := range tasks {
		if err := sendTo(ctx, front, key, i, i*7%agents); err != nil {
			return err
		}
	}
	return b.pickups(ctx, url, tasks)
}

// started is how long a server took to start, and its memory then in kB.
type started struct {
	took   time.Duration
	memory int64
}

// startWith starts a server with other agents, and stops it.
func (b *bench) startWith(ctx context.Context, url, agents, standard string) (out started, err error) {
	start := time.Now()
	s, err := b.serve(ctx, "bench-few", url, "A2AD_AGENTS="+agents, "A2AD_DEFAULT_AGENT="+standard)
	if err != nil {
		return out, err
	}
	defer s.stop()
	out.took = time.Since(start)
	out.memory, err = residentKB(s.pid())
	return out, err
}

// reportStart adds the figures of the start of a server with many agents. few is that of one with two.
func (b *bench) reportStart(s *server, took time.Duration, few started) {
	b.report.add(figure{Name: "1000 agents: start", Value: ms(took), Unit: "ms",
		Detail: fmt.Sprintf("until it is ready; with two agents %s ms", number(ms(few.took)))})
	memory, err := residentKB(s.pid())
	if err != nil {
		return // the server has ended, which the next request reports
	}
	b.report.add(figure{Name: "1000 agents: memory", Value: float64(memory) / 1024, Unit: "MB",
		Detail: fmt.Sprintf("resident, of one server; with two agents %d MB", few.memory>>10)})
}

// writeAgents writes the files of n echo agents.
func writeAgents(dir string, n int) error {
	err := os.MkdirAll(dir, 0o755)
	for i := range n {
		text := fmt.Sprintf("name: agent-%04d\ndescription: Says what it was told.\nexecutor: {echo: {}}\n", i)
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("agent-%04d.yaml", i)), []byte(text), 0o644))
	}
	return err
}

// sendTo sends message i to an agent and waits for its task.
func sendTo(ctx context.Context, s *server, key string, i, agent int) error {
	conn, err := dial(ctx, s.addr(), fmt.Sprintf("/agents/agent-%04d", agent), key, 4096)
	if err != nil {
		return err
	}
	_, err = conn.do(sendRequest("message/send", fmt.Sprint("many-", i), textPart("hello"), ""))
	conn.close()
	if err != nil {
		return err
	}
	return pause(ctx, 5*time.Millisecond)
}

// pickups reports how long tasks waited for their claim.
func (b *bench) pickups(ctx context.Context, url string, tasks int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var n int
	var median, late, worst float64
	err = conn.QueryRow(ctx, `SELECT count(*), 1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY s),
		1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY s), 1000 * max(s)
		FROM (SELECT extract(epoch FROM a.claimed_at - t.created_at)::float8 AS s FROM a2a.tasks t
		JOIN a2a.task_attempts a ON a.task_id = t.id) x`).Scan(&n, &median, &late, &worst)
	if err != nil {
		return err
	}
	if n != tasks {
		return fmt.Errorf("%d of %d tasks were claimed once", n, tasks)
	}
	b.report.add(figure{
		Name: "1000 agents: pickup by another replica, p99", Value: late, Unit: "ms", Target: atMost(60),
		Detail: fmt.Sprintf("from the task's row to its claim, %d tasks of as many agents one after the other; "+
			"median %.1f ms, longest %.1f ms", tasks, median, worst),
	})
	return b.checkFinished(ctx, url)
}

// transactions returns the transactions per second of a database over a span.
func (b *bench) transactions(ctx context.Context, url string, span time.Duration) (float64, error) {
	const count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
	// idle sessions report statistics within 10 s, so this wait leaves the start out
	if err := pause(ctx, 12*time.Second); err != nil {
		return 0, err
	}
	before, err := b.queryInt(ctx, url, count)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := pause(ctx, span); err != nil {
		return 0, err
	}
	after, err := b.queryInt(ctx, url, count)
	return float64(after-before) / time.Since(start).Seconds(), err
}
