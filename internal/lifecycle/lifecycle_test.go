package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/leaktest"
	"github.com/a2ad/a2ad/internal/lifecycle"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// journal records what the parts of a group did, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func (j *journal) want(t *testing.T, want ...string) {
	t.Helper()
	if got := j.read(); !slices.Equal(got, want) {
		t.Errorf("journal:\n got %q\nwant %q", got, want)
	}
}

// part needs warmup until it is ready, and cooldown to stop.
func (j *journal) part(name string, warmup, cooldown time.Duration) lifecycle.Part {
	ready := make(chan struct{})
	return lifecycle.Part{Name: name, Ready: ready, Run: func(ctx context.Context) error {
		j.add("%s starts", name)
		time.Sleep(warmup)
		close(ready)
		<-ctx.Done()
		j.add("%s stops", name)
		time.Sleep(cooldown)
		j.add("%s stopped", name)
		return context.Cause(ctx)
	}}
}

// failing is a part that returns err after d if it is not stopped before.
func failing(name string, d time.Duration, err error) lifecycle.Part {
	return lifecycle.Part{Name: name, Run: func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return err
		case <-ctx.Done():
			return nil
		}
	}}
}

func TestStagesStartInOrderAndStopInReverse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g := lifecycle.New(
			lifecycle.Stage{j.part("a", time.Second, time.Second)},
			lifecycle.Stage{j.part("b", time.Second, time.Second)},
			lifecycle.Stage{j.part("c", time.Second, time.Second)},
		)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()

		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		j.want(t, "a starts", "b starts", "c starts")
		select {
		case <-g.Ready():
			t.Fatal("group is ready before its last stage")
		default:
		}
		<-g.Ready()
		cancel()
		if err := <-done; err != nil {
			t.Fatalf("Run = %v, want nil", err)
		}
		j.want(t, "a starts", "b starts", "c starts",
			"c stops", "c stopped", "b stops", "b stopped", "a stops", "a stopped")
	})
}

func TestStageIsStoppedOnlyWhenAllLaterPartsReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g := lifecycle.New(
			lifecycle.Stage{j.part("a", 0, 0)},
			lifecycle.Stage{j.part("b", 0, 0)},
			lifecycle.Stage{j.part("quick", 0, 0), j.part("slow", 0, time.Hour)},
		)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		<-g.Ready()
		cancel()
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if got := j.read(); !slices.Contains(got, "quick stopped") || slices.Contains(got, "b stops") {
			t.Errorf("while a part of the last stage still runs: %q", got)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := j.read(); !slices.Equal(got[len(got)-5:],
			[]string{"slow stopped", "b stops", "b stopped", "a stops", "a stopped"}) {
			t.Errorf("stop order: %q", got)
		}
	})
}

func TestFirstErrorStopsTheGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		boom := errors.New("boom")
		var cause error
		witness := lifecycle.Part{Name: "witness", Run: func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}}
		err := lifecycle.New(
			lifecycle.Stage{j.part("a", 0, 0), failing("b", time.Minute, boom)},
			lifecycle.Stage{witness},
		).Run(t.Context())

		if !errors.Is(err, boom) || err.Error() != "b: boom" {
			t.Errorf("Run = %v, want b: boom", err)
		}
		if !errors.Is(cause, lifecycle.ErrShutdown) || !errors.Is(cause, boom) {
			t.Errorf("cause = %v, want ErrShutdown because of boom", cause)
		}
		j.want(t, "a starts", "a stops", "a stopped")
	})
}

func TestEarlyReturnIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		err := lifecycle.New(lifecycle.Stage{j.part("a", 0, 0), failing("b", 0, nil)}).Run(t.Context())
		if !errors.Is(err, lifecycle.ErrReturnedEarly) || !strings.HasPrefix(err.Error(), "b: ") {
			t.Errorf("Run = %v, want ErrReturnedEarly of b", err)
		}
		// context.Canceled from a part that was not canceled is a failure.
		err = lifecycle.New(lifecycle.Stage{failing("c", 0, context.Canceled)}).Run(t.Context())
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want context.Canceled of c", err)
		}
	})
}

func TestFailureBeforeReadyStartsNoFurtherStage(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	never := lifecycle.Stage{{Name: "never", Run: func(context.Context) error {
		panic("a stage was started after a failure")
	}}}
	tests := []struct {
		name  string
		stage func(*journal) lifecycle.Stage
	}{
		{"itself", func(*journal) lifecycle.Stage {
			p := failing("bad", time.Second, boom)
			p.Ready = make(chan struct{})
			return lifecycle.Stage{p}
		}},
		{"its neighbour", func(j *journal) lifecycle.Stage {
			return lifecycle.Stage{j.part("a", time.Minute, 0), failing("bad", time.Second, boom)}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				g := lifecycle.New(tt.stage(&j), never)
				if err := g.Run(t.Context()); !errors.Is(err, boom) {
					t.Errorf("Run = %v, want boom", err)
				}
				select {
				case <-g.Ready():
					t.Error("a group that never came up is ready")
				default:
				}
			})
		})
	}
}

func TestCancelDuringStartStopsWhatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g := lifecycle.New(lifecycle.Stage{j.part("a", 0, 0)}, lifecycle.Stage{j.part("b", time.Hour, 0)},
			lifecycle.Stage{j.part("c", 0, 0)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		j.want(t, "a starts", "b starts", "b stops", "b stopped", "a stops", "a stopped")
	})
}

func TestDoneContextStartsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var j journal
	if err := lifecycle.New(lifecycle.Stage{j.part("a", 0, 0)}).Run(ctx); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	j.want(t)
}

func TestErrorsWhileStoppingAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		flush, boom := errors.New("flush"), errors.New("boom")
		bad := lifecycle.Part{Name: "store", Run: func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("last write: %w", flush)
		}}
		err := lifecycle.New(lifecycle.Stage{bad}, lifecycle.Stage{failing("api", time.Second, boom)}).Run(t.Context())
		if !errors.Is(err, flush) || !errors.Is(err, boom) {
			t.Fatalf("Run = %v, want both errors", err)
		}
		if !strings.HasPrefix(err.Error(), "api: boom") {
			t.Errorf("Run = %q, want the first error in front", err)
		}
	})
}

func TestPartsKeepTheValuesOfTheContextAndSeeItsCause(t *testing.T) {
	t.Parallel()
	type key struct{}
	sigterm := errors.New("terminated signal received")
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "v"))
	var got any
	var cause error
	g := lifecycle.New(lifecycle.Stage{{Name: "p", Run: func(ctx context.Context) error {
		got = ctx.Value(key{})
		cancel(sigterm)
		<-ctx.Done()
		cause = context.Cause(ctx)
		return nil
	}}})
	if err := g.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got != "v" {
		t.Errorf("value = %v, want v", got)
	}
	if !errors.Is(cause, lifecycle.ErrShutdown) || !errors.Is(cause, sigterm) {
		t.Errorf("cause = %v, want ErrShutdown because of the signal", cause)
	}
}

func TestGroupsNest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		inner := lifecycle.New(lifecycle.Stage{j.part("inner", time.Second, 0)})
		outer := lifecycle.New(
			lifecycle.Stage{{Name: "group", Run: inner.Run, Ready: inner.Ready()}},
			lifecycle.Stage{j.part("outer", 0, 0)},
		)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := outer.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		j.want(t, "inner starts", "outer starts", "outer stops", "outer stopped", "inner stops", "inner stopped")
	})
}

func TestRunWorksOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := lifecycle.New()
	if err := g.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.Run(ctx); err == nil {
		t.Error("second Run = nil, want an error")
	}
}
