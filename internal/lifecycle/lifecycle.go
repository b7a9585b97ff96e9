// Package lifecycle runs the long-lived parts of a process: started in stages in
// order, stopped in reverse.
//
// It promises that a part outlives every part that was started after it, that the
// first failure stops everything, and that nothing is left running when Run returns.
// It knows nothing about what the parts do, and sets no deadline: a process that must
// end in time wraps its own around Run.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrShutdown is the cause with which the context of every part is cancelled. The
// cause wraps the reason too: what ended the context given to Run, or the error of
// the part that failed.
var ErrShutdown = errors.New("shutting down")

// ErrReturnedEarly is wrapped by the error of Run if a part returned nil although
// nobody had asked it to stop.
var ErrReturnedEarly = errors.New("returned without being stopped")

// Part is one long-lived piece of a process.
type Part struct {
	// Name is what errors call it.
	Name string
	// Run blocks until ctx is done and everything it started has stopped. After that
	// nil, context.Canceled and anything that wraps ErrShutdown mean an orderly stop.
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

// Ready returns a channel that is closed once every part of every stage is ready. With
// it a group can itself be a Part.
func (g *Group) Ready() <-chan struct{} { return g.ready }

// Run starts the stages one after the other, each when all parts of the one before are
// ready, and then waits until ctx is done or a part returns. Either way it stops the
// stages in reverse: the context of a stage is cancelled, with a cause that wraps
// ErrShutdown, only after every part of all later stages has returned.
//
// It returns when everything has stopped: nil after an orderly stop, else the first
// error, with any that came after it joined.
func (g *Group) Run(ctx context.Context) error {
	if g.ran.Swap(true) {
		return errors.New("lifecycle: Run called twice")
	}
	r := &run{ctx: ctx, exits: make(chan exit, g.parts())}
	reason := r.start(g.stages)
	if reason == nil {
		close(g.ready)
		reason = r.wait(nil)
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

// run is the state of one Run. Only its goroutine touches it; parts report by exits,
// which has room for all of them.
type run struct {
	ctx     context.Context
	wg      sync.WaitGroup
	exits   chan exit
	started []*stage
	errs    []error
}

type stage struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running int
}

// start starts the stages until all are ready or there is a reason to stop.
func (r *run) start(stages []Stage) (reason error) {
	for _, parts := range stages {
		// A part that failed in the meantime must not be followed by another stage.
		if reason := r.pending(); reason != nil {
			return reason
		}
		r.launch(parts)
		for _, p := range parts {
			if p.Ready == nil {
				continue
			}
			if reason := r.wait(p.Ready); reason != nil {
				return reason
			}
		}
	}
	return nil
}

func (r *run) launch(parts Stage) {
	// Without the cancellation of r.ctx: a stage ends when the later ones have ended.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.ctx))
	index := len(r.started)
	r.started = append(r.started, &stage{ctx: ctx, cancel: cancel, running: len(parts)})
	for _, p := range parts {
		r.wg.Go(func() { r.exits <- exit{stage: index, name: p.Name, err: p.Run(ctx)} })
	}
}

// wait returns nil when ready is closed, and else the reason to stop.
func (r *run) wait(ready <-chan struct{}) (reason error) {
	select {
	case <-ready:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	case e := <-r.exits:
		return r.record(e)
	}
}

// pending returns the reason to stop if there is one already.
func (r *run) pending() (reason error) {
	select {
	case e := <-r.exits:
		return r.record(e)
	default:
	}
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	return nil
}

// stop ends the started stages in reverse and waits for each.
func (r *run) stop(cause error) {
	for i := len(r.started) - 1; i >= 0; i-- {
		s := r.started[i]
		s.cancel(cause)
		for s.running > 0 {
			_ = r.record(<-r.exits) // kept in r.errs; a reason to stop there is already
		}
	}
	r.wg.Wait()
}

// record takes note that a part returned, and returns its error if it did so wrongly.
func (r *run) record(e exit) error {
	s := r.started[e.stage]
	s.running--
	err := e.err
	switch stopped := s.ctx.Err() != nil; {
	case !stopped && err == nil:
		err = ErrReturnedEarly
	case stopped && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrShutdown)):
		return nil
	}
	err = fmt.Errorf("%s: %w", e.name, err)
	r.errs = append(r.errs, err)
	return err
}
