package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/store/db"
)

type thing struct {
	n     int
	bytes int
	bad   bool
}

// writer is a flush that the test opens by hand.
type writer struct {
	t       *testing.T
	gate    chan struct{} // a flush takes one; nil: always open
	started chan []int    // what each flush was given; room for all

	most    int32 // flushes at once; 0 is 1
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

// put writes a thing and holds its result against it.
func put(ctx context.Context, c *combiner[thing, int], x *thing) error {
	got, err := c.do(ctx, x)
	if err == nil && got != x.n || err != nil && got != 0 {
		return fmt.Errorf("the result of thing %d is %d, with error %w", x.n, got, err)
	}
	return err
}

func (w *writer) flush(_ context.Context, items []*thing) ([]int, error) {
	if n := w.busy.Add(1); n > max(w.most, 1) {
		w.t.Errorf("%d flushes at once", n)
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

func TestLoneCallerWritesAtOnce(t *testing.T) {
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

// gather starts the calls in order, behind one that holds the writer; it returns their results when open was called often enough.
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

// Where many wait, others write beside the first, three in all.
func TestManyWhoWaitHaveMoreWriters(t *testing.T) {
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
	quiet("two who wait had a second writer")
	var rest []func() error
	later := func(n int) {
		done := make(chan error, 1)
		go func() { done <- put(t.Context(), c, &thing{n: n}) }()
		rest = append(rest, func() error { return <-done })
	}
	// come brings them one by one, behind others.
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
	quiet("two more who wait had a third writer")
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
		t.Errorf("at rest there are %d writers (called %t) and %d who wait", c.writers, c.called, len(c.queue))
	}
}

func numbers(n int) []*thing {
	things := make([]*thing, n)
	for i := range things {
		things[i] = &thing{n: i}
	}
	return things
}

func TestThoseThatComeWhileOneWritesShareAFlush(t *testing.T) {
	t.Parallel()
	w, c := newWriter(t, true)
	results := w.gather(c, numbers(4))
	w.gate <- struct{}{}
	want(t, []int{0, 1, 2, 3}, <-w.started) // in the order they came
	w.gate <- struct{}{}
	want(t, make([]error, 4), results())
	// The next one finds nobody writing.
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
			t.Errorf("%s: written in the order %v", tt.name, order)
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

func TestBadItemFailsAlone(t *testing.T) {
	t.Parallel()
	w, c := newWriter(t, true)
	things := numbers(6)
	things[1].bad = true
	results := w.gather(c, things)
	w.gate <- struct{}{}
	want(t, []int{0, 1, 2, 3, 4, 5}, <-w.started)
	w.most = combineWriters
	w.gate <- struct{}{}
	var again []int
	for range things { // once more, each by itself
		one := <-w.started
		want(t, 1, len(one))
		again = append(again, one...)
		w.gate <- struct{}{}
	}
	slices.Sort(again)
	want(t, []int{0, 1, 2, 3, 4, 5}, again)
	for i, err := range results() {
		var pe *pgconn.PgError
		if i == 1 && (!errors.As(err, &pe) || pe.Message != "[1]") || i != 1 && err != nil {
			t.Errorf("item %d: %v", i, err)
		}
	}
}

func TestLoneBadItemIsNotRepeated(t *testing.T) {
	t.Parallel()
	w, c := newWriter(t, false)
	if err := put(t.Context(), c, &thing{bad: true}); err == nil {
		t.Error("do = nil for a bad item")
	}
	want(t, 1, len(w.flushes))
}

func TestOtherErrorsAreEverybodys(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	w, c := newWriter(t, true)
	flush := c.flush
	c.flush = func(ctx context.Context, items []*thing) ([]int, error) {
		if ns, err := flush(ctx, items); err != nil || len(items) == 1 {
			return ns, err
		}
		return nil, down
	}
	results := w.gather(c, numbers(3))
	w.gate <- struct{}{}
	<-w.started
	w.gate <- struct{}{}
	for i, err := range results() {
		if !errors.Is(err, down) {
			t.Errorf("item %d: %v, want %v", i, err, down)
		}
	}
	want(t, 2, len(w.flushes))
}

// A caller whose context ends still learns what became of its item, which may be on its way.
func TestCallerStaysForItsResult(t *testing.T) {
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

// Every item is written once, whoever leads, and leadership is never lost.
func TestManyCallersHandTheLeadOn(t *testing.T) {
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
				t.Errorf("caller %d: %d was written before %d", n/each, prev, n)
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
		t.Errorf("busy %v with %d items when all is done", c.writers, len(c.queue))
	}
}

// What fails a group for one of its items is not that of the others: they are written by themselves, each with
// its own answer, and whoever comes meanwhile is not held up.
func TestErrorsThatMayBeOfOneItem(t *testing.T) {
	t.Parallel()
	for code, apart := range map[string]bool{
		"22P02": true, "23505": true, "54000": true, "55P03": true, "57014": true, "40P01": true, "40001": true,
		"57P01": false, "08006": false, "53300": false, "42P01": false, "XX000": false, "25006": false,
	} {
		if got := db.DueToOneItem(fmt.Errorf("append: %w", &pgconn.PgError{Code: code})); got != apart {
			t.Errorf("%s is of one item: %t, want %t", code, got, apart)
		}
	}
}

// A flush that panics fails its own items. It leaves no writer that never ends.
func TestPanicInAFlushLeavesTheCombinerUsable(t *testing.T) {
	t.Parallel()
	w, c := newWriter(t, true)
	w.most = combineWriters
	flush := c.flush
	c.flush = func(ctx context.Context, items []*thing) ([]int, error) {
		ns, err := flush(ctx, items)
		if slices.Contains(ns, 1) {
			panic("planted")
		}
		return ns, err
	}
	results := w.gather(c, numbers(3))
	close(w.gate)
	for i, err := range results() {
		if err == nil || !strings.Contains(err.Error(), "planted") {
			t.Errorf("thing %d: error = %v, want the panic", i, err)
		}
	}
	for i := range 2 * combineWriters {
		if err := put(t.Context(), c, &thing{n: 1}); err == nil {
			t.Error("the flush did not panic")
		}
		if err := put(t.Context(), c, &thing{n: 100 + i}); err != nil {
			t.Error(err)
		}
	}
	if c.writers != 0 || c.called || len(c.queue) > 0 {
		t.Errorf("at rest there are %d writers (called %t) and %d who wait", c.writers, c.called, len(c.queue))
	}
}
