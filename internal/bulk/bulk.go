// Package bulk runs bulk jobs: it claims a job, collects its tasks, and acts on one task after another.
//
// Every replica runs it, and a command that has only a database runs it for its own job. It promises that a job
// continues on another server after its server was lost, and that jobs leave most of the database's time to the rest of
// the load. What a step does is decided by the store: this package knows only the order and the pace.
package bulk

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Hub wakes this process when something has changed.
type Hub interface {
	Wait(key string) (wake <-chan struct{}, stop func())
}

// Config configures a Runner. Durations that are zero take their defaults.
type Config struct {
	Store       *jobs.Store
	Hub         Hub
	Worker      string            // names the holder of leases
	Own         bool              // run only the jobs that were started for this worker
	MoveSecrets tasks.MoveSecrets // encrypts the secrets of webhooks for retries; nil: no webhook is copied
	Poll        time.Duration     // how often to look for a job without a wake-up; default 15 s
	Turn        time.Duration     // how long a job runs before another one has its turn; default 10 s
	Logger      *slog.Logger
}

// Runner runs one job at a time. Use New. Its Run method is one goroutine.
type Runner struct{ cfg Config }

// batch is after how many tasks a job rests.
const batch = 100

// mostTries is how often an action is tried that fails for a reason that the store does not explain.
const mostTries = 3

// New returns a Runner. It starts nothing.
func New(cfg Config) *Runner {
	if cfg.Poll == 0 {
		cfg.Poll = 15 * time.Second
	}
	if cfg.Turn == 0 {
		cfg.Turn = 10 * time.Second
	}
	return &Runner{cfg: cfg}
}

// failures is how long a runner waits after the database did not answer.
var failures = backoff.Policy{Base: 250 * time.Millisecond, Max: 10 * time.Second}

// Run runs jobs until ctx is done. It then gives the lease of its job back.
func (r *Runner) Run(ctx context.Context) error {
	woken, stop := r.cfg.Hub.Wait(wake.Jobs)
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-woken:
		case <-timer.C:
		}
		worked, err := r.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			r.cfg.Logger.WarnContext(ctx, "run a bulk job", "err", err)
			rest(ctx, failures.Delay(failed, nil)) // whatever wakes it
			failed++
			timer.Reset(0)
		case worked:
			failed = 0
			timer.Reset(0)
		default:
			failed = 0
			timer.Reset(backoff.Jitter(r.cfg.Poll, nil))
		}
	}
}

// turn runs the job whose turn it is for a while. It reports whether there was one.
func (r *Runner) turn(ctx context.Context) (worked bool, err error) {
	j, found, err := r.cfg.Store.Claim(ctx, r.cfg.Worker, r.cfg.Own)
	if err != nil || !found {
		return false, err
	}
	err = r.work(ctx, j)
	if errors.Is(err, jobs.ErrLost) {
		err = nil // it was stopped, or the step is claimed again
	}
	if r.cfg.Own && ctx.Err() == nil {
		return true, err // the job stays with this worker
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if released := r.cfg.Store.Release(end, j); err == nil {
		err = released // otherwise the lease ends by itself
	}
	return true, err
}

const releaseTime = 5 * time.Second

// work runs a job until its turn is over. It returns nil if the job may be claimed again.
func (r *Runner) work(ctx context.Context, j *jobs.Job) error {
	until := time.Now().Add(r.cfg.Turn)
	for time.Now().Before(until) {
		began := time.Now()
		switch {
		case !j.Collected:
			if err := r.collect(ctx, j); err != nil {
				return err
			}
		case j.Remaining == 0:
			return r.end(ctx, j, "")
		default:
			if err := r.actOnBatch(ctx, j); err != nil {
				return err
			}
		}
		// A job takes at most half of the time of one connection. If the database is slow, it rests longer.
		if !rest(ctx, min(time.Since(began), longestRest)) {
			return nil
		}
	}
	return nil
}

// rest waits, and reports false if ctx has ended before.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// longestRest is shorter than the lease of a job.
const longestRest = 5 * time.Second

func (r *Runner) collect(ctx context.Context, j *jobs.Job) error {
	err := r.cfg.Store.Collect(ctx, j)
	var refused *a2a.Error
	switch {
	case errors.Is(err, operate.ErrSearchTooLong):
		return r.end(ctx, j, operate.ErrSearchTooLong.Message)
	case errors.Is(err, operate.ErrNoPrefix):
		return r.end(ctx, j, err.Error())
	case a2a.CodeOf(err) == a2a.CodeInvalidParams && errors.As(err, &refused): // it fails again each time
		return r.end(ctx, j, refused.Message)
	}
	return err
}

func (r *Runner) end(ctx context.Context, j *jobs.Job, failure string) error {
	if err := r.cfg.Store.End(ctx, j, failure); err != nil {
		return err
	}
	r.cfg.Logger.InfoContext(ctx, "bulk job ended", "job", j.ID.String(), "action", string(j.Action),
		"matched", j.Matched, "reason", failure)
	return jobs.ErrLost // there is no lease any more
}

// actOnBatch acts on the next tasks.
func (r *Runner) actOnBatch(ctx context.Context, j *jobs.Job) error {
	for range batch {
		if j.Remaining == 0 || ctx.Err() != nil {
			return nil
		}
		if err := r.act(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// act acts on the next task. An error that says nothing about the task ends the turn. A task whose action fails for a
// reason of its own is recorded as failed, so that the job goes on with the others.
func (r *Runner) act(ctx context.Context, j *jobs.Job) error {
	for try := 1; ; try++ {
		err := r.cfg.Store.Act(ctx, j, r.cfg.MoveSecrets)
		if err == nil || errors.Is(err, jobs.ErrLost) || ctx.Err() != nil ||
			a2a.CodeOf(err) == a2a.CodeUnavailable {
			return err
		}
		why, known := explain(err)
		if !known && try < mostTries {
			continue
		}
		if !known {
			r.cfg.Logger.ErrorContext(ctx, "a bulk job cannot act on a task", "job", j.ID.String(),
				"remaining", j.Remaining, "err", err)
		}
		return r.cfg.Store.Fail(ctx, j, why)
	}
}

// explain returns why an action has failed, for operators. known is false if another try may succeed.
func explain(err error) (why string, known bool) {
	var refused *a2a.Error
	switch {
	case errors.Is(err, seal.ErrUnknownKey):
		return "a secret of its webhooks is encrypted with a key that the worker of the job lacks: " +
			"check A2AD_KEYS, or retry without webhooks", true
	case errors.As(err, &refused) && refused.Code != a2a.CodeInternal:
		return refused.Message, true
	}
	return "internal error: see the log of the worker of the job", false
}
