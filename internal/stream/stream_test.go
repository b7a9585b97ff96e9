package stream_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestCursorGetsEveryEventOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	f.log.commit(task, 3)
	c := f.follow(task, 1, 3)
	items := read(t, c, 1, 3)
	if items[0].ContextID != "ctx" || items[0].TaskID != task || items[0].UID.IsZero() {
		t.Errorf("item %+v", items[0].Entry)
	}
	f.committed(task, f.log.commit(task, 2))
	read(t, c, 3, 5)
	wantNothing(t, c)
}

func TestOfferReportsWhetherAWakeIsNeeded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	first := f.log.commit(task, 3)
	if !f.Offer(task, first) {
		t.Error("Offer = false without followers")
	}
	c := f.follow(task, 3, 3)
	// The topic has read up to 3 before it can be offered 4.
	receive(t, "first look", f.log.reading)
	next := f.log.commit(task, 4)
	for _, tt := range []struct {
		name    string
		entries []a2a.Entry
		want    bool
	}{
		{"unknown events", nil, false},
		{"events after a gap", next[2:3], false},
		{"old ones", first, true},
		{"the next", next[:2], true},
		{"old ones and the next", next[1:3], true},
		{"all once more", next[:3], true},
	} {
		if got := f.Offer(task, tt.entries); got != tt.want {
			t.Errorf("Offer of %s = %v, want %v", tt.name, got, tt.want)
		}
	}
	read(t, c, 3, 6)
	f.committed(task, nil) // a wake: the topic looks by itself
	read(t, c, 6, 7)
}

// Commits are in order, but who tells of them is not: offers overtake each other, and every cursor still gets all.
func TestRacingOffersLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	const events, cursors = 1200, 12
	f.log.commit(task, 1)
	var reading sync.WaitGroup
	for i := range cursors {
		after := int64(i % 2)
		c := f.follow(task, after, 1)
		reading.Go(func() { read(t, c, after, events+1) })
	}
	jobs := make(chan []a2a.Entry, 8)
	var offering sync.WaitGroup
	for range 6 {
		offering.Go(func() {
			for entries := range jobs {
				f.committed(task, entries)
			}
		})
	}
	for n := 0; n < events; {
		size := min(1+rand.IntN(5), events-n)
		jobs <- f.log.commit(task, size)
		n += size
	}
	close(jobs)
	offering.Wait()
	reading.Wait()
	if n := f.PollHits(); n != 0 {
		t.Errorf("%d poll hits without a poll", n)
	}
}

// No wake and no offer ever comes: the poll finds everything, and says so.
func TestPollFindsEventsWithoutAWake(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2*time.Millisecond)
	tasks := []a2a.ID{store.NewTaskID(), store.NewTaskID(), store.NewTaskID()}
	var reading sync.WaitGroup
	for _, task := range tasks {
		f.log.commit(task, 1)
		for range 3 {
			c := f.follow(task, 1, 1)
			reading.Go(func() { read(t, c, 1, 500) })
		}
		receive(t, "first look", f.log.reading)
	}
	for n := 1; n < 500; n++ {
		for _, task := range tasks {
			f.log.commit(task, 1)
		}
	}
	reading.Wait()
	if n := f.PollHits(); n == 0 {
		t.Error("no poll hits")
	}
}

// A cursor that is slower than the kept events reads the log, and then joins the others again.
func TestSlowReaderReadsTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	f.log.commit(task, 1)
	slow, fast := f.follow(task, 1, 1), f.follow(task, 1, 1)
	for range 40 {
		f.committed(task, f.log.commit(task, 20))
	}
	read(t, fast, 1, 801)
	read(t, slow, 1, 401)
	f.committed(task, f.log.commit(task, 1))
	read(t, slow, 401, 802)
	read(t, fast, 801, 802)
	wantNothing(t, slow)
}

// Large events are not kept in large numbers, and none is lost for that.
func TestLargeEventsAreNotKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	f.log.commit(task, 1)
	c := f.follow(task, 1, 1)
	large := strings.Repeat("x", 400<<10)
	for range 10 {
		entries := f.log.commit(task, 2)
		for i := range entries {
			entries[i].Event = &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "a",
				Parts: []a2a.Part{{Kind: a2a.PartText, Text: large}}}}
		}
		f.committed(task, entries)
	}
	read(t, c, 1, 21)
}

// A cursor far from the head first reads the log by itself, page by page, and joins the others at the end.
func TestCursorCatchesUpWhileEventsArrive(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
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
	task := store.NewTaskID()
	f.log.commit(task, 2)
	ahead := f.follow(task, 4, 4) // it has seen events that this topic has not read
	f.committed(task, f.log.commit(task, 1))
	wantNothing(t, ahead)
	f.committed(task, f.log.commit(task, 2))
	read(t, ahead, 4, 5)
}

func TestCursorsOfALogShareItsItems(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	f.log.commit(task, 1)
	cursors := []*stream.Cursor{f.follow(task, 1, 1), f.follow(task, 1, 1), f.follow(task, 1, 1)}
	f.committed(task, f.log.commit(task, 1))
	encoded := 0
	for _, c := range cursors {
		it := read(t, c, 1, 2)[0]
		for range 2 {
			for slot := range stream.Encodings {
				got := it.Encoded(slot, func(e *a2a.Entry) []byte { encoded++; return []byte{byte(slot), byte(e.Seq)} })
				if string(got) != string([]byte{byte(slot), 2}) {
					t.Errorf("encoding %d = %v", slot, got)
				}
			}
		}
	}
	if encoded != stream.Encodings {
		t.Errorf("encoded %d times, want %d", encoded, stream.Encodings)
	}
}

// Ten streams that resume at one place read the log once.
func TestCursorsAtOnePositionShareARead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
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
	// Some may have come when the read was over. At no time were there more reads than theirs and that of the topic.
	if n := f.log.mostAtOnce(); n > 2 {
		t.Errorf("%d reads at once of one place", n)
	}
}

func TestCatchUpReadsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	gate := make(chan struct{})
	f.log.gate = gate
	var wg sync.WaitGroup
	for range 30 {
		task := store.NewTaskID()
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

func TestFollowNewReadsNothingBeforeTheFirstWake(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	c := f.FollowNew(task, "ctx")
	t.Cleanup(c.Close)
	f.log.commit(task, 1)
	f.committed(task, f.log.commit(task, 2))
	read(t, c, 1, 3)
	if n := f.log.readCount(); n != 0 {
		t.Errorf("%d reads of the log of a new task", n)
	}
	other := f.follow(task, 0, 3) // joins, and needs what was before
	read(t, other, 0, 3)
	f.log.commit(task, 1)
	f.hub.Wake(wake.Task(task))
	read(t, c, 3, 4)
	read(t, other, 3, 4)
}

// What is written while a look is on its way, which does not see it any more, is looked for
// again; and what comes when the look is over begins another one.
func TestEventsDuringAReadAreReadAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	f.log.commit(task, 1)
	hold := make(chan struct{})
	f.log.hold = hold
	c := f.follow(task, 1, 1)
	wake := func() { f.hub.Wake(wake.Task(task)) }
	receive(t, "the first look", hold)
	hold <- struct{}{}
	for last := int64(1); last < 20; last++ {
		wake()
		receive(t, "a look without the event", hold)
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

// The database is unreachable for a moment: waiting cursors get no error, and nothing is lost.
func TestReadsAreRetriedAfterErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	f.log.commit(task, 1)
	c := f.follow(task, 1, 1)
	receive(t, "first look", f.log.reading)
	f.log.mu.Lock()
	from := f.log.reads
	f.log.fail = func(n int) error {
		if n <= from+3 {
			return errors.New("away")
		}
		return nil
	}
	f.log.mu.Unlock()
	f.log.commit(task, 2)
	f.hub.Wake(wake.Task(task))
	read(t, c, 1, 3)
}

// A cursor that reads by itself gets the error, and may continue.
func TestErrorOfACatchUpReadIsReturned(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	f.log.commit(task, 300)
	away := errors.New("away")
	f.log.fail = func(n int) error {
		if n == 1 {
			return away
		}
		return nil
	}
	c := f.follow(task, 0, 300)
	if items, err := c.Next(f.ctx); !errors.Is(err, away) {
		t.Errorf("Next = %d events, %v, want %v", len(items), err, away)
	}
	read(t, c, 0, 300)
}

func TestNextEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	cause := errors.New("enough")
	waiting, behind := store.NewTaskID(), store.NewTaskID()
	f.log.commit(waiting, 1)
	f.log.commit(behind, 300)
	w, b := f.follow(waiting, 1, 1), f.follow(behind, 0, 300)
	receive(t, "first look", f.log.reading)
	gate := make(chan struct{})
	f.log.mu.Lock()
	f.log.gate = gate
	f.log.mu.Unlock()
	for name, c := range map[string]*stream.Cursor{"waits": w, "reads": b} {
		ctx, cancel := context.WithCancelCause(f.ctx)
		done := make(chan error, 1)
		go func() { _, err := c.Next(ctx); done <- err }()
		if name == "reads" {
			receive(t, "read", f.log.reading)
		}
		cancel(cause)
		if err := receive(t, "end", done); !errors.Is(err, cause) {
			t.Errorf("a cursor that %s: Next = %v, want the cause", name, err)
		}
	}
	close(gate)
	read(t, b, 0, 300) // nothing was lost by that
}

// A closed cursor takes no event from the others, and the last one ends the topic.
func TestCursorsComeAndGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	f.log.commit(task, 1)
	stay := f.follow(task, 1, 1)
	const events = 600
	var wg sync.WaitGroup
	wg.Go(func() { read(t, stay, 1, events+1) })
	for range 8 {
		wg.Go(func() {
			for after := int64(1); after < events; {
				c := f.Follow(task, "ctx", after, after)
				ctx, cancel := context.WithCancel(f.ctx)
				items, err := c.Next(ctx)
				if err != nil || items[0].Seq != after+1 {
					t.Errorf("Next after %d = %v, %v", after, items, err)
					after = events
				} else {
					after = items[len(items)-1].Seq
				}
				cancel()
				c.Close()
				c.Close() // twice is once
			}
		})
	}
	for range events {
		f.committed(task, f.log.commit(task, 1))
	}
	wg.Wait()
	stay.Close()
	if n := f.hub.Waiters(); n != 1 {
		t.Errorf("%d waiters, want only the follower's own", n)
	}
	if !f.Offer(task, nil) {
		t.Error("the topic is still there")
	}
}

func TestRunWaitsForOpenCursors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := stream.New(newMemory(), &notify.Hub{}, never, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		c := f.Follow(store.NewTaskID(), "ctx", 1, 1)
		go func() { done <- f.Run(ctx) }()
		cancel()
		synctest.Wait()
		if len(done) != 0 {
			t.Errorf("Run = %v while a cursor is open", <-done)
		}
		c.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// One real store, two followers: that of the replica that writes is handed its events, the other has only wakes or,
// without them, its poll.
func TestFollowersOfARealStore(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	near, far := &notify.Hub{}, &notify.Hub{}
	var nearFollower, farFollower *stream.Follower
	wakes := 0
	s, err := store.Open(t.Context(), store.Config{
		URL: db.URL, Replica: "r1", PoolSize: 8,
		Committed: func(task a2a.ID, events []a2a.Entry) {
			key := wake.Task(task)
			if !nearFollower.Offer(task, events) {
				near.Wake(key)
			}
			if wakes++; wakes%2 == 0 { // half of the wakes get lost on the way
				far.Wake(key)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	nearFollower = stream.New(s, near, never, slog.New(slog.DiscardHandler))
	farFollower = stream.New(s, far, 10*time.Millisecond, slog.New(slog.DiscardHandler))
	run(t, nearFollower)
	run(t, farFollower)

	caller := store.Caller{Tenant: "acme", Owner: "ann"}
	id := store.NewTaskID()
	first := nearFollower.FollowNew(id, "ctx")
	t.Cleanup(first.Close)
	_, err = s.Submit(t.Context(), store.Submission{Caller: caller, Agent: "a", NewTask: id, ContextID: "ctx",
		Message: a2a.Message{
			ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	const events = 150
	var wg sync.WaitGroup
	wg.Go(func() { read(t, first, 1, events+3) })
	for _, f := range []*stream.Follower{nearFollower, farFollower} {
		for range 4 {
			c := f.Follow(id, "ctx", 0, 1)
			t.Cleanup(c.Close)
			wg.Go(func() { read(t, c, 0, events+3) })
		}
	}
	leases, err := s.NewClaimer().Claim(t.Context(), "a", 1, time.Minute, 0)
	if err != nil || len(leases) != 1 {
		t.Fatalf("claim = %d leases, %v", len(leases), err)
	}
	l := &leases[0]
	for range events {
		if _, err := s.Append(t.Context(), l,
			store.Batch{Events: []a2a.Event{&a2a.ArtifactUpdate{Append: true,
				Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Append(t.Context(), l,
		store.Batch{Events: []a2a.Event{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}}}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	// Late comers get the same log, and what they are handed is what is stored.
	late := farFollower.Follow(id, "ctx", 0, events+3)
	t.Cleanup(late.Close)
	stored, err := s.EventsAfter(t.Context(), id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, it := range read(t, late, 0, events+3) {
		if it.UID != stored[i].UID || !it.Time.Equal(stored[i].Time) {
			t.Errorf("event %d is %s at %s, stored is %s at %s", it.Seq, it.UID, it.Time, stored[i].UID, stored[i].Time)
		}
	}
}

// The end of a removed task is removed with it. A cursor that has not read it must not wait.
func TestCursorOfARemovedTaskEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2*time.Millisecond)
	task := store.NewTaskID()
	f.log.commit(task, 2)
	c := f.follow(task, 0, 2)
	read(t, c, 0, 2)
	f.log.remove(task, 2)
	if items, err := c.Next(f.ctx); !errors.Is(err, stream.ErrGone) {
		t.Errorf("Next = %d events, %v, want ErrGone", len(items), err)
	}
}

// A task that is not made differs from a task that was removed.
func TestCursorWaitsForATaskToBeMade(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Millisecond)
	task := store.NewTaskID()
	c := f.FollowNew(task, "ctx")
	defer c.Close()
	var reading sync.WaitGroup
	reading.Go(func() { read(t, c, 1, 2) })
	for begin := f.log.pollCount(); f.log.pollCount() < begin+5; {
		runtime.Gosched()
	}
	f.committed(task, f.log.commit(task, 2))
	reading.Wait()

	// A task that is made and removed before a cursor reads it.
	c = f.FollowNew(store.NewTaskID(), "ctx")
	defer c.Close()
	c.Made()
	if items, err := c.Next(f.ctx); !errors.Is(err, stream.ErrGone) {
		t.Errorf("Next = %d events, %v, want ErrGone", len(items), err)
	}
}

// Retention may have removed the next events of a cursor, although it keeps the last event.
func TestCursorBeforeRemovedEventsEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	for name, after := range map[string]int64{"near": 290, "far behind": 1} {
		task := store.NewTaskID()
		f.log.commit(task, 290)
		c := f.follow(task, after, 290)
		f.log.commit(task, 10)
		f.log.remove(task, 299)
		f.committed(task, nil)
		if items, err := c.Next(f.ctx); !errors.Is(err, stream.ErrGone) {
			t.Errorf("%s: Next = %d events, %v, want ErrGone", name, len(items), err)
		}
	}
}

// When wakes may have been missed, one look at all followed tasks says which have news: those alone
// are read, a few at a time.
func TestMissedWakesCostOnePoll(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	const streams, news = 300, 20
	cursors := make([]*stream.Cursor, streams)
	for i := range cursors {
		task := store.NewTaskID()
		f.log.commit(task, 1)
		cursors[i] = f.follow(task, 1, 1)
		receive(t, "first look", f.log.reading)
		if i < news {
			f.log.commit(task, 2)
		}
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
		t.Errorf("%d poll hits, want none: it was known that wakes were missed", n)
	}
}

// A poll that fails after wake-ups were missed is repeated soon.
func TestFailedPollForMissedWakesIsRepeated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := store.NewTaskID()
	f.log.commit(task, 1)
	c := f.follow(task, 1, 1)
	receive(t, "first look", f.log.reading)
	f.log.mu.Lock()
	f.log.failPolls = 3
	f.log.mu.Unlock()
	f.log.commit(task, 1)
	f.hub.WakeAll()
	read(t, c, 1, 2)
}
