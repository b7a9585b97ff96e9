// Package stream follows the logs of tasks: for an SSE stream, a resumed stream, a blocking send, or any other reader
// of the events after event n.
//
// A Cursor gets every event after its start once and in order, even if wake-ups are lost: a wake-up only says that it
// is time to read, the events are in the log, and every followed log is also polled. A waiting cursor has no database
// connection. Readers pull at their own pace, so a slow one delays no other.
package stream

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/wake"
)

// Log has the events.
type Log interface {
	// EventPage returns up to most events after seq after, in order, and at most limit bytes of them, but at least one
	// event. more says that there may be further ones.
	EventPage(
		ctx context.Context, task a2a.ID, after int64, most int, limit int64,
	) (page []a2a.Entry, more bool, err error)
	// Ahead returns the tasks that have events after the given seqs, and the tasks that do not exist.
	Ahead(ctx context.Context, ids []a2a.ID, seen []int64) (ahead, gone []a2a.ID, err error)
}

// ErrGone ends cursors whose task was removed, or the part of its log that they had not read.
var ErrGone = a2a.Errorf(a2a.CodeTaskNotFound, "the task, or the rest of its log, was removed")

// Hub delivers wake-ups: it calls wake whenever key was woken, until stop. wake does not block. When wake-ups of any
// key may have been missed, it calls the functions of Watch and not the ones of WatchKey.
type Hub interface {
	Watch(key string, wake func()) (stop func())
	WatchKey(key string, wake func()) (stop func())
}

// keyAll is a key that is never woken by name: it is only woken when wake-ups may have been missed.
const keyAll = "tasks"

// Item is one event of a log. All followers of the log share it: do not change it.
type Item struct {
	a2a.Entry
	encoded [Encodings]atomic.Pointer[[]byte]
}

// Size returns the approximate size of the event in bytes.
func (it *Item) Size() int {
	var parts []a2a.Part
	switch e := it.Event.(type) {
	case *a2a.ArtifactUpdate:
		parts = e.Artifact.Parts
	case *a2a.StatusUpdate:
		if e.Status.Message != nil {
			parts = e.Status.Message.Parts
		}
	case *a2a.Message:
		parts = e.Parts
	}
	n := 256
	for i := range parts {
		n += len(parts[i].Text) + len(parts[i].Data) + len(parts[i].Metadata)
	}
	return n
}

// Encodings is how many encodings of an event an Item can keep.
const Encodings = 12

// Encoded returns the event's bytes in one encoding, which it only makes the first time.
func (it *Item) Encoded(slot int, encode func(*a2a.Entry) []byte) []byte {
	if b := it.encoded[slot].Load(); b != nil {
		return *b
	}
	b := encode(&it.Entry)
	it.encoded[slot].Store(&b)
	return b
}

// Limits of what is kept, and read at once.
const (
	ringItems    = 64      // newest events kept of each followed log
	ringBytes    = 1 << 20 // and their approximate size
	pageSize     = 200     // events per read
	pageBytes    = 1 << 20 // and their approximate size; at least one event
	leastRing    = 4 << 10 // bytes kept of each log while all logs together keep too much
	catchUpReads = 8       // reads at once, of cursors that are not at the tail
	topicReads   = 4       // reads at once, of new events of followed tasks
)

// Follower follows any number of logs for one process. Use New.
type Follower struct {
	log    Log
	hub    Hub
	poll   time.Duration
	logger *slog.Logger

	reads   *semaphore.Weighted // of cursors that are not at the tail
	topical *semaphore.Weighted // reads of topics
	missed  chan struct{}       // capacity 1; has a token when wake-ups may have been missed
	hits    atomic.Int64

	rings     atomic.Int64 // bytes that topics keep
	ringsMost atomic.Int64 // limit of rings; 0: none

	mu      sync.Mutex
	topics  map[a2a.ID]*topic // guarded by mu
	flights map[spot]*flight  // guarded by mu; reads of cursors that are not at the tail
	wg      sync.WaitGroup    // of topics and of their goroutines; the first Add is under mu
}

// New returns a Follower that listens to hub and also polls every interval.
func New(log Log, hub Hub, poll time.Duration, logger *slog.Logger) *Follower {
	f := &Follower{
		log: log, hub: hub, poll: poll, logger: logger,
		reads: semaphore.NewWeighted(catchUpReads), topical: semaphore.NewWeighted(topicReads),
		missed: make(chan struct{}, 1), topics: make(map[a2a.ID]*topic), flights: make(map[spot]*flight),
	}
	hub.Watch(keyAll, f.miss) // as long as the hub exists
	return f
}

// KeepAtMost bounds the bytes of events that are kept in memory for the followers of all logs. Each log may keep a
// little in any case.
func (f *Follower) KeepAtMost(bytes int64) { f.ringsMost.Store(bytes) }

// Kept returns how many bytes of events are kept now.
func (f *Follower) Kept() int64 { return f.rings.Load() }

// PollHits returns how often the poll found events without a wake-up: about never in a healthy system.
func (f *Follower) PollHits() int64 { return f.hits.Load() }

// Run polls all followed logs with one query per interval until ctx is done, and immediately when wake-ups may have
// been missed. It returns when all cursors are closed.
func (f *Follower) Run(ctx context.Context) error {
	timer := time.NewTimer(f.poll)
	defer timer.Stop()
	missed := false
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			f.wg.Wait()
			return nil
		case <-timer.C:
		case <-f.missed:
			missed, failures = true, 0
		}
		wait := backoff.Jitter(f.poll, nil)
		switch ok := f.pollAll(ctx, missed); {
		case ok:
			missed = false
		case missed: // try again soon
			failures++
			wait = min(wait, retryPolicy.Delay(failures, nil))
		}
		timer.Reset(wait)
	}
}

// miss makes Run poll now.
func (f *Follower) miss() {
	select {
	case f.missed <- struct{}{}:
	default:
	}
}

// pollAll polls for new events of all followed tasks, and reports whether it succeeded. Expected events, after
// wake-ups may have been missed, do not count as a hit.
func (f *Follower) pollAll(ctx context.Context, expected bool) (ok bool) {
	f.mu.Lock()
	ids, seen := make([]a2a.ID, 0, len(f.topics)), make([]int64, 0, len(f.topics))
	made := make([]*topic, 0, len(f.topics)) // nil: the task may not be made yet, so it cannot be gone
	for id, t := range f.topics {
		tail, isMade := t.known()
		ids, seen = append(ids, id), append(seen, tail)
		if !isMade {
			t = nil
		}
		made = append(made, t)
	}
	f.mu.Unlock()
	if len(ids) == 0 {
		return true
	}
	ahead, gone, err := f.log.Ahead(ctx, ids, seen)
	if err != nil {
		f.logger.WarnContext(ctx, "poll followed tasks", "err", err)
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ahead {
		if t := f.topics[id]; t != nil {
			if !expected {
				f.hits.Add(1)
			}
			t.wake()
		}
	}
	if len(gone) == 0 {
		return true
	}
	lost := make(map[a2a.ID]bool, len(gone))
	for _, id := range gone {
		lost[id] = true
	}
	for i, id := range ids {
		if made[i] != nil && lost[id] {
			made[i].markGone()
		}
	}
	return true
}

// Offer hands over events that this process has just committed, so that its cursors need not read them. It reports
// whether no cursor of this process must read them: there is none, or it has them now.
func (f *Follower) Offer(task a2a.ID, entries []a2a.Entry) bool {
	f.mu.Lock()
	t := f.topics[task]
	f.mu.Unlock()
	return t == nil || t.offer(entries)
}

// Follow returns a cursor for the events after seq after. contextID is the task's, which is put into its events. head
// is the newest seq that the caller knows: a cursor that starts long before it first reads the log by itself. The
// cursor must be closed.
func (f *Follower) Follow(task a2a.ID, contextID string, after, head int64) *Cursor {
	c := &Cursor{f: f, task: task, contextID: contextID, after: after}
	if head-after <= ringItems {
		c.topic = f.join(task, contextID, after, false)
	}
	return c
}

// FollowNew is Follow for a task that is about to be made, for the events after its first one: nothing needs to be read
// before the first wake-up. The caller calls Made when the task is made.
func (f *Follower) FollowNew(task a2a.ID, contextID string) *Cursor {
	return &Cursor{f: f, task: task, contextID: contextID, after: 1, topic: f.join(task, contextID, 1, true)}
}

func (f *Follower) join(task a2a.ID, contextID string, after int64, fresh bool) *topic {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topics[task]
	if t == nil {
		t = newTopic(f, task, contextID, after, !fresh)
		f.topics[task] = t
		f.wg.Add(1) // until the last cursor is closed
		// The subscription comes before the first read, or before the task is made, so that no event is missed.
		t.unwatch = f.hub.WatchKey(wake.Task(task), t.wake)
		if !fresh {
			t.wake()
		}
	}
	t.refs++
	return t
}

func (f *Follower) release(t *topic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.refs--; t.refs == 0 {
		delete(f.topics, t.task)
		t.close()
		f.wg.Done()
	}
}

// Cursor is one reader of one log. It is not safe for concurrent use.
type Cursor struct {
	f         *Follower
	task      a2a.ID
	contextID string
	after     int64
	topic     *topic  // nil while the cursor is far from the tail
	flight    *flight // the read that it waits for, or nil
}

// Made says that the task has been made: from now on it can be gone.
func (c *Cursor) Made() {
	if c.topic != nil {
		c.topic.markMade()
	}
}

// Close ends the cursor.
func (c *Cursor) Close() {
	c.bail()
	if c.topic != nil {
		c.f.release(c.topic)
		c.topic = nil
	}
}

// Next returns the next events, at least one, or waits for them until ctx is done. Its error is the cause of ctx, the
// error of a read, or ErrGone.
func (c *Cursor) Next(ctx context.Context) ([]*Item, error) {
	for {
		if c.topic == nil {
			items, more, err := c.read(ctx)
			if err != nil {
				return nil, err
			}
			if !more {
				c.topic = c.f.join(c.task, c.contextID, c.after+int64(len(items)), false)
			}
			if len(items) > 0 {
				c.after += int64(len(items))
				return items, nil
			}
		}
		items, mustRead, gone, changed := c.topic.after(c.after)
		if len(items) > 0 {
			c.after = items[len(items)-1].Seq
			return items, nil
		}
		if mustRead {
			items, _, err := c.read(ctx)
			if err != nil {
				return nil, err
			}
			if len(items) > 0 {
				c.after = items[len(items)-1].Seq
				return items, nil
			}
		}
		if gone {
			return nil, ErrGone
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func newItems(entries []a2a.Entry, contextID string) []*Item {
	items := make([]*Item, len(entries))
	for i := range entries {
		items[i] = &Item{Entry: entries[i]}
		items[i].ContextID = contextID
	}
	return items
}
