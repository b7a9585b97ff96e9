package workerapi

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/store"
)

// Failures that are nobody's words.
var (
	overdue = attempt.Failure{Text: "deadline exceeded", Final: true}
	silent  = attempt.Failure{Text: "agent reported nothing for too long"}
)

// grip reads which run the path is about. A run whose id cannot be one is one that is not
// held, like any other that this caller does not hold.
func (a *API) grip(r *request, batch string) (store.Grip, error) {
	task, err := a2a.ParseID(r.PathValue("task"))
	epoch, bad := strconv.ParseInt(r.PathValue("epoch"), 10, 64)
	if err != nil || bad != nil || epoch < 1 {
		return store.Grip{}, store.ErrLeaseLost
	}
	return store.Grip{Task: task, Epoch: epoch, Batch: batch, Agents: a.allowed(&r.principal)}, nil
}

// under carries something out under the lease, as often as another request of the same run
// comes first. It returns ErrLeaseLost when the lease is not held. A run whose deadline has
// passed, or that has been silent for too long unless it speaks now, is ended here.
func (a *API) under(ctx context.Context, g store.Grip, speaks bool, do func(h *store.Held) error) error {
	const tries = 16
	for range tries {
		h, err := a.store.Hold(ctx, g)
		if err != nil {
			return err
		}
		limits := a.limitsOf(h.Agent)
		if f := expired(h, limits, speaks); f != nil && h.Repeat == nil {
			a.fail(ctx, &h.Lease, *f)
			return store.ErrLeaseLost
		}
		if err := do(h); !errors.Is(err, store.ErrLeaseLost) {
			return err
		}
	}
	return a2a.Errorf(a2a.CodeUnavailable, "other requests of this run came first: send them one after the other")
}

func expired(h *store.Held, limits a2a.Limits, speaks bool) *attempt.Failure {
	switch {
	case h.Overdue:
		return &overdue
	case !speaks && limits.IdleTimeout > 0 && h.Silent > limits.IdleTimeout:
		return &silent
	}
	return nil
}

// answer is what a worker is told about its run.
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

// serveEvents writes what a run reports. All of a request is written or nothing.
func (a *API) serveEvents(ctx context.Context, r *request) ([]byte, error) {
	req, err := decodeEvents(r.body)
	if err != nil {
		return nil, err
	}
	g, err := a.grip(r, req.batchID)
	if err != nil {
		return nil, err
	}
	var n answer
	err = a.under(ctx, g, true, func(h *store.Held) (err error) {
		n, err = a.report(ctx, h, &req)
		return err
	})
	if errors.Is(err, store.ErrLeaseLost) {
		n, err = a.over(ctx, g)
	}
	if err != nil {
		return nil, err
	}
	return n.encode(true), nil
}

// report writes one batch under a lease that is held.
func (a *API) report(ctx context.Context, h *store.Held, req *eventsRequest) (answer, error) {
	if h.Repeat != nil {
		return answer{lastSeq: h.Repeat.LastSeq, until: h.Repeat.Until}, nil
	}
	b, err := a.gather(ctx, h, req)
	if err != nil {
		return answer{}, a.refused(ctx, h, err)
	}
	n := answer{lastSeq: h.LastSeq, until: h.Until}
	if len(b.Events) == 0 && b.Checkpoint == nil && b.ID == "" {
		return n, nil
	}
	out, err := a.store.Append(ctx, &h.Lease, b)
	if a2a.CodeOf(err) == a2a.CodeInvalidAgentResponse && err != nil {
		a.cfg.Logger.WarnContext(ctx, "event refused by the database", "task_id", h.TaskID, "agent", h.Agent, "epoch", h.Epoch, "err", err)
		return answer{}, a.refused(ctx, h, invalid("events", errors.New("PostgreSQL cannot store one of them")))
	}
	if err != nil {
		return answer{}, err
	}
	n.lastSeq = h.LastSeq
	if out.State.EndsTurn() || out.Requeued {
		a.known.drop(h.TaskID)
		a.ended(ctx, &h.Lease, "finished", nil)
	}
	return n, nil
}

// refused answers a report that is not valid. Nothing of it is written and the run goes on: the
// worker corrects it, or ends the run with the outcome fail. It is no event of the agent, so a
// run that sends nothing else still ends at its idle_timeout.
func (a *API) refused(ctx context.Context, h *store.Held, err error) error {
	if f := expired(h, a.limitsOf(h.Agent), false); f != nil && a2a.CodeOf(err) == a2a.CodeInvalidAgentResponse {
		a.fail(ctx, &h.Lease, *f)
		return store.ErrLeaseLost
	}
	return err
}

// over answers about a run that is not held: that it was canceled, or what was written under
// the id of the batch by a run that ended as its worker wanted.
func (a *API) over(ctx context.Context, g store.Grip) (answer, error) {
	o, err := a.store.Ended(ctx, g)
	switch {
	case err != nil:
		return answer{}, err
	case o.Repeat != nil && o.Outcome != "expired":
		return answer{lastSeq: o.Repeat.LastSeq, until: o.Repeat.Until}, nil
	case o.Outcome == "canceled":
		return answer{lastSeq: o.LastSeq, until: o.At, canceled: true}, nil
	}
	return answer{}, store.ErrLeaseLost
}

func (a *API) serveHeartbeat(ctx context.Context, r *request) ([]byte, error) {
	if err := decodeHeartbeat(r.body); err != nil {
		return nil, err
	}
	g, err := a.grip(r, "")
	if err != nil {
		return nil, err
	}
	var n answer
	err = a.under(ctx, g, false, func(h *store.Held) error {
		n = answer{until: h.Until}
		return nil
	})
	if errors.Is(err, store.ErrLeaseLost) {
		n, err = a.over(ctx, g)
	}
	if err != nil {
		return nil, err
	}
	return n.encode(false), nil
}

// serveFinish ends a run. One that has ended already, as its worker or its client wanted, stays
// as it is.
func (a *API) serveFinish(ctx context.Context, r *request) ([]byte, error) {
	req, err := decodeFinish(r.body)
	if err != nil {
		return nil, err
	}
	g, err := a.grip(r, "")
	if err != nil {
		return nil, err
	}
	err = a.under(ctx, g, true, func(h *store.Held) error { return a.finish(ctx, &h.Lease, &req) })
	if errors.Is(err, store.ErrLeaseLost) {
		var o *store.Over
		if o, err = a.store.Ended(ctx, g); err == nil && o.Outcome == "expired" {
			err = store.ErrLeaseLost
		}
	}
	if err != nil {
		return nil, err
	}
	return []byte("{}"), nil
}

func (a *API) finish(ctx context.Context, l *store.Lease, req *finishRequest) error {
	switch req.outcome {
	case outcomeDone:
		_, err := a.store.Append(ctx, l, store.Batch{Events: []a2a.Event{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}}})
		if err == nil {
			a.ended(ctx, l, "finished", nil)
		}
		return err
	case outcomeRelease:
		err := a.store.Release(ctx, []*store.Lease{l})
		if err == nil {
			a.ended(ctx, l, "released", nil)
		}
		return err
	}
	f := attempt.Failure{Text: req.text, Final: req.outcome == outcomeFail, Delay: req.retryAfter}
	if f.Text == "" {
		f.Text = "the worker gave no reason"
	}
	return a.settle(ctx, l, f)
}

// fail is settle for failures that the worker is told of in another way.
func (a *API) fail(ctx context.Context, l *store.Lease, f attempt.Failure) {
	if err := a.settle(context.WithoutCancel(ctx), l, f); err != nil && !errors.Is(err, store.ErrLeaseLost) {
		a.cfg.Logger.WarnContext(ctx, "settle a run", "task_id", l.TaskID, "agent", l.Agent, "epoch", l.Epoch, "err", err) // its lease runs out
	}
}

func (a *API) settle(ctx context.Context, l *store.Lease, f attempt.Failure) error {
	a.known.drop(l.TaskID)
	ended, err := attempt.Fail(ctx, a.store, l, a.limitsOf(l.Agent), f)
	if err != nil {
		return err
	}
	if ended.Failed {
		a.ended(ctx, l, "failed", errors.New(f.Text))
		return nil
	}
	a.ended(ctx, l, "retry", errors.New(f.Text))
	key := "ready:" + l.Agent
	time.AfterFunc(ended.Again, func() { a.hub.Wake(key) }) // the poll would find it too, but later
	return nil
}

// ended writes the one line that the log has for a run.
func (a *API) ended(ctx context.Context, l *store.Lease, outcome string, err error) {
	a.tally.Add(l.Agent, outcome)
	attrs := []any{"task_id", l.TaskID, "agent", l.Agent, "epoch", l.Epoch, "worker", l.Worker, "outcome", outcome, "attempt", l.Attempt, "seq", l.LastSeq,
		"principal", slog.GroupValue(slog.String("tenant", l.Tenant), slog.String("owner", l.Owner))}
	if id := l.Traceparent.TraceID(); id != "" {
		attrs = append(attrs, "trace_id", id)
	}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	a.cfg.Logger.InfoContext(ctx, "run", attrs...)
}
