package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/store"
)

const pullAgent = "far"

// pull measures remote workers that claim over HTTP: the rate of runs, the delay until a waiting worker gets a task,
// and the cost of a hundred idle workers.
func (b *bench) pull(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	if _, err := b.key(ctx, url); err != nil { // builds the binary
		return err
	}
	file := filepath.Join(b.dir, "agents", "far.yaml")
	if err := os.WriteFile(file,
		[]byte("name: "+pullAgent+"\ndescription: Has remote workers.\nexecutor: {pull: {}}\n"),
		0o644); err != nil {
		return err
	}
	defer os.Remove(file)
	key, err := b.workerKey(ctx, url)
	if err != nil {
		return err
	}
	srv, err := b.serve(ctx, "bench-pull", url)
	if err != nil {
		return err
	}
	defer srv.stop()
	st, err := b.store(ctx, url)
	if err != nil {
		return err
	}
	defer st.Close()
	p := &puller{url: srv.url, key: key, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}}
	defer p.client.CloseIdleConnections()
	for _, shape := range []pullShape{
		{"pull: runs", 16, 8, atLeast(1000), atLeast(4000)},
		{"pull: runs, claimed one at a time", 64, 1, atLeast(500), nil},
	} {
		if err := b.pullRate(ctx, st, srv, p, shape); err != nil {
			return err
		}
	}
	if err := b.pullIdle(ctx, srv, p); err != nil {
		return err
	}
	if err := b.pullPickup(ctx, p, srv, url); err != nil {
		return err
	}
	return b.checkFinished(ctx, url)
}

func (b *bench) workerKey(ctx context.Context, database string) (string, error) {
	cmd := exec.CommandContext(ctx, b.a2ad, "apikey", "create", "--tenant", benchTenant, "--owner", "fleet", "--scopes",
		"worker", "-o", "json")
	cmd.Env = b.environ(database)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("a2ad apikey create: %w%s", err, stderrOf(err))
	}
	var key struct{ Key string }
	err = json.Unmarshal(out, &key)
	return key.Key, err
}

// puller is a set of remote workers.
type puller struct {
	url, key string
	client   *http.Client
}

func (p *puller) post(ctx context.Context, path, body string, answer any) error {
	return p.request(ctx, http.MethodPost, path, body, answer)
}

func (p *puller) request(ctx context.Context, method, path, body string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.url+"/worker/v1/"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %.300s", path, resp.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(bytes.NewReader(text)).Decode(answer)
}

type pulled struct {
	Runs []struct {
		TaskID string
		Epoch  int64
	}
}

func (p *puller) claim(ctx context.Context, worker, limit, wait int) (pulled, error) {
	var got pulled
	err := p.post(ctx, "claim", fmt.Sprintf(`{"worker":"w%d","agents":[%q],"max":%d,"waitSeconds":%d}`, worker,
		pullAgent, limit, wait), &got)
	return got, err
}

const pullEnd = `{"events":[{"artifactUpdate":{"artifact":{"artifactId":"a","parts":[{"text":"done"}]},` +
	`"lastChunk":true}},{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}]}`

// pullShape is how workers claim.
type pullShape struct {
	name          string
	workers, each int // each claims that many tasks at a time
	target, aim   *target
}

// pullRate drains a queue with workers.
func (b *bench) pullRate(ctx context.Context, st *store.Store, srv *server, p *puller, shape pullShape) error {
	tasks := b.number(20_000, 4_000)
	var rates, servers, databases []float64
	for range b.number(3, 1) {
		if err := fillFor(ctx, st, pullAgent, tasks); err != nil {
			return err
		}
		before, err := b.usage(srv)
		if err != nil {
			return err
		}
		profiled := make(chan error, 1)
		go func() { profiled <- b.profile(ctx, srv, fmt.Sprintf("pull-%d", shape.each), 2*time.Second) }()
		start := time.Now()
		done, err := p.drain(ctx, shape.workers, shape.each)
		took := time.Since(start)
		if err := errors.Join(err, <-profiled); err != nil {
			return err
		}
		if done != tasks {
			return fmt.Errorf("void: %d of %d tasks were run", done, tasks)
		}
		after, err := b.usage(srv)
		if err != nil {
			return err
		}
		u := after.minus(before)
		rates = append(rates, float64(tasks)/took.Seconds())
		servers = append(servers, float64(u.server.Microseconds())/float64(tasks))
		databases = append(databases, float64(u.postgres.Microseconds())/float64(tasks))
	}
	f := figure{Name: shape.name, Unit: "/s", Target: shape.target.onQuiet(), Aim: shape.aim}.series(rates)
	f.Detail = fmt.Sprintf("%d workers claim %d at a time, one request with two events ends a run; "+
		"%.0f µs CPU a run: %.0f server, %.0f PostgreSQL", shape.workers, shape.each,
		median(servers)+median(databases), median(servers), median(databases))
	b.report.add(f)
	return nil
}

// drain lets workers claim and finish runs until the queue is empty, and returns their number.
func (p *puller) drain(ctx context.Context, workers, each int) (n int, err error) {
	var done atomic.Int64
	work, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for work.Err() == nil {
				got, err := p.claim(work, w, each, 0)
				if err != nil {
					cancel(err)
					return
				}
				if len(got.Runs) == 0 {
					return
				}
				for _, r := range got.Runs {
					if err := p.post(work, fmt.Sprintf("runs/%s/%d/events", r.TaskID, r.Epoch), pullEnd,
						nil); err != nil {
						cancel(err)
						return
					}
					done.Add(1)
				}
			}
		})
	}
	wg.Wait()
	err = context.Cause(work)
	cancel(nil)
	return int(done.Load()), err
}

// fillFor is fill for another agent, with tasks of many owners.
func fillFor(ctx context.Context, st *store.Store, agent string, tasks int) error {
	const callers = 256
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for n := c; n < tasks && ctx.Err() == nil; n += callers {
				in := submission(int64(n))
				in.Agent = agent
				if _, err := st.Tasks.Submit(ctx, in); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// pullIdle measures the cost of a hundred idle workers.
func (b *bench) pullIdle(ctx context.Context, srv *server, p *puller) error {
	const workers = 100
	span := b.span(30*time.Second, 10*time.Second)
	rest, err := b.pullCost(ctx, srv, span)
	if err != nil {
		return err
	}
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for work.Err() == nil {
				if _, err := p.claim(work, w, 1, 30); err != nil && work.Err() == nil {
					stop(err)
				}
			}
		})
	}
	if err := pause(work, 2*time.Second); err != nil {
		return err
	}
	cost, err := b.pullCost(work, srv, span)
	stop(errEnough)
	wg.Wait()
	if err == nil && !errors.Is(context.Cause(work), errEnough) {
		err = context.Cause(work)
	}
	if err != nil {
		return err
	}
	b.report.add(figure{
		Name: "pull: 100 idle workers", Value: cost, Unit: "% CPU", Target: atMost(5),
		Detail: fmt.Sprintf("of one core, server and PostgreSQL, over %s; %.1f %% without them", span, rest),
	})
	return nil
}

// pullCost returns the CPU time of server and PostgreSQL over a span, in percent of one core.
func (b *bench) pullCost(ctx context.Context, srv *server, span time.Duration) (float64, error) {
	before, err := b.usage(srv)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := pause(ctx, span); err != nil {
		return 0, err
	}
	after, err := b.usage(srv)
	if err != nil {
		return 0, err
	}
	u := after.minus(before)
	return 100 * (u.server + u.postgres).Seconds() / time.Since(start).Seconds(), nil
}

// finish ends the claimed runs.
func (p *puller) finish(ctx context.Context, claimed pulled) error {
	for _, r := range claimed.Runs {
		if err := p.post(ctx, fmt.Sprintf("runs/%s/%d/events", r.TaskID, r.Epoch), pullEnd, nil); err != nil {
			return err
		}
	}
	return nil
}

// pickedUp is the result of a claim, and when the worker had it.
type pickedUp struct {
	at  time.Time
	run pulled
	err error
}

// pickUp claims one run after another until ctx ends.
func (p *puller) pickUp(ctx context.Context, worker int, came chan<- pickedUp) {
	for ctx.Err() == nil {
		run, err := p.claim(ctx, worker, 1, 30)
		if ctx.Err() != nil || err == nil && len(run.Runs) == 0 {
			continue
		}
		came <- pickedUp{time.Now(), run, err}
	}
}

// pullPickup measures the time from a client's request until a waiting worker has the run.
func (b *bench) pullPickup(ctx context.Context, p *puller, srv *server, url string) error {
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	conn, err := dial(ctx, srv.addr(), "/agents/"+pullAgent, key, 64<<10)
	if err != nil {
		return err
	}
	defer conn.close()
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	came := make(chan pickedUp, 1)
	for w := range 4 {
		wg.Go(func() { p.pickUp(work, w, came) })
	}
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	var times []float64
	for i := range b.number(1000, 200) {
		start := time.Now()
		id := fmt.Sprintf("pick-%d", i)
		if _, err := conn.do([]byte(`{"jsonrpc":"2.0","id":1,"method":"message/send",` +
			`"params":{"configuration":{"blocking":false},"message":{"kind":"message","messageId":"` + id +
			`","role":"user","parts":[` + textPart("hello") + `]}}}`)); err != nil {
			return err
		}
		g := <-came
		if g.err != nil {
			return g.err
		}
		times = append(times, ms(g.at.Sub(start)))
		if err := p.finish(ctx, g.run); err != nil {
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	slices.Sort(times)
	b.report.add(figure{
		Name: "pull: pickup by a waiting worker, p99", Value: times[len(times)*99/100], Unit: "ms", Target: atMost(60),
		Detail: fmt.Sprintf("from the client's request to the worker, 4 wait; median %.1f ms, longest %.1f ms",
			times[len(times)/2], times[len(times)-1]),
	})
	return nil
}
