package workerapi

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Failures that the server finds, and not the worker.
var (
	deadlineExceeded = attempt.Failure{Text: "deadline exceeded", Final: true}
	idleTooLong      = attempt.Failure{Text: "agent reported nothing for too long"}
)

// remoteLease reads from the path which run a request is about. An id that cannot be one gets the
// same error as a run that the caller does not hold.
func (a *API) remoteLease(r *request, batch string) (tasks.RemoteLease, error) {
	task, err := a2a.ParseID(r.PathValue("task"))
	epoch, bad := strconv.ParseInt(r.PathValue("epoch"), 10, 64)
	if err != nil || bad != nil || epoch < 1 {
		return tasks.RemoteLease{}, db.ErrLeaseLost
	}
	return tasks.RemoteLease{Task: task, Epoch: epoch, Batch: batch}, nil
}

// withLease renews the lease and calls do. It tries again if another request for the same run came
// first. It returns ErrLeaseLost if the lease is not held. It ends a run whose deadline has passed,
// or that has reported nothing for too long; reports says that this request is a report. It remembers the run if do
// returns that it continues.
func (a *API) withLease(ctx context.Context, g tasks.RemoteLease, reports bool,
	do func(h *tasks.RemoteRun) (continues bool, err error)) error {
	const tries = 16
	for range tries {
		asked := time.Now()
		h, err := a.store.RenewRemote(ctx, g)
		if err != nil {
			return err
		}
		a.presence.note(h.Agent)
		limits := a.limitsOf(h.Agent)
		if f := timedOut(h, limits, reports); f != nil && h.Repeat == nil {
			a.fail(ctx, &h.Lease, *f)
			return db.ErrLeaseLost
		}
		continues, err := do(h)
		if err == nil && continues {
			a.held.put(h, asked)
		}
		if !errors.Is(err, db.ErrLeaseLost) {
			return err
		}
	}
	return a2a.Errorf(a2a.CodeUnavailable, "other requests for this run came first: send them one after the other")
}

// timedOut returns the failure of a run that took too long, else nil.
func timedOut(h *tasks.RemoteRun, limits a2a.Limits, reports bool) *attempt.Failure {
	switch {
	case h.Overdue:
		return &deadlineExceeded
	case !reports && limits.IdleTimeout > 0 && h.Silent > limits.IdleTimeout:
		return &idleTooLong
	}
	return nil
}

// answer is the state of a run, for its worker.
type answer struct {
	lastSeq  int64 // with events
	until    time.Time
	canceled bool
}

func (n answer) encode(events bool) []byte {
	b := []byte{'{'}
	if events {
		b = append(strconv.AppendInt(append(b, `"lastSeq":`...), n.lastSeq, 10), ',')
	}
	b = appendTime(append(b, `"leaseExpiresAt":`...), n.until)
	return append(strconv.AppendBool(append(b, `,"cancelRequested":`...), n.canceled), '}')
}

// serveEvents writes what a run reports: all of a request, or nothing.
func (a *API) serveEvents(ctx context.Context, r *request) ([]byte, error) {
	req, err := decodeEvents(r.body)
	if err != nil {
		return nil, err
	}
	g, err := a.remoteLease(r, req.batchID)
	if err != nil {
		return nil, err
	}
	n, done, err := a.reportHeld(ctx, r, g, &req)
	if err != nil {
		return nil, err
	}
	if done {
		return n.encode(true), nil
	}
	g.Agents = a.allowed(&r.principal)
	err = a.withLease(ctx, g, true, func(h *tasks.RemoteRun) (continues bool, err error) {
		n, continues, err = a.report(ctx, r.mem, h, &req)
		return continues, err
	})
	if errors.Is(err, db.ErrLeaseLost) {
		n, err = a.endedRun(ctx, g)
	}
	if err != nil {
		return nil, err
	}
	return n.encode(true), nil
}

// report writes one batch under a lease that was just renewed.
func (a *API) report(
	ctx context.Context, mem *budget.Lease, h *tasks.RemoteRun, req *eventsRequest,
) (n answer, continues bool, err error) {
	if h.Repeat != nil {
		return answer{lastSeq: h.Repeat.LastSeq, until: h.Repeat.Until}, false, nil
	}
	b, err := a.newBatch(ctx, mem, h, req)
	if err != nil {
		return answer{}, false, a.refused(ctx, h, err)
	}
	if isEmpty(&b) {
		return answer{lastSeq: h.LastSeq, until: h.Until}, true, nil
	}
	n, continues, err = a.append(ctx, h, b)
	if err != nil && a2a.CodeOf(err) == a2a.CodeInvalidAgentResponse {
		a.cfg.Logger.WarnContext(ctx, "the database refused an event",
			"task_id", h.TaskID, "agent", h.Agent, "epoch", h.Epoch, "err", err)
		err = a.refused(ctx, h, invalid("events", errors.New("PostgreSQL cannot store one of them")))
	}
	return n, continues, err
}

func isEmpty(b *tasks.Batch) bool {
	return len(b.Events) == 0 && len(b.Steps) == 0 && len(b.Usage) == 0 && b.Checkpoint == nil && b.ID == ""
}

// append writes a batch. It returns whether the run continues after that.
func (a *API) append(ctx context.Context, h *tasks.RemoteRun, b tasks.Batch) (n answer, continues bool, err error) {
	out, err := a.store.Append(ctx, &h.Lease, b)
	if err != nil {
		return answer{}, false, err
	}
	n = answer{lastSeq: h.LastSeq, until: h.Until}
	outcome := "finished"
	switch {
	case b.Wait != nil:
		outcome = "waiting"
	case !out.State.EndsTurn() && !out.Requeued:
		return n, true, nil
	}
	a.artifacts.drop(h.TaskID)
	a.logEnd(ctx, &h.Lease, outcome, nil)
	return n, false, nil
}

// refused returns the error of an invalid report. Nothing of the report is written and the run
// continues: the worker corrects the report, or finishes with the outcome fail. An invalid report
// does not count as activity, so a run that sends nothing else still ends at its idle_timeout.
func (a *API) refused(ctx context.Context, h *tasks.RemoteRun, err error) error {
	if f := timedOut(h, a.limitsOf(h.Agent), false); f != nil && a2a.CodeOf(err) == a2a.CodeInvalidAgentResponse {
		a.fail(ctx, &h.Lease, *f)
		return db.ErrLeaseLost
	}
	return err
}

// endedRun answers a request for a run whose lease is not held. It reports a cancel, or what the
// batch wrote before the run ended. Otherwise it returns ErrLeaseLost.
func (a *API) endedRun(ctx context.Context, g tasks.RemoteLease) (answer, error) {
	o, err := a.store.EndOfRun(ctx, g)
	switch {
	case err != nil:
		return answer{}, err
	case o.Repeat != nil && o.Outcome != "expired":
		return answer{lastSeq: o.Repeat.LastSeq, until: o.Repeat.Until}, nil
	case o.Outcome == "canceled":
		return answer{lastSeq: o.LastSeq, until: o.At, canceled: true}, nil
	}
	return answer{}, db.ErrLeaseLost
}

func (a *API) serveHeartbeat(ctx context.Context, r *request) ([]byte, error) {
	if err := decodeHeartbeat(r.body); err != nil {
		return nil, err
	}
	g, err := a.remoteLease(r, "")
	if err != nil {
		return nil, err
	}
	g.Agents = a.allowed(&r.principal)
	var n answer
	err = a.withLease(ctx, g, false, func(h *tasks.RemoteRun) (bool, error) {
		n = answer{until: h.Until}
		return true, nil
	})
	if errors.Is(err, db.ErrLeaseLost) {
		n, err = a.endedRun(ctx, g)
	}
	if err != nil {
		return nil, err
	}
	return n.encode(false), nil
}

// serveFinish ends a run. A run that its worker finished before, or its client canceled, stays as
// it is, and the answer is the same.
func (a *API) serveFinish(ctx context.Context, r *request) ([]byte, error) {
	req, err := decodeFinish(r.body)
	if err != nil {
		return nil, err
	}
	g, err := a.remoteLease(r, "")
	if err != nil {
		return nil, err
	}
	g.Agents = a.allowed(&r.principal)
	err = a.withLease(ctx, g, true, func(h *tasks.RemoteRun) (bool, error) {
		return false, a.finish(ctx, &h.Lease, &req)
	})
	if errors.Is(err, db.ErrLeaseLost) {
		var o *tasks.RunEnd
		if o, err = a.store.EndOfRun(ctx, g); err == nil && o.Outcome == "expired" {
			err = db.ErrLeaseLost
		}
	}
	if err != nil {
		return nil, err
	}
	return []byte("{}"), nil
}

func (a *API) finish(ctx context.Context, l *tasks.Lease, req *finishRequest) error {
	switch req.outcome {
	case outcomeDone:
		completed := &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}
		_, err := a.store.Append(ctx, l, tasks.Batch{Events: []a2a.Event{completed}})
		if err == nil {
			a.logEnd(ctx, l, "finished", nil)
		}
		return err
	case outcomeRelease:
		err := a.store.Release(ctx, []*tasks.Lease{l}, "the worker released the task")
		if err == nil {
			a.logEnd(ctx, l, "released", nil)
		}
		return err
	}
	f := attempt.Failure{Text: req.text, Final: req.outcome == outcomeFail, Delay: req.retryAfter}
	if f.Text == "" {
		f.Text = "the worker gave no reason"
	}
	return a.recordFailure(ctx, l, f)
}

// fail records a failure that the worker learns of in another way.
func (a *API) fail(ctx context.Context, l *tasks.Lease, f attempt.Failure) {
	if err := a.recordFailure(context.WithoutCancel(ctx), l, f); err != nil && !errors.Is(err, db.ErrLeaseLost) {
		a.cfg.Logger.WarnContext(ctx, "record a failed run", // the lease will expire
			"task_id", l.TaskID, "agent", l.Agent, "epoch", l.Epoch, "err", err)
	}
}

// recordFailure ends an attempt that failed. If the task gets another attempt, its queue is woken
// when the task is due again.
func (a *API) recordFailure(ctx context.Context, l *tasks.Lease, f attempt.Failure) error {
	a.artifacts.drop(l.TaskID)
	ended, err := attempt.Fail(ctx, a.store, l, a.limitsOf(l.Agent), f)
	if err != nil {
		return err
	}
	if ended.Failed {
		a.logEnd(ctx, l, "failed", errors.New(f.Text))
		return nil
	}
	if ended.Parked {
		a.logEnd(ctx, l, "parked", errors.New(f.Text))
		return nil
	}
	a.logEnd(ctx, l, "retry", errors.New(f.Text))
	a.wakeups.after(ended.Again, wake.Ready(l.Agent)) // the poll would find the task too, but later
	return nil
}

// logEnd counts the end of a run, and writes the one log line of the run.
func (a *API) logEnd(ctx context.Context, l *tasks.Lease, outcome string, err error) {
	a.tally.Add(l.Agent, outcome)
	attrs := []any{
		"task_id", l.TaskID, "agent", l.Agent, "epoch", l.Epoch, "worker", l.Worker,
		"outcome", outcome, "attempt", l.Attempt, "seq", l.LastSeq,
		"principal", slog.GroupValue(slog.String("tenant", l.Tenant), slog.String("owner", l.Owner)),
	}
	if id := l.Traceparent.TraceID(); id != "" {
		attrs = append(attrs, "trace_id", id)
	}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	a.cfg.Logger.InfoContext(ctx, "run", attrs...)
}
