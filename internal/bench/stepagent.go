package main

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

const (
	stepSlots     = 32
	stepAgentName = "steps"
)

// stepAgent is a store and a worker in this process. The worker has one agent, which reports steps and completes.
type stepAgent struct {
	store *store.Store
	stop  func()

	claims  sync.Mutex // for claimer
	claimer *tasks.Claimer

	mu   sync.Mutex
	done map[a2a.ID]chan struct{} // guarded by mu; of tasks of the worker; closed when the task is completed
}

func newStepAgent(ctx context.Context, url string) (*stepAgent, error) {
	hub := &notify.Hub{}
	a := &stepAgent{done: make(map[a2a.ID]chan struct{})}
	var err error
	a.store, err = store.Open(ctx, store.Config{
		Config: db.Config{URL: url, Replica: "bench", Wake: hub.Wake}, Committed: a.committed,
	})
	if err != nil {
		return nil, err
	}
	a.claimer = a.store.Tasks.NewClaimer()
	pool := worker.New(a.store.Tasks, hub, worker.Config{
		Worker: "bench", Slots: stepSlots,
		Agents: []worker.Agent{{Agent: &a2a.Agent{Name: stepAgentName}, Executor: a}},
		Limits: a2a.Limits{MaxAttempts: 1, LeaseTTL: leaseTTL}, Poll: 5 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = pool.Run(ctx) }) // it returns nil
	a.stop = func() {
		cancel()
		running.Wait()
		a.store.Close()
	}
	return a, nil
}

// Execute reports the steps and completes the task.
func (a *stepAgent) Execute(_ context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		a.completion(run.Task.ID)
		for n := range dbosSteps {
			step := workStep(n + 1).Step
			if !yield(&step, nil) {
				return
			}
		}
		yield(completion.Events[0], nil)
	}
}

// committed notes which tasks of the worker are completed.
func (a *stepAgent) committed(task a2a.ID, events []a2a.Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range events {
		if s, ok := e.Event.(*a2a.StatusUpdate); ok && s.Status.State.Terminal() && a.done[task] != nil {
			close(a.done[task])
		}
	}
}

// completion returns the channel that is closed when a task of the worker is completed.
func (a *stepAgent) completion(task a2a.ID) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done[task] == nil {
		a.done[task] = make(chan struct{})
	}
	return a.done[task]
}

// reportAll submits a task to the worker and waits until it is completed.
func (a *stepAgent) reportAll(ctx context.Context, n int64) error {
	in := submission(n)
	in.Agent = stepAgentName
	made, err := a.store.Tasks.Submit(ctx, in)
	if err != nil {
		return err
	}
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.done, made.Task)
	}()
	select {
	case <-a.completion(made.Task):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// recordEach submits a task, claims one, records its steps one after the other, and completes it.
func (a *stepAgent) recordEach(ctx context.Context, n int64) error {
	if _, err := a.store.Tasks.Submit(ctx, submission(n)); err != nil {
		return err
	}
	l, err := a.claimOne(ctx)
	if err != nil {
		return err
	}
	for k := range dbosSteps {
		if _, err := a.store.Tasks.Append(ctx, l, tasks.Batch{Steps: []a2a.StepRecord{workStep(k + 1)}}); err != nil {
			return err
		}
	}
	_, err = a.store.Tasks.Append(ctx, l, completion)
	return err
}

func (a *stepAgent) claimOne(ctx context.Context) (*tasks.Lease, error) {
	a.claims.Lock()
	defer a.claims.Unlock()
	leases, err := a.claimer.Claim(ctx, benchAgent, 1, leaseTTL, 0)
	if err != nil {
		return nil, err
	}
	if len(leases) != 1 {
		return nil, fmt.Errorf("void: claimed %d tasks", len(leases))
	}
	return &leases[0], nil
}
