package stream_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestCursorGetsEveryEventOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
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
	task := db.NewTaskID()
	first := f.log.commit(task, 3)
	if !f.Offer(task, first) {
		t.Error("Offer = false without followers")
	}
	c := f.follow(task, 3, 3)
	// The topic has read up to 3 before it can be offered 4.
	receive(t, "the first read", f.log.reading)
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
	f.committed(task, nil) // a wake-up: the topic reads by itself
	read(t, c, 6, 7)
}

// TestRacingOffersLoseAndDoubleNothing: commits are in order, but their offers overtake each other.
// Every cursor still gets every event once.
func TestRacingOffersLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
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

// TestPollFindsEventsWithoutAWake: without any wake-up or offer, the poll finds everything and
// counts it.
func TestPollFindsEventsWithoutAWake(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2*time.Millisecond)
	taskList := []a2a.ID{db.NewTaskID(), db.NewTaskID(), db.NewTaskID()}
	var reading sync.WaitGroup
	for _, task := range taskList {
		f.log.commit(task, 1)
		for range 3 {
			c := f.follow(task, 1, 1)
			reading.Go(func() { read(t, c, 1, 500) })
		}
		receive(t, "the first read", f.log.reading)
	}
	for n := 1; n < 500; n++ {
		for _, task := range taskList {
			f.log.commit(task, 1)
		}
	}
	reading.Wait()
	if n := f.PollHits(); n == 0 {
		t.Error("no poll hits")
	}
}

// TestSlowReaderReadsTheLog: a cursor that is slower than the kept events reads the log, and then
// joins the others again.
func TestSlowReaderReadsTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
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

// TestLargeEventsAreNotKept: few large events are kept, and none is lost.
func TestLargeEventsAreNotKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
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

func TestCursorsOfALogShareItsItems(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
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

func TestFollowNewReadsNothingBeforeTheFirstWake(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
	c := f.FollowNew(task, "ctx")
	t.Cleanup(c.Close)
	f.log.commit(task, 1)
	f.committed(task, f.log.commit(task, 2))
	read(t, c, 1, 3)
	if n := f.log.readCount(); n != 0 {
		t.Errorf("%d reads of the log of a new task", n)
	}
	other := f.follow(task, 0, 3) // joins, and needs the events before
	read(t, other, 0, 3)
	f.log.commit(task, 1)
	f.hub.Wake(wake.Task(task))
	read(t, c, 3, 4)
	read(t, other, 3, 4)
}

func TestNextEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	cause := errors.New("enough")
	waiting, behind := db.NewTaskID(), db.NewTaskID()
	f.log.commit(waiting, 1)
	f.log.commit(behind, 300)
	w, b := f.follow(waiting, 1, 1), f.follow(behind, 0, 300)
	receive(t, "the first read", f.log.reading)
	gate := make(chan struct{})
	f.log.mu.Lock()
	f.log.gate = gate
	f.log.mu.Unlock()
	for name, c := range map[string]*stream.Cursor{"waits": w, "reads": b} {
		ctx, cancel := context.WithCancelCause(t.Context())
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
	read(t, b, 0, 300) // the cursor lost nothing
}

// TestCursorsComeAndGo: a closed cursor takes no event from the others. The last one ends the
// topic.
func TestCursorsComeAndGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, never)
	task := db.NewTaskID()
	f.log.commit(task, 1)
	stay := f.follow(task, 1, 1)
	const events = 600
	var wg sync.WaitGroup
	wg.Go(func() { read(t, stay, 1, events+1) })
	for range 8 {
		wg.Go(func() {
			for after := int64(1); after < events; {
				c := f.Follow(task, "ctx", after, after)
				ctx, cancel := context.WithCancel(t.Context())
				items, err := c.Next(ctx)
				if err != nil || items[0].Seq != after+1 {
					t.Errorf("Next after %d = %v, %v", after, items, err)
					after = events
				} else {
					after = items[len(items)-1].Seq
				}
				cancel()
				c.Close()
				c.Close() // the second Close has no effect
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
		c := f.Follow(db.NewTaskID(), "ctx", 1, 1)
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

// TestFollowersOfARealStore: one store has two followers. The replica that writes offers its events
// to the first one. The other one only gets wake-ups or, without them, polls.
func TestFollowersOfARealStore(t *testing.T) {
	t.Parallel()
	pg := storetest.New(t)
	near, far := &notify.Hub{}, &notify.Hub{}
	var nearFollower, farFollower *stream.Follower
	wakes := 0
	s, err := store.Open(t.Context(), store.Config{
		Config: db.Config{URL: pg.URL, Replica: "r1", PoolSize: 8},
		Committed: func(task a2a.ID, events []a2a.Entry) {
			key := wake.Task(task)
			if !nearFollower.Offer(task, events) {
				near.Wake(key)
			}
			if wakes++; wakes%2 == 0 { // half of the wake-ups are lost
				far.Wake(key)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	nearFollower = stream.New(s.Tasks, near, never, slog.New(slog.DiscardHandler))
	farFollower = stream.New(s.Tasks, far, 10*time.Millisecond, slog.New(slog.DiscardHandler))
	run(t, nearFollower)
	run(t, farFollower)

	caller := db.Caller{Tenant: "acme", Owner: "ann"}
	id := db.NewTaskID()
	first := nearFollower.FollowNew(id, "ctx")
	t.Cleanup(first.Close)
	_, err = s.Tasks.Submit(t.Context(), tasks.Submission{Caller: caller, Agent: "a", NewTask: id, ContextID: "ctx",
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
	leases, err := s.Tasks.NewClaimer().Claim(t.Context(), "a", 1, time.Minute, 0)
	if err != nil || len(leases) != 1 {
		t.Fatalf("claim = %d leases, %v", len(leases), err)
	}
	l := &leases[0]
	for range events {
		if _, err := s.Tasks.Append(t.Context(), l,
			tasks.Batch{Events: []a2a.Event{&a2a.ArtifactUpdate{Append: true,
				Artifact: a2a.Artifact{ID: "a", Parts: []a2a.Part{{Kind: a2a.PartText, Text: "x"}}}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Tasks.Append(t.Context(), l,
		tasks.Batch{Events: []a2a.Event{
			&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}}}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	// Later cursors get the same log, and the offered events equal the stored ones.
	late := farFollower.Follow(id, "ctx", 0, events+3)
	t.Cleanup(late.Close)
	stored, err := s.Tasks.EventsAfter(t.Context(), id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, it := range read(t, late, 0, events+3) {
		if it.UID != stored[i].UID || !it.Time.Equal(stored[i].Time) {
			t.Errorf("event %d is %s at %s, stored is %s at %s", it.Seq, it.UID, it.Time, stored[i].UID, stored[i].Time)
		}
	}
}
