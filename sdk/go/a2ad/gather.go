package a2ad

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// group is the branches of one Gather. When none of them can go on, the task waits for their calls.
type group struct {
	mu      sync.Mutex
	blocked map[int][]string // guarded by mu
	left    int              // guarded by mu: branches that are neither done nor blocked
	quiet   chan struct{}    // closed when left is 0
}

// block waits until the group ends.
func (g *group) block(ctx context.Context, number int, calls []string) error {
	g.mu.Lock()
	g.blocked[number] = calls
	g.mu.Unlock()
	g.settle()
	<-ctx.Done()
	return &stopped{waiting, "the task waits"}
}

func (g *group) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left--; g.left == 0 {
		close(g.quiet)
	}
}

type branch struct {
	prefix string
	group  *group
	number int
}

type branchKey struct{}

func branchOf(ctx context.Context) *branch {
	b, _ := ctx.Value(branchKey{}).(*branch)
	return b
}

// prefixOf returns the prefix of the keys of a branch; empty outside of Gather.
func prefixOf(ctx context.Context) string {
	if b := branchOf(ctx); b != nil {
		return b.prefix
	}
	return ""
}

// Gather does several things at once, each in a goroutine: steps and calls. It returns when all are done. If some fail,
// it returns the first of their errors, in the order of the arguments. Each function must use its own context. It may
// write only inside its steps, and each step to another artifact.
func (t *Task) Gather(ctx context.Context, work ...func(ctx context.Context) error) error {
	if err := outsideSteps(ctx, t, "Gather"); err != nil {
		return err
	}
	if i := slices.IndexFunc(work, func(do func(ctx context.Context) error) bool { return do == nil }); i >= 0 {
		return misuse("Gather: function %d is nil", i+1)
	}
	prefix, err := t.key(ctx, "gather")
	if err != nil || len(work) == 0 {
		return err
	}
	g := &group{blocked: make(map[int][]string), left: len(work), quiet: make(chan struct{})}
	errs := make([]error, len(work))
	within, leave := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i, do := range work {
		wg.Go(func() {
			b := &branch{fmt.Sprintf("%s.%d/", prefix, i+1), g, i}
			errs[i] = guard(func() error { return do(context.WithValue(within, branchKey{}, b)) })
			if !g.isBlocked(i) {
				g.settle()
			}
		})
	}
	<-g.quiet
	leave()
	wg.Wait()
	if err := t.s.ended(); err != nil {
		return err
	}
	if calls := g.calls(); len(calls) > 0 {
		return t.waitForCalls(ctx, t.nextWait(prefix), "any", calls)
	}
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}

// nextWait returns the key of the first wait of a Gather that is not over.
func (t *Task) nextWait(prefix string) string {
	for n := 1; ; n++ {
		key := fmt.Sprintf("%s/wait#%d", prefix, n)
		if old := t.s.known[key]; old == nil || old.EndedAt == nil {
			return key
		}
	}
}

func (g *group) isBlocked(i int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.blocked[i] != nil
}

// calls returns what the branches wait for.
func (g *group) calls() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for _, calls := range g.blocked {
		all = append(all, calls...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
