package tasks

import (
	"fmt"
	"runtime"
	"time"
)

// PollDone makes a claimer one that has just polled its queues from the start: its next claims begin at the floors.
func PollDone(c *Claimer) { setPoll(c, time.Now().Add(time.Hour)) }

// PollDue makes the next claim poll its queue from the start.
func PollDue(c *Claimer) { setPoll(c, time.Time{}) }

func setPoll(c *Claimer, at time.Time) {
	for _, pos := range c.queues {
		pos.polls.Next = at
	}
}

// HoldAppends makes the appends of a store wait in their queue. queued returns when n of them wait, and release writes
// them in one flush.
func HoldAppends(s *Store) (queued func(n int), release func()) {
	return s.appends.stall()
}

// HoldSteps is HoldAppends for batches that have nothing but steps.
func HoldSteps(s *Store) (queued func(n int), release func()) {
	return s.steps.stall()
}

// HoldSubmits is HoldAppends for new tasks without a key.
func HoldSubmits(s *Store) (queued func(n int), release func()) { return s.submits.stall() }

// HoldKeyed is HoldAppends for new tasks with a key.
func HoldKeyed(s *Store) (queued func(n int), release func()) { return s.keyed.stall() }

// HoldTurns makes the batches of steps that are to be written alone wait for their turn until begin.
func HoldTurns(s *Store) (begin func()) {
	for range combineWriters {
		s.steps.alone <- struct{}{}
	}
	return func() {
		for range combineWriters {
			<-s.steps.alone
		}
	}
}

func (c *combiner[I, R]) stall() (queued func(n int), release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writers > 0 {
		panic("a flush is in progress")
	}
	c.writers, c.called = 1, true
	queued = func(n int) {
		for {
			c.mu.Lock()
			got := len(c.queue)
			c.mu.Unlock()
			if got >= n {
				return
			}
			runtime.Gosched()
		}
	}
	return queued, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.queue[0].done <- true
	}
}

// LaneTurn is the number of claims in which every lane comes first once.
const LaneTurn = turnEvery * (lanes - 1)

// LaneDue makes the next submission that finds a lane full poll the queue.
func LaneDue(s *Store) {
	s.laner.mu.Lock()
	defer s.laner.mu.Unlock()
	for _, h := range s.laner.heads {
		h.polls.Next = time.Time{}
	}
}

// LaneOwners submits for n owners, and returns how many of them the laner remembers.
func LaneOwners(n int) int {
	l := laner{owners: make(map[laneKey]*laneOwner), heads: make(map[string]*laneHeads)}
	for i := range n {
		l.choose(laneKey{"a", "t", fmt.Sprint(i)}, true)
	}
	return len(l.owners)
}

// AgeTotals makes the totals that a store remembers too old to be used.
func AgeTotals(s *Store) {
	s.totals.mu.Lock()
	defer s.totals.mu.Unlock()
	for _, v := range s.totals.known {
		v.at = v.at.Add(-totalFor)
	}
}
