package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

// recordedSteps is the number of steps of a task, the most that it may have.
const recordedSteps = 10_000

// recorded measures how long it takes until the next attempt of a task has its 10,000 recorded steps, for each way to
// run an agent outside of the server.
func (b *bench) recorded(ctx context.Context) error {
	if err := b.build(ctx); err != nil {
		return err
	}
	for _, way := range []struct {
		name    string
		measure func(ctx context.Context, tasks int) ([]float64, error)
	}{{"http", b.recordedToHTTP}, {"exec", b.recordedToExec}, {"pull", b.recordedToWorker}} {
		took, err := way.measure(ctx, b.number(9, 3))
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		f := figure{Name: "10,000 recorded steps to a new attempt: " + way.name, Unit: "s",
			Target: atMost(0.5)}.series(took)
		f.Detail = fmt.Sprintf("from the claim until the agent has read all; results of %d B; %d tasks, one at a time",
			reportBytes, len(took))
		b.report.add(f)
	}
	return nil
}

// receipt says when an agent had read its run.
type receipt struct {
	at  time.Time
	run []byte
}

// task returns the task of the run, if the agent got all steps.
func (r *receipt) task() (uuid.UUID, error) {
	var run struct {
		TaskID uuid.UUID
		Steps  []struct{ Key string }
	}
	err := json.Unmarshal(r.run, &run)
	if err == nil && len(run.Steps) != recordedSteps {
		err = fmt.Errorf("void: the agent got %d steps", len(run.Steps))
	}
	return run.TaskID, err
}

const completedEvent = `{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}` + "\n"

// recordedToHTTP measures an agent that is a web server of this process.
func (b *bench) recordedToHTTP(ctx context.Context, n int) ([]float64, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var got []receipt
	srv := &http.Server{ReadHeaderTimeout: ioLimit, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			run, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			mu.Lock()
			got = append(got, receipt{time.Now(), run})
			mu.Unlock()
			w.Header().Set("Content-Type", "application/x-ndjson")
			_, _ = io.WriteString(w, completedEvent) // the server notices
		})}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	defer func() {
		srv.Close()
		<-served //nolint:errcheck // it was closed
	}()
	return b.recordedTo(ctx, n, fmt.Sprintf("http: {url: http://%s/}", l.Addr()), func() ([]receipt, error) {
		mu.Lock()
		defer mu.Unlock()
		return got, nil
	})
}

// recordedToExec measures an agent that is a command: it keeps what it has read, and notes when.
func (b *bench) recordedToExec(ctx context.Context, n int) ([]float64, error) {
	dir, err := os.MkdirTemp(b.dir, "runs-")
	if err != nil {
		return nil, err
	}
	command := filepath.Join(dir, "agent.sh")
	script := fmt.Sprintf("#!/bin/sh\ncat >%[1]s/$$.run\ndate +%%s%%N >%[1]s/$$.at\nprintf '%%s' '%[2]s'\n", dir,
		completedEvent)
	if err := os.WriteFile(command, []byte(script), 0o755); err != nil {
		return nil, err
	}
	return b.recordedTo(ctx, n, fmt.Sprintf("exec: {command: [%s]}", command), func() (got []receipt, err error) {
		files, err := filepath.Glob(filepath.Join(dir, "*.run"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			run, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			text, err := os.ReadFile(strings.TrimSuffix(file, ".run") + ".at")
			if err != nil {
				return nil, err
			}
			at, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err != nil {
				return nil, err
			}
			got = append(got, receipt{time.Unix(0, at), run})
		}
		return got, nil
	})
}

// recordedTo runs n tasks with recorded steps by an agent, one after the other. It returns the times from their claims
// until the agent had read their runs.
func (b *bench) recordedTo(ctx context.Context, n int, executor string, receipts func() ([]receipt, error)) (
	took []float64, err error,
) {
	_, url, stop, err := b.recordedServer(ctx, n, executor)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := b.ebb(ctx, url); err != nil {
		return nil, err
	}
	got, err := receipts()
	if err != nil {
		return nil, err
	}
	if len(got) != n {
		return nil, fmt.Errorf("void: %d runs of %d tasks", len(got), n)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, r := range got {
		task, err := r.task()
		if err != nil {
			return nil, err
		}
		var claimed time.Time
		if err := conn.QueryRow(ctx, `SELECT a.claimed_at FROM a2a.task_attempts a WHERE a.task_id = $1
			ORDER BY a.epoch DESC LIMIT 1`, task).Scan(&claimed); err != nil {
			return nil, err
		}
		took = append(took, r.at.Sub(claimed).Seconds())
	}
	return took, b.checkFinished(ctx, url)
}

// recordedServer starts a server with one agent and n queued tasks of it, each with recorded steps.
func (b *bench) recordedServer(ctx context.Context, n int, executor string) (
	srv *server, url string, stop func(), err error,
) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	defer func() {
		if err != nil {
			drop()
		}
	}()
	if err := b.recordSteps(ctx, url, n); err != nil {
		return nil, "", nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "recorded-")
	if err != nil {
		return nil, "", nil, err
	}
	text := fmt.Sprintf("name: %s\ndescription: Gets recorded steps.\nexecutor: {%s}\nlimits: {concurrency: 1}\n",
		pullAgent, executor)
	if err := os.WriteFile(filepath.Join(dir, "agent.yaml"), []byte(text), 0o644); err != nil {
		return nil, "", nil, err
	}
	if srv, err = b.serve(ctx, "bench-recorded", url, "A2AD_AGENTS="+dir); err != nil {
		return nil, "", nil, err
	}
	return srv, url, func() { srv.stop(); drop() }, nil
}

// recordSteps submits n tasks, records their steps, and puts them back into the queue.
func (b *bench) recordSteps(ctx context.Context, url string, n int) error {
	s, err := b.store(ctx, url)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := fillFor(ctx, s, pullAgent, n); err != nil {
		return err
	}
	leases, err := s.Tasks.NewClaimer().Claim(ctx, pullAgent, n, time.Hour, 0)
	if err != nil {
		return err
	}
	held := make([]*tasks.Lease, len(leases))
	for i := range leases {
		held[i] = &leases[i]
		for held[i].Steps < recordedSteps {
			var batch tasks.Batch
			for k := range 50 {
				batch.Steps = append(batch.Steps, workStep(held[i].Steps+1+k))
			}
			if _, err := s.Tasks.Append(ctx, held[i], batch); err != nil {
				return err
			}
		}
	}
	return s.Tasks.Release(ctx, held, "its steps are recorded")
}

// recordedToWorker measures a remote worker, which asks for one page of steps after the other.
func (b *bench) recordedToWorker(ctx context.Context, n int) (took []float64, err error) {
	srv, url, stop, err := b.recordedServer(ctx, n, "pull: {}")
	if err != nil {
		return nil, err
	}
	defer stop()
	key, err := b.workerKey(ctx, url)
	if err != nil {
		return nil, err
	}
	p := &puller{url: srv.url, key: key, client: &http.Client{}}
	defer p.client.CloseIdleConnections()
	for range n {
		start := time.Now()
		run, err := p.claimRecorded(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(start).Seconds())
		if len(run.Steps) != recordedSteps {
			return nil, fmt.Errorf("void: the worker got %d steps", len(run.Steps))
		}
		if err := p.post(ctx, fmt.Sprintf("runs/%s/%d/events", run.TaskID, run.Epoch), pullEnd, nil); err != nil {
			return nil, err
		}
	}
	return took, b.checkFinished(ctx, url)
}

// recordedRun is a run with its steps.
type recordedRun struct {
	TaskID    string
	Epoch     int64
	StepCount int
	Steps     []struct {
		Key    string
		Result json.RawMessage
	}
}

// claimRecorded claims one run and reads all its steps.
func (p *puller) claimRecorded(ctx context.Context) (recordedRun, error) {
	var got struct{ Runs []recordedRun }
	err := p.post(ctx, "claim", fmt.Sprintf(`{"worker":"w","agents":[%q],"max":1,"waitSeconds":30}`, pullAgent), &got)
	if err != nil {
		return recordedRun{}, err
	}
	if len(got.Runs) != 1 {
		return recordedRun{}, fmt.Errorf("void: claimed %d runs", len(got.Runs))
	}
	run := got.Runs[0]
	for len(run.Steps) < run.StepCount {
		var page recordedRun
		path := fmt.Sprintf("runs/%s/%d/steps?after=%d", run.TaskID, run.Epoch, len(run.Steps))
		if err := p.request(ctx, http.MethodGet, path, "", &page); err != nil {
			return run, err
		}
		if len(page.Steps) == 0 {
			return run, fmt.Errorf("void: no steps after %d of %d", len(run.Steps), run.StepCount)
		}
		run.Steps = append(run.Steps, page.Steps...)
	}
	return run, nil
}
