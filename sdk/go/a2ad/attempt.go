package a2ad

import (
	"context"
	"sync"
	"time"
)

// releaseTimeout is how long the request may take that releases a run. After that, the lease must expire.
const releaseTimeout = 10 * time.Second

// attempt calls the agent's function, and tells the server how it ended if no event did. When the context ends, the run
// is released.
func (w *Worker) attempt(ctx context.Context, a *registered, run *runInput) runEnd {
	if err := w.client.steps(ctx, run); err != nil {
		if ctx.Err() != nil {
			w.release(ctx, run)
			return runEnd{outcome: released, reason: err.Error()}
		}
		return runEnd{outcome: lost, reason: err.Error()}
	}
	s, inner := open(context.WithoutCancel(ctx), run, settings{
		report: w.client.report, clock: realClock{}, began: w.began, trace: w.o.Trace, logger: w.o.Logger,
		handler: a.handler,
	})
	defer s.close()
	beats, stop := context.WithCancel(context.WithoutCancel(ctx))
	var beating sync.WaitGroup
	defer beating.Wait()
	defer stop()
	beating.Go(func() { w.heartbeat(beats, s) })
	ended := make(chan runEnd, 1)
	go func() { ended <- s.execute(inner, a.fn) }() // it ends soon after the run: see called
	select {
	case end := <-ended:
		if end.outcome != retry {
			return end
		}
		stop() // so that repeated requests end with the lease
		if w.finish(ctx, run, end) {
			return end
		}
		w.release(ctx, run)
		return runEnd{outcome: released}
	case <-ctx.Done():
	}
	return w.abandon(ctx, s, ended)
}

// abandon releases a run whose time is over, unless its end is known.
func (w *Worker) abandon(ctx context.Context, s *session, running <-chan runEnd) runEnd {
	end := runEnd{outcome: released}
	stop := stopOf(s.check())
	if stop != nil && stop.outcome != ended {
		end = runEnd{outcome: stop.outcome, reason: stop.Error()}
	}
	s.stop(&stopped{outcome: released, text: "the worker stops"})
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	s.sent(brief) // it may be the record of work that is done
	cancel()
	s.close()
	if end.outcome == released {
		w.release(ctx, s.run)
	}
	if last := <-running; last.outcome != retry && last.outcome != lost {
		end = last
	}
	return end
}

// heartbeat renews the lease while the agent works. It stops the agent if the lease or the task ends.
func (w *Worker) heartbeat(ctx context.Context, s *session) {
	for sleep(ctx, s.run.lease.length/3) == nil {
		wasCanceled, err := w.client.heartbeat(ctx, s.run)
		switch {
		case ctx.Err() != nil:
			return
		case wasCanceled:
			s.stop(errTaskCanceled())
			return
		case err != nil:
			s.stop(err)
			return
		}
	}
}

// finish tells the server that the attempt failed. It returns false if the context ends first.
func (w *Worker) finish(ctx context.Context, run *runInput, end runEnd) bool {
	var after time.Duration
	if end.how != nil {
		after = end.how.after
	}
	err := w.client.finish(ctx, run, string(end.outcome), end.reason, after)
	if ctx.Err() != nil && err != nil {
		return false
	}
	w.logFinish(run, err)
	return true
}

// release returns the run to the queue.
func (w *Worker) release(ctx context.Context, run *runInput) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	w.logFinish(run, w.client.finish(ctx, run, "release", "", 0))
}

func (w *Worker) logFinish(run *runInput, err error) {
	if err != nil && stopOf(err) == nil {
		w.o.Logger.Warn("finish failed", "task_id", run.TaskID, "agent", run.Agent, "epoch", run.Epoch, "err", err)
	}
}
