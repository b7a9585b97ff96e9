package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// idle measures the cost of streams on which nothing happens, each of another task.
func (b *bench) idle(ctx context.Context) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	n := b.number(b.opts.streams, min(b.opts.streams, 1000))
	s, err := b.serve(ctx, "bench-idle", url, noStreamLimit, "A2AD_MAX_STREAMS="+strconv.Itoa(n+100))
	if err != nil {
		return err
	}
	defer s.stop()
	tasks, err := waitingTasks(ctx, s, key, n)
	if err != nil {
		return err
	}
	rest := b.span(8*time.Second, 3*time.Second)
	if err := pause(ctx, rest); err != nil {
		return err
	}
	before, err := b.atRest(ctx, s, url)
	if err != nil {
		return err
	}
	start := time.Now()
	closeAll, err := joinEach(ctx, s, key, tasks)
	defer closeAll()
	if err != nil {
		return err
	}
	took := time.Since(start)
	if err := pause(ctx, rest); err != nil {
		return err
	}
	first, start := before, time.Now()
	if before, err = b.atRest(ctx, s, url); err != nil {
		return err
	}
	if err := pause(ctx, rest); err != nil {
		return err
	}
	after, err := b.atRest(ctx, s, url)
	if err != nil {
		return err
	}
	u, rested := after.usage.minus(before.usage), time.Since(start)
	b.reportIdle(n, first, after, took, share(u.server, rested), share(u.postgres, rested))
	return nil
}

// reportIdle adds the figures of n idle streams; server and postgres are their shares of the cores.
func (b *bench) reportIdle(n int, first, after rest, took time.Duration, server, postgres float64) {
	b.report.add(figure{
		Name: fmt.Sprintf("%d idle streams: memory each", n), Value: float64(after.memory-first.memory) / float64(n),
		Unit: "kB", Target: atMost(45),
		Baseline: "a2a-go in memory, measured once: 104 kB",
		Detail: fmt.Sprintf("resident, one task each; %d MB before, %d MB with them; opened one by one in %s; "+
			"at rest the server takes %.1f %% of the cores, PostgreSQL %.1f %%",
			first.memory>>10, after.memory>>10, took.Round(10*time.Millisecond), server,
			postgres),
	})
	b.report.add(figure{
		Name:  fmt.Sprintf("%d idle streams: additional database connections", n),
		Value: float64(after.backends - first.backends), Target: atMost(0.5),
		Detail: fmt.Sprintf("%d before, %d with them", first.backends, after.backends),
	})
	b.report.add(figure{
		Name:   fmt.Sprintf("%d idle streams: file descriptors each", n),
		Value:  float64(after.files-first.files) / float64(n),
		Detail: fmt.Sprintf("%d before, %d with them", first.files, after.files),
	})
}

// joinEach opens a stream of each task. closeAll closes them, also after an error.
func joinEach(ctx context.Context, s *server, key string, tasks []string) (closeAll func(), err error) {
	var open []*gathering
	closeAll = func() {
		for _, g := range open {
			g.close()
		}
	}
	for _, task := range tasks {
		g := &gathering{task: task, ctx: ctx}
		open = append(open, g)
		if err := g.join(s.addr(), key); err != nil {
			return closeAll, err
		}
	}
	return closeAll, nil
}

// rest is the memory and connections of a server at rest.
type rest struct {
	memory   int64 // kB
	files    int   // open file descriptors
	backends int64
	usage    usage
}

func (b *bench) atRest(ctx context.Context, s *server, url string) (r rest, err error) {
	if r.memory, err = residentKB(s.pid()); err != nil {
		return r, err
	}
	if r.files, err = openFiles(s.pid()); err != nil {
		return r, err
	}
	if r.usage, err = b.usage(s); err != nil {
		return r, err
	}
	r.backends, err = b.queryInt(ctx, url,
		`SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'a2ad-' || $1 || '%'`, s.name)
	return r, err
}

// waitingTasks creates tasks that wait for their client.
func waitingTasks(ctx context.Context, s *server, key string, n int) ([]string, error) {
	tasks := make([]string, n)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range senders {
		c, err := dial(ctx, s.addr(), "/agents/script", key, 4096)
		if err != nil {
			cancel(err)
			break
		}
		wg.Go(func() {
			defer c.close()
			for ctx.Err() == nil {
				k := int(next.Add(1)) - 1
				if k >= n {
					return
				}
				answer, err := c.do(sendRequest("message/send", "i"+strconv.Itoa(k), textPart("wait"), ""))
				if err == nil && !bytes.Contains(answer, []byte(`"state":"input-required"`)) {
					err = fmt.Errorf("not waiting: %.300s", answer)
				}
				if err != nil {
					cancel(err)
					return
				}
				tasks[k] = stringAfter(answer, `"kind":"task","id":"`, 36)
			}
		})
	}
	wg.Wait()
	return tasks, context.Cause(ctx)
}
