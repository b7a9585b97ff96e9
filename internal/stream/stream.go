// Package stream follows the logs of tasks: for an SSE stream, a resumed one, a blocking
// send, or any other reader of "what comes after event n".
//
// A Cursor gets every event behind its start once and in order, whatever is lost on the
// way: a wake only says that it is time to look, the log has the events, and every log
// that is followed is also polled. A cursor that waits holds no database connection, and
// readers pull at their own pace, so that a slow one holds up nobody.
package stream

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/wake"
)

// Log is where events are kept.
type Log interface {
	// EventPage returns up to most events behind seq after, in order, and no more of them than limit
	// bytes, but one. more says that there may be further ones.
	EventPage(ctx context.Context, task a2a.ID, after int64, most int, limit int64) (page []a2a.Entry, more bool, err error)
	// Ahead returns those tasks that have events behind the given seqs, and those that there are not.
	Ahead(ctx context.Context, ids []a2a.ID, seen []int64) (ahead, gone []a2a.ID, err error)
}

// ErrGone ends cursors whose task was removed, or of whose log what comes next was, before they had read it.
var ErrGone = a2a.Errorf(a2a.CodeTaskNotFound, "the task, or the rest of its log, was removed")

// Hub tells when to look: it calls wake whenever key was woken, until stop. wake does not block.
// Where wakes may have been missed, those of any key, it calls the wake of Watch but not that of
// WatchKey.
type Hub interface {
	Watch(key string, wake func()) (stop func())
	WatchKey(key string, wake func()) (stop func())
}

// keyAll is a key that is never woken by name: it stands for all followed tasks.
const keyAll = "tasks"

// Item is one event of a log. It is shared by all who follow the log: do not change it.
type Item struct {
	a2a.Entry
	encoded [Encodings]atomic.Pointer[[]byte]
}

// Size is about how many bytes the event has.
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

// Encoded returns the event's bytes in one encoding, which it makes the first time only.
func (it *Item) Encoded(slot int, encode func(*a2a.Entry) []byte) []byte {
	if b := it.encoded[slot].Load(); b != nil {
		return *b
	}
	b := encode(&it.Entry)
	it.encoded[slot].Store(&b)
	return b
}

// Sizes of what is kept and read at once.
const (
	ringItems    = 64      // newest events kept per log that is followed
	ringBytes    = 1 << 20 // and about how much of them
	pageSize     = 200     // events per read
	pageBytes    = 1 << 20 // and about how much of them, but one
	leastRing    = 4 << 10 // what a log keeps where all together keep too much
	catchUpReads = 8       // reads at once of cursors that are behind
	topicReads   = 4       // reads at once of the news of followed tasks
)

// Follower follows any number of logs for one process. Use New.
type Follower struct {
	log    Log
	hub    Hub
	poll   time.Duration
	logger *slog.Logger

	reads   *semaphore.Weighted // of cursors that are behind
	looks   *semaphore.Weighted // of topics
	missed  chan struct{}       // has a token when wakes may have been missed; room for one
	flights singleflight.Group
	hits    atomic.Int64

	rings     atomic.Int64 // bytes that topics keep
	ringsMost atomic.Int64 // of them; 0: any number

	mu     sync.Mutex
	topics map[a2a.ID]*topic // guarded by mu
	wg     sync.WaitGroup    // of topics and of their goroutines; the first Add is under mu
}

// New returns a Follower that polls every interval besides listening to hub.
func New(log Log, hub Hub, poll time.Duration, logger *slog.Logger) *Follower {
	f := &Follower{
		log: log, hub: hub, poll: poll, logger: logger,
		reads: semaphore.NewWeighted(catchUpReads), looks: semaphore.NewWeighted(topicReads),
		missed: make(chan struct{}, 1), topics: make(map[a2a.ID]*topic),
	}
	hub.Watch(keyAll, f.miss) // for as long as there is the hub
	return f
}

// KeepAtMost bounds how many bytes of events are kept for all logs together, so that those who follow
// need not read them. Each log may keep a little in any case.
func (f *Follower) KeepAtMost(bytes int64) { f.ringsMost.Store(bytes) }

// Kept returns how many bytes of events are kept now.
func (f *Follower) Kept() int64 { return f.rings.Load() }

// PollHits returns how often the poll found events that no wake had told of: about none in health.
func (f *Follower) PollHits() int64 { return f.hits.Load() }

// Run polls all followed logs with one query per interval, and at once when wakes may have been
// missed, until ctx is done. It returns when no cursor is left open.
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
		case missed: // it is still to be found
			failures++
			wait = min(wait, retryPolicy.Delay(failures, nil))
		}
		timer.Reset(wait)
	}
}

// miss has all followed tasks looked for at once.
func (f *Follower) miss() {
	select {
	case f.missed <- struct{}{}:
	default:
	}
}

// pollAll looks for news of all followed tasks, and reports whether it could. Expected news, after
// wakes may have been missed, does not count as a hit.
func (f *Follower) pollAll(ctx context.Context, expected bool) (ok bool) {
	f.mu.Lock()
	ids, seen := make([]a2a.ID, 0, len(f.topics)), make([]int64, 0, len(f.topics))
	made := make([]*topic, 0, len(f.topics)) // nil: the poll may miss the task because it comes before it
	for id, t := range f.topics {
		tail, is := t.known()
		ids, seen = append(ids, id), append(seen, tail)
		if !is {
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
		f.logger.WarnContext(ctx, "poll of followed tasks", "err", err)
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ahead {
		if t := f.topics[id]; t != nil {
			if !expected {
				f.hits.Add(1)
			}
			t.look()
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
			made[i].vanish()
		}
	}
	return true
}

// Offer hands over events that this process has just committed, so that cursors here need
// not read them. It reports whether no cursor here needs to look for them: there is none, or
// it has them now.
func (f *Follower) Offer(task a2a.ID, entries []a2a.Entry) bool {
	f.mu.Lock()
	t := f.topics[task]
	f.mu.Unlock()
	return t == nil || t.offer(entries)
}

// Follow returns a cursor behind seq after. contextID is that of the task, to be put into
// its events. head is the newest seq the caller knows of: a cursor far behind it reads the
// log by itself first. The cursor must be closed.
func (f *Follower) Follow(task a2a.ID, contextID string, after, head int64) *Cursor {
	c := &Cursor{f: f, task: task, contextID: contextID, after: after}
	if head-after <= ringItems {
		c.topic = f.join(task, contextID, after, false)
	}
	return c
}

// FollowNew is Follow for a task that is about to be made, behind its first event: nothing
// needs to be read before the first wake. Made says that it is.
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
		f.wg.Add(1) // until it has been left
		// Wakes come before the first look, and before a task is made that is not looked for:
		// nothing falls between.
		t.unwatch = f.hub.WatchKey(wake.Task(task), t.look)
		if !fresh {
			t.look()
		}
	}
	t.refs++
	return t
}

func (f *Follower) leave(t *topic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.refs--; t.refs == 0 {
		delete(f.topics, t.task)
		t.leave()
		f.wg.Done()
	}
}

// Cursor is one reader of one log. It is not safe for concurrent use.
type Cursor struct {
	f         *Follower
	task      a2a.ID
	contextID string
	after     int64
	topic     *topic // nil while the cursor is far behind
}

// Made tells the cursor that its task has been made: from then on it can be gone.
func (c *Cursor) Made() {
	if c.topic != nil {
		c.topic.exists()
	}
}

// Close ends the cursor.
func (c *Cursor) Close() {
	if c.topic != nil {
		c.f.leave(c.topic)
		c.topic = nil
	}
}

// Next returns the next events, at least one, or waits for them until ctx is done. Its error
// is that of ctx, of a read of a cursor that is behind, or ErrGone.
func (c *Cursor) Next(ctx context.Context) ([]*Item, error) {
	for {
		if c.topic == nil {
			items, more, err := c.f.read(ctx, c.task, c.contextID, c.after)
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
		items, behind, gone, changed := c.topic.after(c.after)
		if len(items) > 0 {
			c.after = items[len(items)-1].Seq
			return items, nil
		}
		if behind {
			items, _, err := c.f.read(ctx, c.task, c.contextID, c.after)
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

// read reads a page for a cursor that is behind; cursors at one place share the read.
func (f *Follower) read(ctx context.Context, task a2a.ID, contextID string, after int64) (items []*Item, more bool, err error) {
	res := f.flights.DoChan(string(task[:])+strconv.FormatInt(after, 10), func() (any, error) {
		// The read serves all that wait for it, so it does not end with one of them.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		if err := f.reads.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		defer f.reads.Release(1)
		entries, more, err := f.log.EventPage(ctx, task, after, pageSize, pageBytes)
		if err == nil && len(entries) > 0 && entries[0].Seq > after+1 {
			err = ErrGone
		}
		return page{newItems(entries, contextID), more}, err
	})
	select {
	case r := <-res:
		if r.Err != nil {
			return nil, false, r.Err
		}
		p := r.Val.(page)
		return p.items, p.more, nil
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
}

// page is what one read has found.
type page struct {
	items []*Item
	more  bool // there may be further ones
}

const readTimeout = 30 * time.Second

func newItems(entries []a2a.Entry, contextID string) []*Item {
	items := make([]*Item, len(entries))
	for i := range entries {
		items[i] = &Item{Entry: entries[i]}
		items[i].ContextID = contextID
	}
	return items
}
