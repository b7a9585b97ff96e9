// Package lifecycle runs the long-lived parts of a process: it starts them in stages, in order, and stops them in
// reverse.
//
// It promises that a part outlives every part of a later stage, that the first failure stops everything, and that
// nothing runs any more when Run returns. It knows nothing about the work of the parts, and sets no deadline: a
// process that must end in time adds its own deadline around Run.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrShutdown is the cause with which the context of every part is canceled. The cause also wraps the reason: the
// cause of the context given to Run, or the error of the part that failed.
var ErrShutdown = errors.New("shutting down")

// ErrReturnedEarly is wrapped by the error of Run if a part returned nil before its context was done.
var ErrReturnedEarly = errors.New("returned without being stopped")

// Part is one long-lived piece of a process.
type Part struct {
	// Name is its name in errors.
	Name string
	// Run blocks until ctx is done and everything it started has stopped. After that, nil, context.Canceled and errors
	// that wrap ErrShutdown mean an orderly stop.
	Run func(ctx context.Context) error
	// Ready, if set, is closed by the part when later stages may rely on it.
	Ready <-chan struct{}
}

// Stage is a set of parts that are started and stopped together.
type Stage []Part

// Group is a list of stages. Its methods are safe for concurrent use; Run works once.
type Group struct {
	stages []Stage
	ready  chan struct{} // closed by Run
	ran    atomic.Bool
}

// New makes a group of the stages in the order in which they start. It starts nothing.
func New(stages ...Stage) *Group {
	return &Group{stages: stages, ready: make(chan struct{})}
}

// Ready returns a channel that is closed once every part of every stage is ready. So a group can itself be a Part.
func (g *Group) Ready() <-chan struct{} { return g.ready }

// Run starts the stages one after the other, each when all parts of the previous one are ready. Then it waits until ctx
// is done or a part returns. In both cases it stops the stages in reverse. It cancels the context of a stage, with a
// cause that wraps ErrShutdown, only after every part of all later stages has returned.
//
// It returns when everything has stopped: nil after an orderly stop, otherwise the first error, joined with later ones.
func (g *Group) Run(ctx context.Context) error {
	if g.ran.Swap(true) {
		return errors.New("lifecycle: Run called twice")
	}
	r := &run{exits: make(chan exit, g.parts())}
	reason := r.start(ctx, g.stages)
	if reason == nil {
		close(g.ready)
		reason = r.wait(ctx, nil)
	}
	r.stop(fmt.Errorf("%w: %w", ErrShutdown, reason))
	return errors.Join(r.errs...)
}

func (g *Group) parts() int {
	n := 0
	for _, s := range g.stages {
		n += len(s)
	}
	return n
}

// exit says that a part has returned.
type exit struct {
	stage int
	name  string
	err   error
}

// run is the state of one Run. Only its goroutine uses it; parts report through exits, which has room for all of them.
type run struct {
	wg      sync.WaitGroup
	exits   chan exit
	started []*stage
	errs    []error
}

type stage struct {
	cancel  context.CancelCauseFunc
	stopped bool // its context was canceled
	running int
}

// start starts the stages until all are ready or there is a reason to stop.
func (r *run) start(ctx context.Context, stages []Stage) (reason error) {
	for _, parts := range stages {
		// If a part has failed in the meantime, the next stage must not start.
		if reason := r.pending(ctx); reason != nil {
			return reason
		}
		r.launch(ctx, parts)
		for _, p := range parts {
			if p.Ready == nil {
				continue
			}
			if reason := r.wait(ctx, p.Ready); reason != nil {
				return reason
			}
		}
	}
	return nil
}

func (r *run) launch(ctx context.Context, parts Stage) {
	// Not canceled with ctx: a stage ends when the later ones have ended.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	index := len(r.started)
	r.started = append(r.started, &stage{cancel: cancel, running: len(parts)})
	for _, p := range parts {
		r.wg.Go(func() { r.exits <- exit{stage: index, name: p.Name, err: p.Run(ctx)} })
	}
}

// wait returns nil when ready is closed, or the reason to stop.
func (r *run) wait(ctx context.Context, ready <-chan struct{}) (reason error) {
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case e := <-r.exits:
		return r.record(e)
	}
}

// pending returns the reason to stop if there is one already.
func (r *run) pending(ctx context.Context) (reason error) {
	select {
	case e := <-r.exits:
		return r.record(e)
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// stop ends the started stages in reverse and waits for each.
func (r *run) stop(cause error) {
	for i := len(r.started) - 1; i >= 0; i-- {
		s := r.started[i]
		s.stopped = true
		s.cancel(cause)
		for s.running > 0 {
			_ = r.record(<-r.exits) // it is in r.errs; the reason to stop is known already
		}
	}
	r.wg.Wait()
}

// record notes that a part returned. It returns an error if the part failed, or returned early.
func (r *run) record(e exit) error {
	s := r.started[e.stage]
	s.running--
	err := e.err
	switch {
	case !s.stopped && err == nil:
		err = ErrReturnedEarly
	case s.stopped && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrShutdown)):
		return nil
	}
	err = fmt.Errorf("%s: %w", e.name, err)
	r.errs = append(r.errs, err)
	return err
}
