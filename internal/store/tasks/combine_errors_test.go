package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/store/db"
)

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
	for range things { // again, each one alone
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

func TestSingleBadItemIsNotRepeated(t *testing.T) {
	t.Parallel()
	w, c := newWriter(t, false)
	if err := put(t.Context(), c, &thing{bad: true}); err == nil {
		t.Error("do = nil for a bad item")
	}
	want(t, 1, len(w.flushes))
}

func TestOtherErrorsFailTheWholeFlush(t *testing.T) {
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

// After an error that may be due to one item, the flush writes each item alone. After other errors it does not.
func TestErrorsThatMayBeOfOneItem(t *testing.T) {
	t.Parallel()
	for code, apart := range map[string]bool{
		"22P02": true, "23505": true, "54000": true, "55P03": true, "57014": true, "40P01": true, "40001": true,
		"57P01": false, "08006": false, "53300": false, "42P01": false, "XX000": false, "25006": false,
	} {
		if got := db.DueToOneItem(fmt.Errorf("append: %w", &pgconn.PgError{Code: code})); got != apart {
			t.Errorf("DueToOneItem(%s) = %t, want %t", code, got, apart)
		}
	}
}

// A flush that panics fails only its own items.
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
		t.Errorf("when idle there are %d writers (called %t) and %d waiting items", c.writers, c.called, len(c.queue))
	}
}
