package a2ad

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http/httptrace"
	"sync"
	"time"
)

const (
	// waitsAfter is the time after which a claim without an answer waits for a task.
	waitsAfter = time.Second
	// maxClaimPause is the longest pause between two claims while they fail.
	maxClaimPause = 10 * time.Second
)

// registered is an agent of the worker, with its slots, and how its last claim went.
type registered struct {
	name    string
	fn      AgentFunc
	handler bool
	slots   chan struct{} // one value for each run, and for each that is being claimed

	mu        sync.Mutex
	running   int       // guarded by mu
	reachable bool      // guarded by mu: the server answered the last claim, or lets it wait
	problem   string    // guarded by mu: why the last claim failed, and what to check
	claimedAt time.Time // guarded by mu: when the server last answered a claim
}

func (a *registered) runs(more int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running += more
}

// ready notes that the server lets a claim of the agent wait, unless the context of the claim has ended.
func (a *registered) ready(claim context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if claim.Err() == nil {
		a.reachable, a.problem = true, ""
	}
}

func (a *registered) claimed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reachable, a.problem, a.claimedAt = true, "", time.Now()
}

func (a *registered) failed(problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reachable, a.problem = false, problem
}

// claim claims runs of one agent for its free slots until the context ends. The runs continue in another context.
func (w *Worker) claim(ctx, runs context.Context, a *registered, running *sync.WaitGroup) {
	for failures := 0; ; {
		free := a.take(ctx)
		if free == 0 {
			return
		}
		began := time.Now()
		claimed, err := w.ask(ctx, a, free)
		for range free - len(claimed) {
			<-a.slots
		}
		for _, run := range claimed {
			running.Go(func() {
				a.runs(1)
				defer func() {
					a.runs(-1)
					<-a.slots
				}()
				w.execute(runs, a, run)
			})
		}
		if err == nil {
			a.claimed()
			if len(claimed) > 0 || time.Since(began) >= waitsAfter {
				failures = 0
				continue
			}
			failures++ // the server does not let claims wait, because it stops
			_ = sleep(ctx, claimPause(failures, nil))
			continue
		}
		if ctx.Err() != nil {
			return
		}
		failures++
		pause, problem := claimPause(failures, err), err.Error()
		var answered *serverError
		if errors.As(err, &answered) {
			problem += answered.advice(a.name)
		}
		a.failed(problem)
		w.o.Logger.Warn("claim failed", "agent", a.name, "err", problem, "retry_in", pause)
		_ = sleep(ctx, pause) // the next round sees the end of the context
	}
}

// ask claims runs once. The agent is ready if the server got the claim and lets it wait.
func (w *Worker) ask(ctx context.Context, a *registered, free int) ([]*runInput, error) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) {
		if i.Err == nil {
			time.AfterFunc(waitsAfter, func() { a.ready(ctx) })
		}
	}})
	return w.client.claim(ctx, w.o.Name, a.name, free)
}

// claimPause returns how long to wait after a number of failures in a row. It differs between workers, so that they do
// not all come back at once.
func claimPause(failures int, err error) time.Duration {
	pause := min(200*time.Millisecond<<min(failures, 10), maxClaimPause)
	pause = pause/2 + rand.N(pause/2)
	var answered *serverError
	if errors.As(err, &answered) {
		pause = max(pause, answered.after)
	}
	return pause
}

// take takes all free slots, once there is one, and returns how many it has. It returns 0 when the context ends.
func (a *registered) take(ctx context.Context) (n int) {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case a.slots <- struct{}{}:
		n = 1
	case <-ctx.Done():
		return 0
	}
	for n < maxClaim {
		select {
		case a.slots <- struct{}{}:
			n++
		default:
			return n
		}
	}
	return n
}

// execute does one run.
func (w *Worker) execute(ctx context.Context, a *registered, run *runInput) {
	started := time.Now()
	end := w.attempt(ctx, a, run)
	w.o.Logger.Info("run ended", "task_id", run.TaskID, "agent", run.Agent, "epoch", run.Epoch, "attempt", run.Attempt,
		"outcome", string(end.outcome), "reason", end.reason, "seconds", time.Since(started).Seconds())
}
