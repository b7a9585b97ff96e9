package stream_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/stream"
)

// TestCursorOfARemovedTaskEnds: the last event of a removed task is removed with it. A cursor that
// has not read it must not wait.
func TestCursorOfARemovedTaskEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2*time.Millisecond)
	task := db.NewTaskID()
	f.log.commit(task, 2)
	c := f.follow(task, 0, 2)
	read(t, c, 0, 2)
	f.log.remove(task, 2)
	if items, err := c.Next(t.Context()); !errors.Is(err, stream.ErrGone) {
		t.Errorf("Next = %d events, %v, want ErrGone", len(items), err)
	}
}

// TestCursorWaitsForATaskToBeMade: a task that does not exist yet differs from a removed one.
func TestCursorWaitsForATaskToBeMade(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Millisecond)
	task := db.NewTaskID()
	c := f.FollowNew(task, "ctx")
	defer c.Close()
	var reading sync.WaitGroup
	reading.Go(func() { read(t, c, 1, 2) })
	for begin := f.log.pollCount(); f.log.pollCount() < begin+5; {
		runtime.Gosched()
	}
	f.committed(task, f.log.commit(task, 2))
	reading.Wait()

	// This task is made and removed before a cursor reads it.
	c = f.FollowNew(db.NewTaskID(), "ctx")
	defer c.Close()
	c.Made()
	if items, err := c.Next(t.Context()); !errors.Is(err, stream.ErrGone) {
		t.Errorf("Next = %d events, %v, want ErrGone", len(items), err)
	}
}

// TestCursorBeforeRemovedEventsEnds: retention may have removed the next events of a cursor,
// although it keeps the last event.
func TestCursorBeforeRemovedEventsEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	for name, after := range map[string]int64{"near": 290, "far": 1} {
		task := db.NewTaskID()
		f.log.commit(task, 290)
		c := f.follow(task, after, 290)
		f.log.commit(task, 10)
		f.log.remove(task, 299)
		f.committed(task, nil)
		if items, err := c.Next(t.Context()); !errors.Is(err, stream.ErrGone) {
			t.Errorf("%s: Next = %d events, %v, want ErrGone", name, len(items), err)
		}
	}
}

// TestMissedWakesCostOnePoll: when wake-ups may have been missed, one poll of all followed tasks
// finds the ones with new events. Only these are read, a few at a time.
func TestMissedWakesCostOnePoll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	const streams, news = 300, 20
	cursors := make([]*stream.Cursor, streams)
	list := make([]a2a.ID, streams)
	for i := range cursors {
		task := db.NewTaskID()
		list[i] = task
		f.log.commit(task, 1)
		cursors[i] = f.follow(task, 1, 1)
		receive(t, "the first read", f.log.reading)
	}
	f.log.awaitReads() // else a first read may find the news already
	for _, task := range list[:news] {
		f.log.commit(task, 2)
	}
	gate := make(chan struct{})
	f.log.mu.Lock()
	f.log.gate = gate
	before, polls := f.log.reads, f.log.polls
	f.log.mu.Unlock()
	f.hub.WakeAll()
	for range 4 {
		receive(t, "a read of a task with news", f.log.reading)
	}
	close(gate)
	for _, c := range cursors[:news] {
		read(t, c, 1, 3)
	}
	if got := f.log.pollCount() - polls; got != 1 {
		t.Errorf("%d polls of all tasks, want 1", got)
	}
	if got := f.log.readCount() - before; got != news {
		t.Errorf("%d reads, want %d", got, news)
	}
	if most := f.log.mostAtOnce(); most > 4 {
		t.Errorf("%d reads at once", most)
	}
	if n := f.PollHits(); n != 0 {
		t.Errorf("%d poll hits, want none for expected events", n)
	}
}

// TestFailedPollForMissedWakesIsRepeated: the repeat comes soon, not after the poll interval.
func TestFailedPollForMissedWakesIsRepeated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
	f.log.commit(task, 1)
	c := f.follow(task, 1, 1)
	receive(t, "the first read", f.log.reading)
	f.log.mu.Lock()
	f.log.failPolls = 3
	f.log.mu.Unlock()
	f.log.commit(task, 1)
	f.hub.WakeAll()
	read(t, c, 1, 2)
}
