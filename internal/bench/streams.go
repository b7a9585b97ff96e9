package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// noStreamLimit lets one owner open all streams of a benchmark.
const noStreamLimit = "A2AD_MAX_STREAMS_PER_OWNER=100000"

// crossing measures the time from an event's commit on one replica to a client that streams from another, which runs
// no agents.
func (b *bench) crossing(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	works, err := b.serve(ctx, "bench-works", url)
	if err != nil {
		return err
	}
	defer works.stop()
	serves, err := b.serve(ctx, "bench-serves", url, "A2AD_WORKERS=0")
	if err != nil {
		return err
	}
	defer serves.stop()
	const perSecond = 100
	if _, err := b.follow(ctx, serves.addr(), key, "w", perSecond, 2*time.Second); err != nil {
		return err
	}
	before, err := b.usage(works, serves)
	if err != nil {
		return err
	}
	start := time.Now()
	seen, err := b.follow(ctx, serves.addr(), key, "x", perSecond, b.span(20*time.Second, 5*time.Second))
	if err != nil {
		return err
	}
	took := time.Since(start)
	after, err := b.usage(works, serves)
	if err != nil {
		return err
	}
	delays, err := b.delays(ctx, url, seen)
	if err != nil {
		return err
	}
	u := after.minus(before)
	b.report.add(figure{Name: "commit to client of the other replica: p50", Value: ms(quantile(delays, 0.50)),
		Unit: "ms"})
	b.report.add(figure{
		Name: "commit to client of the other replica: p99", Value: ms(quantile(delays, 0.99)), Unit: "ms",
		Target: atMost(80),
		Detail: fmt.Sprintf("%d events of %d tasks at %d/s, worst %s ms; generator %.0f %% of the cores, "+
			"servers and PostgreSQL %.0f %%", len(delays), len(seen), perSecond,
			number(ms(delays[len(delays)-1])), share(u.own, took), share(u.server+u.postgres, took)),
	})
	return nil
}

// share returns CPU time as a percentage of all cores.
func share(cpu, took time.Duration) float64 {
	return 100 * cpu.Seconds() / took.Seconds() / float64(runtime.NumCPU())
}

// arrivals records when each event of one task arrived, by seq.
type arrivals struct {
	task string
	at   map[int64]time.Time
}

// follow starts a stream of a new task at each multiple of 1/perSecond and records the arrivals.
func (b *bench) follow(ctx context.Context, addr, key, prefix string, perSecond int, span time.Duration) ([]arrivals,
	error) {
	total := int64(span.Seconds() * float64(perSecond))
	seen := make([]arrivals, total)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var next atomic.Int64
	start := time.Now().Add(50 * time.Millisecond)
	for range 64 {
		c, err := dial(ctx, addr, "/", key, 4096)
		if err != nil {
			cancel(err)
			break
		}
		wg.Go(func() {
			defer c.close()
			for {
				k := next.Add(1) - 1
				if k >= total ||
					pause(ctx, time.Until(start.Add(time.Duration(k)*time.Second/time.Duration(perSecond)))) != nil {
					return
				}
				if err := seen[k].read(c, prefix+strconv.FormatInt(k, 10)); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return seen, context.Cause(ctx)
}

func (a *arrivals) read(c *httpConn, id string) error {
	body, err := c.stream(sendRequest("message/stream", id, textPart("hello "+id), ""), "")
	if err != nil {
		return err
	}
	defer body.Close()
	a.at = make(map[int64]time.Time, 4)
	ended := false
	err = eachEvent(body, func(seq int64, _ string, data []byte) error {
		a.at[seq] = time.Now()
		if a.task == "" {
			a.task = stringAfter(data, `"kind":"task","id":"`, 36)
		}
		ended = bytes.Contains(data, completed)
		return nil
	})
	if err == nil && !ended {
		err = errors.New("void: a stream ended before its task")
	}
	return err
}

// delays compares arrivals with the commit times of the log, which come from the same clock. It leaves out the first
// event of a task, which is committed on the replica that streams it.
func (b *bench) delays(ctx context.Context, url string, seen []arrivals) ([]time.Duration, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	type position struct {
		task string
		seq  int64
	}
	committed := make(map[position]time.Time)
	var p position
	var at time.Time
	//nolint:rowserrcheck // ForEachRow returns it
	rows, err := conn.Query(ctx, `SELECT e.task_id::text, e.seq, e.committed_at FROM audit.event e WHERE e.seq > 1`)
	if err != nil {
		return nil, err
	}
	if _, err := pgx.ForEachRow(rows, []any{&p.task, &p.seq, &at}, func() error {
		committed[p] = at
		return nil
	}); err != nil {
		return nil, err
	}
	var delays []time.Duration
	for _, a := range seen {
		for seq, arrived := range a.at {
			if seq == 1 {
				continue
			}
			at, ok := committed[position{a.task, seq}]
			if !ok {
				return nil, fmt.Errorf("void: event %d of task %q is not in the log", seq, a.task)
			}
			delays = append(delays, arrived.Sub(at))
		}
	}
	slices.Sort(delays)
	return delays, nil
}

// fanout measures many subscribers of one task, each of which must get every event.
func (b *bench) fanout(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, "bench-fanout", url, noStreamLimit)
	if err != nil {
		return err
	}
	defer s.stop()
	const subscribers = 1000
	var rates, cpus, owns []float64
	for range b.number(5, 2) {
		rate, u, n, err := b.fanoutOnce(ctx, s, key, subscribers, b.number(400, 200))
		if err != nil {
			return err
		}
		rates = append(rates, rate)
		cpus = append(cpus, float64(u.server.Microseconds())/n)
		owns = append(owns, float64(u.own.Microseconds())/n)
	}
	f := figure{Name: fmt.Sprintf("%d subscribers of one task: deliveries", subscribers), Unit: "/s",
		Target: atLeast(40_000)}.series(rates)
	f.Detail = fmt.Sprintf("server %s µs CPU a delivery, the reading side of the bench %s µs, on the same cores",
		number(median(cpus)), number(median(owns)))
	b.report.add(f)
	return nil
}

func (b *bench) fanoutOnce(ctx context.Context, s *server, key string, subscribers, chunks int) (perSecond float64,
	u usage, events float64, err error) {
	c, err := dial(ctx, s.addr(), "/agents/script", key, 64<<10)
	if err != nil {
		return 0, u, 0, err
	}
	defer c.close()
	// The script waits for a message while the subscribers connect.
	answer, err := c.do(sendRequest("message/send", "f",
		scriptPart(fmt.Sprintf(`{"op":"input"},{"op":"chunk","id":"a","n":%d,"bytes":100},{"op":"complete"}`, chunks)),
		""))
	if err != nil {
		return 0, u, 0, err
	}
	task := stringAfter(answer, `"kind":"task","id":"`, 36)
	if task == "" {
		return 0, u, 0, fmt.Errorf("no task: %.300s", answer)
	}
	g := &gathering{task: task, ctx: ctx}
	defer g.close()
	for range subscribers {
		if err := g.join(s.addr(), key); err != nil {
			return 0, u, 0, err
		}
	}
	before, err := b.usage(s)
	if err != nil {
		return 0, u, 0, err
	}
	start := time.Now()
	if _, err := c.do(sendRequest("message/send", "g", textPart("go"), `,"taskId":"`+task+`"`)); err != nil {
		return 0, u, 0, err
	}
	n, err := g.wait()
	took := time.Since(start)
	if err != nil {
		return 0, u, 0, err
	}
	after, err := b.usage(s)
	if err != nil {
		return 0, u, 0, err
	}
	if want := int64(subscribers * (chunks + 3)); n != want { // submitted, working, the chunks, completed
		return 0, u, 0, fmt.Errorf("void: %d deliveries, not %d", n, want)
	}
	return float64(n) / took.Seconds(), after.minus(before), float64(n), nil
}

// gathering is many subscribers of one task that read with little CPU time.
type gathering struct {
	task  string
	ctx   context.Context //nolint:containedctx // of one round
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []*httpConn // guarded by mu
	err   error       // guarded by mu
	n     atomic.Int64
}

// join opens a stream and returns when it has begun.
func (g *gathering) join(addr, key string) error {
	c, err := dial(g.ctx, addr, "/agents/script", key, 4096)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.conns = append(g.conns, c)
	g.mu.Unlock()
	body, err := c.stream([]byte(
		`{"jsonrpc":"2.0","id":"s","method":"tasks/resubscribe","params":{"id":"`+g.task+`"}}`),
		"")
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(body, 4096)
	seq, err := nextID(r) // the Task
	if err != nil {
		return err
	}
	g.wg.Go(func() {
		defer body.Close()
		if err := g.read(r, seq); err != nil && g.ctx.Err() == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.err = err
		}
	})
	return nil
}

// read counts the events of a stream, which must have consecutive numbers.
func (g *gathering) read(r *bufio.Reader, seq int64) error {
	for {
		next, err := nextID(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if next != seq+1 {
			return fmt.Errorf("%w: %d after %d", errGap, next, seq)
		}
		seq = next
		g.n.Add(1)
	}
}

// nextID reads up to the next id line of a stream and returns its number.
func nextID(r *bufio.Reader) (int64, error) {
	for {
		line, err := r.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = r.ReadSlice('\n') // the rest of a long data line
			line = line[:0]
		}
		if err != nil {
			return 0, err
		}
		if !bytes.HasPrefix(line, []byte("id: ")) {
			continue
		}
		digits, _, _ := bytes.Cut(line[4:], []byte("-"))
		return strconv.ParseInt(string(digits), 10, 64)
	}
}

// wait returns the number of events read, once all streams have ended.
func (g *gathering) wait() (int64, error) {
	g.wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n.Load(), g.err
}

func (g *gathering) close() {
	g.mu.Lock()
	for _, c := range g.conns {
		c.close()
	}
	g.mu.Unlock()
	g.wg.Wait()
}
