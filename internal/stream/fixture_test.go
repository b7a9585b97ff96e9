package stream_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// memory is a log that can fail and block on demand.
type memory struct {
	mu        sync.Mutex
	entries   map[a2a.ID][]a2a.Entry // guarded by mu
	reads     int                    // guarded by mu
	tasks     []a2a.ID               // guarded by mu; of the reads since begun
	polls     int                    // guarded by mu
	atOnce    int                    // guarded by mu; reads in progress
	most      int                    // guarded by mu; most reads in progress at once
	fail      func(n int) error      // guarded by mu; asked before the nth read
	failPolls int                    // guarded by mu; polls that are yet to fail
	gate      chan struct{}          // guarded by mu; a read waits for it, if not nil
	rest      *sync.Cond             // of mu; a read has read
	reading   chan struct{}          // a read has begun; large enough for all
	hold      chan struct{}          // guarded by mu; a read waits for it before it returns, if not nil
}

func newMemory() *memory {
	m := &memory{entries: make(map[a2a.ID][]a2a.Entry), reading: make(chan struct{}, 100_000)}
	m.rest = sync.NewCond(&m.mu)
	return m
}

// awaitReads waits until all reads that have begun have read.
func (m *memory) awaitReads() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.atOnce > 0 {
		m.rest.Wait()
	}
}

func (m *memory) EventPage(ctx context.Context, task a2a.ID, after int64, most int, limit int64) (page []a2a.Entry,
	more bool, err error) {
	m.mu.Lock()
	m.reads++
	m.tasks = append(m.tasks, task)
	m.atOnce++
	m.most = max(m.most, m.atOnce)
	n, gate := m.reads, m.gate
	if m.fail != nil {
		err = m.fail(n)
	}
	m.mu.Unlock()
	m.reading <- struct{}{}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	m.mu.Lock()
	m.atOnce--
	m.rest.Broadcast()
	log := m.entries[task]
	from := 0
	for from < len(log) && log[from].Seq <= after {
		from++
	}
	to, size := from, int64(0)
	for to < min(from+most, len(log)) {
		it := stream.Item{Entry: log[to]}
		if size += int64(it.Size()); size > limit && to > from {
			break
		}
		to++
	}
	entries := slices.Clone(log[from:to])
	more = len(entries) == most || to < len(log)
	hold := m.hold
	m.mu.Unlock()
	if err != nil {
		return nil, false, err
	}
	if hold != nil {
		hold <- struct{}{} // the result of the read is fixed by now
		<-hold
	}
	return entries, more, nil
}

func (m *memory) Ahead(_ context.Context, ids []a2a.ID, seen []int64) (ahead, gone []a2a.ID, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.polls++
	if m.failPolls > 0 {
		m.failPolls--
		return nil, nil, errors.New("unreachable")
	}
	for i, id := range ids {
		switch log := m.entries[id]; {
		case len(log) == 0:
			gone = append(gone, id)
		case log[len(log)-1].Seq > seen[i]:
			ahead = append(ahead, id)
		}
	}
	return ahead, gone, nil
}

// commit adds n events to a log and returns them.
func (m *memory) commit(task a2a.ID, n int) []a2a.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	log := m.entries[task]
	from := len(log)
	for range n {
		log = append(log, a2a.Entry{TaskID: task, Seq: int64(len(log) + 1), UID: db.NewUID(),
			Event: &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}}})
	}
	m.entries[task] = log
	return slices.Clone(log[from:])
}

// remove removes the events up to seq.
func (m *memory) remove(task a2a.ID, seq int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries[task] = slices.DeleteFunc(m.entries[task], func(e a2a.Entry) bool { return e.Seq <= seq })
}

func (m *memory) pollCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.polls
}

// begun returns the tasks that were read since its last call, in the order in which the reads began.
func (m *memory) begun() []a2a.ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.tasks
	m.tasks = nil
	return list
}

func (m *memory) readCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads
}

func (m *memory) mostAtOnce() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most
}

// fixture is a running follower of a log in memory.
type fixture struct {
	*stream.Follower
	t   testing.TB
	log *memory
	hub *notify.Hub
}

const never = time.Hour

func newFixture(t testing.TB, poll time.Duration) *fixture {
	t.Helper()
	f := &fixture{t: t, log: newMemory(), hub: &notify.Hub{}}
	f.Follower = stream.New(f.log, f.hub, poll, slog.New(slog.DiscardHandler))
	run(t, f.Follower)
	return f
}

// run lets a follower poll until the test ends. An open cursor would keep it from ending.
func run(t testing.TB, f *stream.Follower) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// committed does what a replica does after a commit.
func (f *fixture) committed(task a2a.ID, entries []a2a.Entry) {
	if !f.Offer(task, entries) {
		f.hub.Wake(wake.Task(task))
	}
}

// follow opens a cursor that is closed when the test ends.
func (f *fixture) follow(task a2a.ID, after, head int64) *stream.Cursor {
	f.t.Helper()
	c := f.Follow(task, "ctx", after, head)
	f.t.Cleanup(c.Close)
	return c
}

// read reads events from a cursor until seq, and fails if any is missing, doubled or out of order.
func read(t testing.TB, c *stream.Cursor, after, until int64) []*stream.Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var all []*stream.Item
	for after < until {
		items, err := c.Next(ctx)
		if err != nil {
			t.Errorf("Next after %d: %v", after, err)
			return all
		}
		for _, it := range items {
			if it.Seq != after+1 {
				t.Errorf("event %d came after %d", it.Seq, after)
				return all
			}
			after = it.Seq
		}
		all = append(all, items...)
	}
	return all
}

// wantNothing fails if the cursor has something to read now.
func wantNothing(t testing.TB, c *stream.Cursor) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if items, err := c.Next(ctx); err == nil {
		t.Errorf("Next = %d events from %d, want none", len(items), items[0].Seq)
	}
}

func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(5 * time.Minute):
		t.Fatalf("%s: timed out", what)
		panic("unreachable")
	}
}
