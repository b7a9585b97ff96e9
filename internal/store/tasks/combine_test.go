package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

type thing struct {
	n     int
	bytes int
	bad   bool
	task  int // 0: one of its own
}

// writer is a flush that the test opens.
type writer struct {
	t       *testing.T
	gate    chan struct{} // a flush receives one value; nil: always open
	started chan []int    // the numbers of each flush; buffered for all

	most    int32 // how many flushes may run at the same time; 0 is 1
	busy    atomic.Int32
	mu      sync.Mutex
	flushes [][]int // guarded by mu
}

func newWriter(t *testing.T, gated bool) (*writer, *combiner[thing, int]) {
	w := &writer{t: t, started: make(chan []int, 10_000)}
	if gated {
		w.gate = make(chan struct{})
	}
	return w, newCombiner(w.flush, func(x *thing) int { return x.bytes }, 0, slog.New(slog.DiscardHandler))
}

// put writes a thing and checks its result.
func put(ctx context.Context, c *combiner[thing, int], x *thing) error {
	got, err := c.do(ctx, x)
	if err == nil && got != x.n || err != nil && got != 0 {
		return fmt.Errorf("the result of thing %d is %d, with error %w", x.n, got, err)
	}
	return err
}

func (w *writer) flush(_ context.Context, items []*thing) ([]int, error) {
	if n := w.busy.Add(1); n > max(w.most, 1) {
		w.t.Errorf("%d flushes at the same time", n)
	}
	defer w.busy.Add(-1)
	var ns []int
	bad := false
	for _, x := range items {
		ns = append(ns, x.n)
		bad = bad || x.bad
	}
	w.started <- ns
	if w.gate != nil {
		<-w.gate
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flushes = append(w.flushes, ns)
	if bad {
		return ns, fmt.Errorf("flush: %w", &pgconn.PgError{Code: "22P02", Message: fmt.Sprint(ns)})
	}
	return ns, nil
}

func TestSingleCallerWritesAtOnce(t *testing.T) {
	t.Parallel()
	w, c := newWriter(t, false)
	for i := range 3 {
		if err := put(t.Context(), c, &thing{n: i}); err != nil {
			t.Fatal(err)
		}
	}
	want(t, [][]int{{0}, {1}, {2}}, w.flushes)
}

func want[T any](t *testing.T, want, got T) {
	t.Helper()
	if fmt.Sprint(want) != fmt.Sprint(got) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// gather starts the calls in order while another flush is in progress. results returns when the test has opened enough
// flushes.
func (w *writer) gather(c *combiner[thing, int], things []*thing) (results func() []error) {
	first := make(chan error, 1)
	go func() { first <- put(w.t.Context(), c, &thing{n: -1}) }()
	<-w.started
	queued := func(n int) {
		for {
			c.mu.Lock()
			got := len(c.queue)
			c.mu.Unlock()
			if got == n {
				return
			}
			runtime.Gosched()
		}
	}
	errs := make([]error, len(things))
	var wg sync.WaitGroup
	for i, x := range things {
		wg.Go(func() { errs[i] = put(w.t.Context(), c, x) })
		queued(i + 1)
	}
	return func() []error {
		if err := <-first; err != nil {
			w.t.Errorf("the first call: %v", err)
		}
		wg.Wait()
		return errs
	}
}

// When many callers wait, up to three flushes run at the same time.
func TestManyCallersGetMoreWriters(t *testing.T) {
	t.Parallel()
	w, c := newWriter(t, true)
	w.most, c.crowd = 3, 3
	results := w.gather(c, numbers(2))
	quiet := func(what string) {
		t.Helper()
		select {
		case got := <-w.started:
			t.Errorf("%s: %v", what, got)
		default:
		}
	}
	quiet("two waiting callers had a second writer")
	var rest []func() error
	later := func(n int) {
		done := make(chan error, 1)
		go func() { done <- put(t.Context(), c, &thing{n: n}) }()
		rest = append(rest, func() error { return <-done })
	}
	// come adds callers one by one.
	come := func(from, to int) {
		for n := from; n < to; n++ {
			later(n)
			for queued := 0; queued < n-from+1; runtime.Gosched() {
				c.mu.Lock()
				queued = len(c.queue)
				c.mu.Unlock()
			}
		}
	}
	later(2)
	want(t, []int{0, 1, 2}, <-w.started)
	come(3, 5)
	quiet("two more waiting callers had a third writer")
	later(5)
	want(t, []int{3, 4, 5}, <-w.started)
	come(6, 12)
	quiet("there was a fourth writer")
	w.gate <- struct{}{}
	want(t, []int{6, 7, 8, 9, 10, 11}, <-w.started)
	for range 3 {
		w.gate <- struct{}{}
	}
	want(t, make([]error, 2), results())
	for _, wait := range rest {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	if c.writers != 0 || c.called || len(c.queue) > 0 {
		t.Errorf("when idle there are %d writers (called %t) and %d waiting items", c.writers, c.called, len(c.queue))
	}
}

func numbers(n int) []*thing {
	things := make([]*thing, n)
	for i := range things {
		things[i] = &thing{n: i}
	}
	return things
}

func TestCallersDuringAFlushShareTheNext(t *testing.T) {
	t.Parallel()
	w, c := newWriter(t, true)
	results := w.gather(c, numbers(4))
	w.gate <- struct{}{}
	want(t, []int{0, 1, 2, 3}, <-w.started) // in the order of the calls
	w.gate <- struct{}{}
	want(t, make([]error, 4), results())
	// The next caller finds no flush in progress.
	go func() { w.gate <- struct{}{} }()
	if err := put(t.Context(), c, &thing{n: 9}); err != nil {
		t.Error(err)
	}
	want(t, [][]int{{-1}, {0, 1, 2, 3}, {9}}, w.flushes)
}

func TestFlushIsBounded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		things []*thing
		sizes  []int // of the flushes
	}{
		{"by items", numbers(combineItems*2 + 1), []int{combineItems, combineItems, 1}},
		{"by bytes", sized(combineBytes/2, combineBytes/2, combineBytes/2, combineBytes/2, 1), []int{2, 2, 1}},
		{"what is too large goes alone", sized(combineBytes*2, 1, combineBytes*2, 1), []int{1, 2, 1}},
	}
	for _, tt := range tests {
		w, c := newWriter(t, true)
		results := w.gather(c, tt.things)
		w.gate <- struct{}{}
		var got, order []int
		for range tt.sizes {
			ns := <-w.started
			got, order = append(got, len(ns)), append(order, ns...)
			w.gate <- struct{}{}
		}
		want(t, make([]error, len(tt.things)), results())
		want(t, tt.sizes, got)
		if !slices.IsSorted(order) || len(order) != len(tt.things) {
			t.Errorf("%s: written in the order %v, want the order of the calls", tt.name, order)
		}
	}
}

func sized(sizes ...int) []*thing {
	things := numbers(len(sizes))
	for i, n := range sizes {
		things[i].bytes = n
	}
	return things
}

// A caller whose context ends still waits for its result, because its item may be in a flush.
func TestCanceledCallerWaitsForItsResult(t *testing.T) {
	t.Parallel()
	w, c := newWriter(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- put(t.Context(), c, &thing{n: 1}) }()
	<-w.started
	go func() { second <- put(ctx, c, &thing{n: 2}) }()
	cancel()
	w.gate <- struct{}{}
	want(t, []int{2}, <-w.started)
	select {
	case err := <-second:
		t.Errorf("do = %v before the flush ended", err)
	default:
	}
	w.gate <- struct{}{}
	want[error](t, nil, <-first)
	want[error](t, nil, <-second)
}

// Every item is written once, whichever caller writes it, and a writer never leaves items behind.
func TestManyCallersWriteEveryItemOnce(t *testing.T) {
	t.Parallel()
	for _, crowd := range []int{0, 1, 4} {
		t.Run(fmt.Sprint("one more from ", crowd), func(t *testing.T) { manyCallers(t, crowd) })
	}
}

func manyCallers(t *testing.T, crowd int) {
	w, c := newWriter(t, false)
	w.most, c.crowd = combineWriters, crowd
	if crowd == 0 {
		w.most = 1
	}
	const callers, each = 16, 200
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				if err := put(t.Context(), c, &thing{n: i*each + j}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var all []int
	last := map[int]int{}
	for _, f := range w.flushes {
		for _, n := range f {
			if prev, ok := last[n/each]; ok && prev >= n {
				t.Errorf("caller %d: item %d was written before %d", n/each, prev, n)
			}
			last[n/each] = n
		}
		all = append(all, f...)
	}
	slices.Sort(all)
	if len(all) != callers*each || len(slices.Compact(all)) != callers*each {
		t.Errorf("%d items were written, want %d", len(all), callers*each)
	}
	if c.writers > 0 || c.called || len(c.queue) != 0 {
		t.Errorf("after all calls there are %d writers and %d items", c.writers, len(c.queue))
	}
}
