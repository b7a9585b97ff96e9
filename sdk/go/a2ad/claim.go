package a2ad

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	maxPause      = 10 * time.Second // between two claims, while the server cannot be reached
	finishTimeout = 10 * time.Second
)

// claim claims runs of one agent for its free slots until the context ends.
func (w *Worker) claim(ctx, runs context.Context, a *registered, running *sync.WaitGroup) {
	for failures := 0; ; {
		free := a.take(ctx)
		if free == 0 {
			return
		}
		claimed, err := w.client.claim(ctx, w.o.Name, a.name, free)
		for range free - len(claimed) {
			<-a.slots
		}
		for i := range claimed {
			running.Go(func() {
				defer func() { <-a.slots }()
				w.run(runs, a, &claimed[i])
			})
		}
		if ctx.Err() != nil {
			return
		}
		a.answered(err == nil)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		pause := claimPause(failures, err)
		w.o.Logger.Warn("claim failed", "agent", a.name, "err", err, "again_in", pause)
		_ = sleep(ctx, pause) // the next round sees the end of the context
	}
}

// claimPause is how long to wait after a number of failures in a row. It differs between workers, so that they do not
// all come back at once.
func claimPause(failures int, err error) time.Duration {
	pause := min(200*time.Millisecond<<min(failures, 10), maxPause)
	var refused *serverError
	if errors.As(err, &refused) {
		pause = max(pause, refused.after)
	}
	return pause/2 + rand.N(pause/2)
}

// take takes all free slots, once there is one, and returns how many it has. It returns 0 when the context ends.
func (a *registered) take(ctx context.Context) (n int) {
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

// run does one run.
func (w *Worker) run(ctx context.Context, a *registered, run *runInput) {
	started := time.Now()
	end := w.attempt(ctx, a, run)
	if end.outcome == retry {
		w.finish(ctx, run, "retry", end.reason, end.after)
	}
	w.o.Logger.Info("run", "agent", a.name, "task_id", run.TaskID, "attempt", run.Attempt,
		"outcome", string(end.outcome), "reason", end.reason, "took", time.Since(started))
}

// finish tells the server how a run ended that no event has ended.
func (w *Worker) finish(ctx context.Context, run *runInput, outcome, reason string, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	err := w.client.finish(ctx, run, outcome, reason, after)
	if err != nil && !errors.Is(err, ErrStopped) {
		w.o.Logger.Warn("finish failed", "agent", run.Agent, "task_id", run.TaskID, "err", err)
	}
}

func (w *Worker) attempt(ctx context.Context, a *registered, run *runInput) runEnd {
	// The heartbeat ends the session when ctx ends, so that what the agent does then is no failure of its attempt.
	s, inner := open(context.WithoutCancel(ctx), run, settings{
		report: w.client.report, clock: realClock{}, began: w.began, trace: w.o.Trace, handler: a.handler,
	})
	defer s.close()
	beats, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { w.heartbeat(beats, s) })
	if err := w.client.readSteps(inner, run); err != nil {
		s.stop(err)
		return s.stoppedBy(inner, s.ended(), w.o.Logger)
	}
	s.learn()
	return s.execute(inner, a.fn, w.o.Logger)
}

// heartbeat renews the lease while the agent works. It stops the agent when the task is not its own, and when the
// worker stops. Then it releases the task at once: the agent's function may take long to return, but records nothing
// any more.
func (w *Worker) heartbeat(ctx context.Context, s *session) {
	every := time.Duration(s.run.LeaseSeconds * float64(time.Second) / 3)
	for sleep(ctx, every) == nil {
		wasCanceled, err := w.client.heartbeat(ctx, s.run)
		switch {
		case ctx.Err() != nil:
			continue
		case wasCanceled:
			s.cancel()
		case errors.Is(err, ErrStopped):
			s.stop(err)
		case err != nil:
			w.o.Logger.Warn("heartbeat failed", "agent", s.run.Agent, "task_id", s.run.TaskID, "err", err)
			continue
		}
		if s.ended() != nil {
			return
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrStopped) && s.ended() == nil {
		s.stop(cause)
		w.finish(ctx, s.run, "release", "", 0)
	}
}
