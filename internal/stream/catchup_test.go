package stream_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wake"
)

// TestCursorCatchesUpWhileEventsArrive: a cursor far from the tail first reads the log by itself,
// page by page. At the tail it joins the others.
func TestCursorCatchesUpWhileEventsArrive(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
	f.log.commit(task, 1000)
	var wg sync.WaitGroup
	for _, after := range []int64{0, 1, 500, 935, 936, 1000} {
		c := f.follow(task, after, 1000)
		wg.Go(func() { read(t, c, after, 1500) })
	}
	for range 100 {
		f.committed(task, f.log.commit(task, 5))
	}
	wg.Wait()
}

func TestCursorFromTheFutureWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
	f.log.commit(task, 2)
	ahead := f.follow(task, 4, 4) // it has seen events that this topic has not read
	f.committed(task, f.log.commit(task, 1))
	wantNothing(t, ahead)
	f.committed(task, f.log.commit(task, 2))
	read(t, ahead, 4, 5)
}

// TestCursorsAtOnePositionShareARead: ten streams that resume at the same position read the log
// once.
func TestCursorsAtOnePositionShareARead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
	f.log.commit(task, 100)
	gate := make(chan struct{})
	f.log.gate = gate
	const cursors = 10
	var wg sync.WaitGroup
	for range cursors {
		c := f.follow(task, 0, 100)
		wg.Go(func() { read(t, c, 0, 100) })
	}
	receive(t, "read", f.log.reading)
	close(gate)
	wg.Wait()
	// Some may have come after the read ended. At no time were there more reads than theirs and the
	// topic's.
	if n := f.log.mostAtOnce(); n > 2 {
		t.Errorf("%d reads at once from one position", n)
	}
}

func TestCatchUpReadsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	gate := make(chan struct{})
	f.log.gate = gate
	var wg sync.WaitGroup
	for range 30 {
		task := db.NewTaskID()
		f.log.commit(task, 100)
		c := f.follow(task, 0, 100)
		wg.Go(func() { read(t, c, 0, 100) })
	}
	for range 8 {
		receive(t, "read", f.log.reading)
	}
	select {
	case <-f.log.reading:
		t.Error("more than 8 reads at once")
	default:
	}
	close(gate)
	wg.Wait()
}

// TestCatchUpReadsHaveTheirTurn: after the crash of a replica, thousands of streams catch up on the
// others. However long one waits, it does not fail. It keeps its place while its client gets pings,
// and only while it has a client.
func TestCatchUpReadsHaveTheirTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, never)
		gate := make(chan struct{})
		f.log.gate = gate
		var wg sync.WaitGroup
		begin := func() (a2a.ID, *stream.Cursor) {
			task := db.NewTaskID()
			f.log.commit(task, 100)
			return task, f.follow(task, 0, 100)
		}
		for range 8 {
			_, c := begin()
			wg.Go(func() { read(t, c, 0, 100) })
		}
		pinged, first := begin()
		ping := func() {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			if items, err := first.Next(ctx); err == nil || ctx.Err() == nil {
				t.Errorf("Next = %d events, %v, want none yet", len(items), err)
			}
		}
		ping()
		leaving, second := begin()
		third, last := begin()
		gone, leave := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := second.Next(gone); err == nil {
				t.Error("a client that has left gets events")
			}
			second.Close()
		})
		synctest.Wait()
		wg.Go(func() { read(t, last, 0, 100) })
		for range 5 {
			ping()
		}
		leave()
		wg.Go(func() { read(t, first, 0, 100) })
		synctest.Wait()
		var got []a2a.ID
		for range 16 { // the first eight read twice, and release no others with the second read
			gate <- struct{}{}
			synctest.Wait()
			for _, task := range f.log.begun() {
				if (task == pinged || task == leaving || task == third) && !slices.Contains(got, task) {
					got = append(got, task)
				}
			}
		}
		if !slices.Equal(got, []a2a.ID{pinged, third}) {
			t.Errorf("then %v are read, want %v and %v, and not %v", got, pinged, third, leaving)
		}
		close(gate)
		wg.Wait()
	})
}

// TestEventsDuringAReadAreReadAgain: events that are committed during a read, and that it does not
// return, cause another read. So do events after it.
func TestEventsDuringAReadAreReadAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
	f.log.commit(task, 1)
	hold := make(chan struct{})
	f.log.hold = hold
	c := f.follow(task, 1, 1)
	wake := func() { f.hub.Wake(wake.Task(task)) }
	receive(t, "the first read", hold)
	hold <- struct{}{}
	for last := int64(1); last < 20; last++ {
		wake()
		receive(t, "a read without the event", hold)
		f.log.commit(task, 1)
		wake()
		hold <- struct{}{}
		receive(t, "a read of the event", hold)
		hold <- struct{}{}
		read(t, c, last, last+1)
	}
	f.log.mu.Lock()
	f.log.hold = nil
	f.log.mu.Unlock()
	for last := int64(20); last < 200; last++ {
		f.log.commit(task, 1)
		wake()
		read(t, c, last, last+1)
	}
}

// TestReadsAreRetriedAfterErrors: the database is unreachable for a moment. Waiting cursors get no
// error, and nothing is lost.
func TestReadsAreRetriedAfterErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
	f.log.commit(task, 1)
	c := f.follow(task, 1, 1)
	receive(t, "the first read", f.log.reading)
	f.log.mu.Lock()
	from := f.log.reads
	f.log.fail = func(n int) error {
		if n <= from+3 {
			return errors.New("unreachable")
		}
		return nil
	}
	f.log.mu.Unlock()
	f.log.commit(task, 2)
	f.hub.Wake(wake.Task(task))
	read(t, c, 1, 3)
}

// TestErrorOfACatchUpReadIsReturned: a cursor that reads by itself gets the error, and may
// continue.
func TestErrorOfACatchUpReadIsReturned(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
	f.log.commit(task, 300)
	unreachable := errors.New("unreachable")
	f.log.fail = func(n int) error {
		if n == 1 {
			return unreachable
		}
		return nil
	}
	c := f.follow(task, 0, 300)
	if items, err := c.Next(t.Context()); !errors.Is(err, unreachable) {
		t.Errorf("Next = %d events, %v, want %v", len(items), err, unreachable)
	}
	read(t, c, 0, 300)
}
