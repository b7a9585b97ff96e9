package a2ad

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// group is the branches of one Gather. When none of them can continue, the task waits for all of them.
type group struct {
	quiet chan struct{} // closed when no branch can continue

	mu     sync.Mutex
	active int           // guarded by mu: branches that have neither ended nor wait
	waits  map[int]pause // guarded by mu: what branches wait for, by their number
}

func errGatherWaits() error {
	return &stopped{outcome: waiting, text: "the task waits for the calls of all branches"}
}

// settleLocked notes that a branch has ended or waits.
func (g *group) settleLocked() {
	if g.active--; g.active == 0 {
		close(g.quiet)
	}
}

// check refuses calls of a branch that waits, and of all once the task begins to wait, or all branches have ended.
func (g *group) check(number int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, waits := g.waits[number]
	switch {
	case waits:
		return errGatherWaits()
	case g.active > 0:
		return nil
	case len(g.waits) > 0:
		return errGatherWaits()
	}
	return misuse("a call with the context of a branch of Gather that has ended")
}

// block waits until the run ends. If other branches still work after a time, it returns nil then; 0 means never.
func (g *group) block(ctx context.Context, number int, p pause, after time.Duration) error {
	g.mu.Lock()
	g.waits[number] = p
	g.settleLocked()
	g.mu.Unlock()
	var due <-chan time.Time
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
		if g.unblock(number) {
			return nil
		}
	case <-g.quiet:
	case <-ctx.Done():
	}
	return errGatherWaits()
}

// unblock lets a branch continue, unless none can.
func (g *group) unblock(number int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active == 0 {
		return false
	}
	delete(g.waits, number)
	g.active++
	return true
}

// end notes that the function of a branch has returned.
func (g *group) end(number int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, waits := g.waits[number]; !waits {
		g.settleLocked()
	}
}

// wait returns what the branches wait for: all calls, and the first pause.
func (g *group) wait() (p pause, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waits {
		p.calls = append(p.calls, w.calls...)
		first := p.until.IsZero() || w.until.Before(p.until) || w.until.Equal(p.until) && w.key < p.key
		if !w.until.IsZero() && first {
			p.until, p.key = w.until, w.key
		}
	}
	slices.Sort(p.calls)
	p.calls = slices.Compact(p.calls)
	return p, len(g.waits) > 0
}

// Gather does several steps and calls at once, each function in a goroutine of its own. A function may make several
// calls, one after another: [Step], [Task.Call], [Task.Status], [Task.Usage], and Gather again. It must pass the
// context that it gets to each of them. Two functions may not write the same artifact, and write only in steps.
//
// Gather returns when all functions have returned. If some fail, the others still run to their end. Then Gather returns
// the first of their errors, in the order of the arguments.
func (t *Task) Gather(ctx context.Context, work ...func(ctx context.Context) error) error {
	return t.s.do(ctx, func() error {
		if err := outsideSteps(ctx, t.s, "Gather"); err != nil {
			return err
		}
		if i := slices.IndexFunc(work, func(fn func(context.Context) error) bool { return fn == nil }); i >= 0 {
			return misuse("function %d of Gather is nil", i+1)
		}
		prefix, err := t.s.key(ctx, "gather")
		if err != nil || len(work) == 0 {
			return err
		}
		t.s.releaseHeld(ctx)
		defer t.s.endGather(ctx, prefix)
		return t.s.gather(ctx, prefix, work)
	})
}

func (s *session) gather(ctx context.Context, prefix string, work []func(ctx context.Context) error) error {
	g := &group{waits: make(map[int]pause), active: len(work), quiet: make(chan struct{})}
	within, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	branches := make([]<-chan result, len(work))
	for i, fn := range work {
		b := &branch{session: s, prefix: fmt.Sprintf("%s.%d/", prefix, i+1), group: g, number: i}
		ctx := context.WithValue(within, branchKey{}, b)
		branches[i] = start(func() (any, error) {
			defer g.end(i)
			return nil, s.endBranch(ctx, b, fn(ctx))
		})
	}
	select {
	case <-g.quiet:
		leave(errGatherWaits())
	case <-ctx.Done():
	}
	errs := make([]error, len(work))
	for i := range branches {
		errs[i] = (<-branches[i]).err
	}
	if err := s.check(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if p, waits := g.wait(); waits {
		return s.begin(ctx, p, s.gatherKey(prefix, p), true)
	}
	return firstOf(errs...)
}

// endBranch returns the error of a branch. Without one, a call that its function has left in progress is a mistake.
func (s *session) endBranch(ctx context.Context, b *branch, err error) error {
	if err != nil || s.check() != nil {
		return err
	}
	select {
	case <-b.group.quiet: // the context of the branch has ended, and with it the call
		return nil
	default:
	}
	s.mu.Lock()
	left := s.inProgressLocked(b.prefix, "branch")
	s.mu.Unlock()
	if left != nil {
		s.refuse(ctx, left)
	}
	return left
}

// gatherKey returns the key of the next wait of a Gather: that of the first pause, or the first that is not over.
func (s *session) gatherKey(prefix string, p pause) string {
	if p.key != "" {
		return p.key
	}
	for n := 1; ; n++ {
		key := fmt.Sprintf("%s/wait#%d", prefix, n)
		if old := s.known[key]; old == nil || !old.ended() {
			return key
		}
	}
}
