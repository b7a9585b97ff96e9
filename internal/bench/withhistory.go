package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/maintenance"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// withHistory measures operations beside n ended tasks. Those that clients and workers wait for are compared with the
// same operation on an empty database, in turns.
func (b *bench) withHistory(ctx context.Context, url string, n int) error {
	empty, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	full := millions(n) + " ended tasks: "
	if err := b.servedHistory(ctx, url, empty, full); err != nil {
		return err
	}
	if err := b.claimsWithHistory(ctx, url, empty, full); err != nil {
		return err
	}
	if err := b.listShared(ctx, url, n); err != nil {
		b.report.add(figure{Name: full + "list of a tenant that shares its tasks", Unit: "ms", Detail: err.Error()})
	}
	return b.retireHistory(ctx, url, full)
}

// servedHistory measures what one server does, and the commands of operators.
func (b *bench) servedHistory(ctx context.Context, url, empty, full string) error {
	key, err := b.key(ctx, url)
	if err != nil {
		return err
	}
	emptyKey, err := b.key(ctx, empty)
	if err != nil {
		return err
	}
	start := time.Now()
	s, err := b.serve(ctx, "bench-full", url)
	if err != nil {
		return err
	}
	defer s.stop()
	started := time.Since(start)
	start = time.Now()
	beside, err := b.serve(ctx, "bench-empty", empty)
	if err != nil {
		return err
	}
	defer beside.stop()
	b.report.add(figure{Name: full + "start of a server", Value: ms(started), Unit: "ms",
		Detail: fmt.Sprintf("on an empty database %s ms", number(ms(time.Since(start))))})
	conn, err := dial(ctx, s.addr(), "/", key, 64<<10)
	if err != nil {
		return err
	}
	defer conn.close()
	return errors.Join(
		b.readHistory(ctx, url, conn, full),
		b.operateHistory(ctx, s, url, full),
		b.sendInTurns(ctx, full, []*server{s, beside}, []string{key, emptyKey}))
}

// readHistory measures GetTask and lists of one owner.
func (b *bench) readHistory(ctx context.Context, url string, conn *httpConn, full string) error {
	pg, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer pg.Close(context.WithoutCancel(ctx))
	rows, err := pg.Query(ctx, `SELECT t.id::text FROM a2a.tasks t
		WHERE t.list_key = a2a.list_key($1, $2, $3) AND t.owner = $2 ORDER BY random() LIMIT 500`,
		benchTenant, benchOwner, benchAgent)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, turn := range []string{"first", "again"} {
		var took []time.Duration
		for _, id := range ids {
			start := time.Now()
			if _, err := conn.do([]byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"` + id +
				`"}}`)); err != nil {
				return err
			}
			took = append(took, time.Since(start))
		}
		b.addQuantiles(full+"GetTask, "+turn, took, "")
	}
	return b.listHistory(ctx, conn, full)
}

// addQuantiles adds a figure with the median of times, and its p99 as a detail.
func (b *bench) addQuantiles(name string, took []time.Duration, more string) {
	slices.Sort(took)
	b.report.add(figure{Name: name, Value: ms(quantile(took, 0.5)), Unit: "ms",
		Detail: fmt.Sprintf("p99 %s ms, longest %s ms, of %d%s", number(ms(quantile(took, 0.99))),
			number(ms(took[len(took)-1])), len(took), more)})
}

// listHistory walks the whole list of an owner.
func (b *bench) listHistory(ctx context.Context, conn *httpConn, full string) error {
	var took []time.Duration
	var first time.Duration
	var total int
	for token := ""; ; {
		start := time.Now()
		answer, err := conn.do([]byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{"pageSize":100,` +
			`"pageToken":"` + token + `"}}`))
		if err != nil {
			return err
		}
		var page struct {
			Result struct {
				TotalSize     int
				NextPageToken string
			}
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return err
		}
		if token == "" {
			first, total = time.Since(start), page.Result.TotalSize
		} else {
			took = append(took, time.Since(start))
		}
		if token = page.Result.NextPageToken; token == "" || ctx.Err() != nil {
			break
		}
	}
	if len(took) == 0 {
		return fmt.Errorf("void: the list has %d tasks", total)
	}
	b.addQuantiles(full+"a page of 100 of the list of an owner", took, fmt.Sprintf(
		" pages; the first one, which counts %d tasks, %s ms", total, number(ms(first))))
	return context.Cause(ctx)
}

// operateHistory measures commands of operators, and what Prometheus reads.
func (b *bench) operateHistory(ctx context.Context, s *server, url, full string) error {
	for _, args := range []string{
		"task ls", "task ls --state failed", "task ls --agent agent-3 --state failed", "task ls --owner owner-7",
		"task ls --since 1h", "task ls --until 4000h", "stats", "doctor", "queue ls", "agent ls", "actions",
	} {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		cmd := exec.CommandContext(ctx, b.a2ad, strings.Fields(args)...)
		cmd.Env = b.environ(url)
		start := time.Now()
		out, err := cmd.CombinedOutput()
		cancel()
		detail := fmt.Sprintf("%d lines", strings.Count(string(out), "\n"))
		if err != nil {
			detail += fmt.Sprintf("; %v: %.300s", err, lastLine(out))
		}
		b.report.add(figure{Name: full + "a2ad " + args, Value: ms(time.Since(start)), Unit: "ms", Detail: detail})
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.admin+"/metrics", http.NoBody)
	if err != nil {
		return err
	}
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	size, err := io.Copy(io.Discard, resp.Body)
	b.report.add(figure{Name: full + "metrics", Value: ms(time.Since(start)), Unit: "ms",
		Detail: fmt.Sprintf("%s, %d B", resp.Status, size)})
	return err
}

// sendInTurns compares sends to a server whose database is full with sends to one whose database is empty.
func (b *bench) sendInTurns(ctx context.Context, full string, servers []*server, keys []string) error {
	span, rounds := b.span(8*time.Second, 3*time.Second), b.number(6, 4)
	rates, cpus := [2][]float64{}, [2][]float64{}
	prefix := fmt.Sprint("h", time.Now().UnixNano(), "-")
	for round := range rounds {
		for i, s := range servers {
			load := &echoLoad{addr: s.addr(), key: keys[i], prefix: fmt.Sprint(prefix, round, "-")}
			before, err := b.usage(servers...)
			if err != nil {
				return err
			}
			running, stop := context.WithTimeoutCause(ctx, span, errEnough)
			start := time.Now()
			err = load.closed(running, senders)
			stop()
			if err != nil {
				return err
			}
			after, err := b.usage(servers...)
			if err != nil {
				return err
			}
			if round == 0 {
				continue // warms up
			}
			u, done := after.minus(before), float64(load.done.Load())
			rates[i] = append(rates[i], done/time.Since(start).Seconds())
			cpus[i] = append(cpus[i], ms(u.server+u.postgres)/done)
		}
	}
	for _, f := range []struct {
		name   string
		values [2][]float64
	}{{"CPU", cpus}, {"rate", rates}} {
		var ratios []float64
		for i := range f.values[0] {
			ratios = append(ratios, f.values[0][i]/f.values[1][i])
		}
		name := fmt.Sprintf("%sblocking send, %d at once: %s / empty database", full, senders, f.name)
		b.report.add(figure{Name: name, Unit: "×",
			Detail: fmt.Sprintf("%s and %s", number(median(f.values[0])), number(median(f.values[1]))),
		}.series(ratios))
	}
	return nil
}

// claimsWithHistory compares claims. Other claims of the two queues would disturb it.
func (b *bench) claimsWithHistory(ctx context.Context, url, empty, full string) error {
	const slots, claims, waiting, rounds = 16, 30, 1_000, 6
	var stores [2]*store.Store
	var claimers [2]*tasks.Claimer
	for i, u := range []string{url, empty} {
		s, err := b.store(ctx, u)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := fill(ctx, s, waiting); err != nil {
			return err
		}
		stores[i], claimers[i] = s, s.Tasks.NewClaimer()
	}
	var ratios, times []float64
	for round := range rounds {
		took, err := claimInTurns(ctx, stores, claimers, claims, slots)
		if err != nil {
			return err
		}
		if round > 0 {
			ratios, times = append(ratios, median(took[0])/median(took[1])), append(times, median(took[0]))
		}
	}
	b.report.add(figure{Name: full + "claim / empty database", Unit: "×",
		Detail: fmt.Sprintf("%s ms for a claim of %d; %d rounds of %d claims each, in turns", number(median(times)),
			slots, len(ratios), claims)}.series(ratios))
	return nil
}

// retireHistory measures how fast retention reads tasks that stay, and how fast it deletes the oldest.
func (b *bench) retireHistory(ctx context.Context, url, full string) error {
	s, err := b.store(ctx, url)
	if err != nil {
		return err
	}
	defer s.Close()
	read, start := 0, time.Now()
	keep := func(tasks.Ended) tasks.Fate { read++; return tasks.Keep }
	for after := (a2a.ID{}); time.Since(start) < 15*time.Second; {
		got, err := s.Tasks.Retire(ctx, after, time.Second, maintenance.RetireBatch, keep)
		if err != nil {
			return err
		}
		if after = got.Next; after.IsZero() {
			break
		}
	}
	b.report.add(figure{Name: full + "retention: tasks read that stay", Unit: "/s",
		Value: float64(read) / time.Since(start).Seconds(), Detail: fmt.Sprintf("%d tasks", read)})
	start = time.Now()
	cpu, wal, n, err := b.retireCost(ctx, url, b.number(100_000, 20_000))
	if err != nil {
		return err
	}
	b.report.add(figure{Name: full + "retention: the oldest deleted, without a pause", Unit: "/s",
		Value:  float64(n) / time.Since(start).Seconds(),
		Detail: fmt.Sprintf("%s µs of PostgreSQL's CPU and %s B of WAL each; %d tasks", number(cpu), number(wal), n)})
	return nil
}
