package tasks

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// A queue has lanes, and a claim reads them in order. An owner's first waiting tasks of an agent are in lane 0, the
// next ones in lane 1, and so on; each lane has room for more. So an owner with very many waiting tasks delays other
// owners only by the few tasks in its first lanes.
//
// While an owner has tasks in one lane, its new tasks go into no earlier lane, so they keep their order. One claim in
// turnEvery begins with another lane than the first, each lane in turn. So every lane is served within turnEvery *
// (lanes-1) claims, even if the lanes before it stay full.
const (
	lanes     = 4
	turnEvery = 8
)

// laneRoom is how many tasks of one owner each lane takes; the last one takes all.
var laneRoom = [lanes - 1]int{4, 28, 224}

// laneKey names what shares the room in a lane.
type laneKey struct{ agent, tenant, owner string }

// laner chooses the lane of each new task. It knows what this process has submitted, and when. A lane is claimed in
// order, so the first task of a lane tells which submissions still wait. With n replicas an owner has n times the room.
type laner struct {
	mu     sync.Mutex
	owners map[laneKey]*laneOwner // guarded by mu
	heads  map[string]*laneHeads  // guarded by mu
}

// laneOwner records when an owner submitted, by the local clock.
type laneOwner struct {
	rings [lanes - 1]ring
	last  [lanes]time.Time // the newest into each lane
}

// lane returns the last lane in which the owner has waiting tasks, or 0.
func (o *laneOwner) lane(h *laneHeads) int {
	for i := lanes - 1; i > 0; i-- {
		if o.last[i].After(h.at[i]) {
			return i
		}
	}
	return 0
}

// maxLaneOwners bounds the memory. Owners without waiting tasks are removed first.
const maxLaneOwners = 10_000

// ring holds the times of the newest submissions of an owner into one lane, by the local
// clock; the oldest one is next to be overwritten. It grows to the room of its lane.
type ring struct {
	times []time.Time
	next  int
}

func (r *ring) oldest(room int) time.Time {
	if len(r.times) < room {
		return time.Time{}
	}
	return r.times[r.next]
}

func (r *ring) add(t time.Time, room int) {
	if len(r.times) < room {
		r.times = append(r.times, t)
		return
	}
	r.times[r.next] = t
	r.next = (r.next + 1) % room
}

// laneHeads is the time up to which each lane of a queue has been claimed, by the local clock.
type laneHeads struct {
	at      [lanes]time.Time
	floors  floors
	polls   db.Polls
	polling bool // a submission is reading them
}

// headAge is how old a poll of the lanes may be when a lane seems to be full.
const headAge = 20 * time.Millisecond

// lane returns the lane of a new task.
func (s *Store) lane(ctx context.Context, key laneKey) int16 {
	if lane, ok := s.laner.choose(key, false); ok {
		return lane
	}
	s.laner.poll(ctx, s, key.agent)
	lane, _ := s.laner.choose(key, true)
	return lane
}

// choose returns the first lane with room that is not before a lane in which the owner has waiting tasks. If that is
// not lane 0 and the last poll of the queue is old, it returns false, unless must is set: then the caller polls, while
// other submissions use what is known.
func (l *laner) choose(key laneKey, must bool) (lane int16, ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	heads := l.heads[key.agent]
	if heads == nil {
		heads = &laneHeads{}
		l.heads[key.agent] = heads
	}
	o := l.owners[key]
	if o == nil {
		l.forget()
		o = &laneOwner{}
		l.owners[key] = o
	}
	i := o.lane(heads)
	for ; i < lanes-1; i++ {
		if t := o.rings[i].oldest(laneRoom[i]); t.IsZero() || !t.After(heads.at[i]) {
			break
		}
	}
	if i > 0 && !must && !heads.polling && heads.polls.Due(now) {
		heads.polling = true
		return 0, false
	}
	if i < lanes-1 {
		o.rings[i].add(now, laneRoom[i])
	}
	o.last[i] = now
	return int16(i), true
}

// forget makes room for one more owner. The caller holds mu.
func (l *laner) forget() {
	if len(l.owners) < maxLaneOwners {
		return
	}
	for key, o := range l.owners {
		if h := l.heads[key.agent]; o.lane(h) == 0 && !o.last[0].After(h.at[0]) {
			delete(l.owners, key)
		}
	}
	for key := range l.owners {
		if len(l.owners) < maxLaneOwners*9/10 { // remove several at once, so that the next owners need no search
			return
		}
		delete(l.owners, key)
	}
}

// poll reads how far the lanes of a queue have been claimed. If that fails, submissions use what was known: a task in
// the wrong lane is claimed all the same. For the same reason it never reads rows that are older than its floors
// because they were committed late.
func (l *laner) poll(ctx context.Context, s *Store, agent string) {
	begin := time.Now()
	l.mu.Lock()
	heads := l.heads[agent]
	known := heads.floors
	l.mu.Unlock()
	rows, err := dbsqlc.New(s.db.Work()).LaneHeads(ctx, known.above(agent))
	if err != nil && ctx.Err() == nil {
		s.db.Logger().WarnContext(ctx, "look at the lanes", "agent", agent, "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	heads.polling = false
	heads.polls.Polled(begin, headAge, err)
	heads.floors.set(rows, db.FloorMargin)
	for _, r := range rows {
		heads.at[r.Lane] = begin.Add(-time.Duration(r.WaitedMs)*time.Millisecond - time.Millisecond)
	}
}
