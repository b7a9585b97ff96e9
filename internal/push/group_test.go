package push

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// gathered is a group that doubles numbers. Each call takes a second, and fails if refuse says so.
type gathered struct {
	group[int, int]
	mu    sync.Mutex
	calls [][]int // guarded by mu
}

func newGathered(refuse func(items []int) error) *gathered {
	g := &gathered{}
	g.many = func(_ context.Context, items []int) ([]int, error) {
		time.Sleep(time.Second)
		g.mu.Lock()
		g.calls = append(g.calls, slices.Sorted(slices.Values(items)))
		g.mu.Unlock()
		if err := refuse(items); err != nil {
			return nil, err
		}
		results := make([]int, len(items))
		for i, n := range items {
			results[i] = 2 * n
		}
		return results, nil
	}
	g.alone = func(ctx context.Context, item int) (int, error) {
		results, err := g.many(ctx, []int{item})
		if err != nil {
			return 0, err
		}
		return results[0], nil
	}
	return g
}

// run calls do for the numbers up to n, after the first call of many has begun, and returns the errors by number.
func (g *gathered) run(t *testing.T, n int) []error {
	t.Helper()
	errs := make([]error, n+1)
	var wg sync.WaitGroup
	for i := range n + 1 {
		wg.Go(func() {
			got, err := g.do(t.Context(), i)
			if errs[i] = err; err == nil && got != 2*i {
				t.Errorf("%d gives %d", i, got)
			}
		})
		if i == 0 {
			synctest.Wait()
		}
	}
	wg.Wait()
	return errs
}

func TestGroupSharesCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGathered(func([]int) error { return nil })
		if err := errors.Join(g.run(t, groupMost+2)...); err != nil {
			t.Fatal(err)
		}
		if len(g.calls) != 3 || len(g.calls[0]) != 1 || len(g.calls[1]) != groupMost || len(g.calls[2]) != 2 {
			t.Errorf("the calls were %v, want one item, then %d, then 2", g.calls, groupMost)
		}
	})
}

func TestGroupFailsOnlyTheItemAtFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("3 is bad")
		g := newGathered(func(items []int) error {
			if slices.Contains(items, 3) {
				return bad
			}
			return nil
		})
		for i, err := range g.run(t, 4) {
			if (i == 3) != errors.Is(err, bad) {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

func TestGroupDoesNotRepeatWhileTheDatabaseIsUnreachable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGathered(func([]int) error { return &a2a.Error{Code: a2a.CodeUnavailable, Message: "no database"} })
		for i, err := range g.run(t, 4) {
			if a2a.CodeOf(err) != a2a.CodeUnavailable {
				t.Errorf("%d: %v", i, err)
			}
		}
		if len(g.calls) != 2 {
			t.Errorf("%d calls, want the first and that of the group: %v", len(g.calls), g.calls)
		}
	})
}
