package store

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/store/dbsqlc"
)

// Looked makes a claimer one that has looked at its queues from the start just now.
func Looked(c *Claimer) { setLook(c, time.Now().Add(time.Hour)) }

// LookDue makes the next claim look at its queue from the start.
func LookDue(c *Claimer) { setLook(c, time.Time{}) }

func setLook(c *Claimer, at time.Time) {
	for _, pos := range c.queues {
		pos.looks.next = at
	}
}

// PushesLooked makes a store one that has looked for due webhooks from the start just now, whose next claim looks from the floor,
// and PushesDue one whose next claim looks from the start.
func PushesLooked(s *Store) { setPushes(s, time.Now().Add(time.Hour)) }

func PushesDue(s *Store) { setPushes(s, time.Time{}) }

func setPushes(s *Store, at time.Time) {
	s.pushes.mu.Lock()
	defer s.pushes.mu.Unlock()
	s.pushes.whole.next = at
}

// HoldAppends makes all appends of a store wait in one queue: queued returns when n of them are there, and release lets them
// go, in one flush.
func HoldAppends(s *Store) (queued func(n int), release func()) {
	s.appends[1] = s.appends[0]
	return s.appends[0].hold()
}

// HoldSubmits is HoldAppends for new tasks without a key.
func HoldSubmits(s *Store) (queued func(n int), release func()) { return s.submits.hold() }

// HoldKeyed is HoldAppends for new tasks with a key.
func HoldKeyed(s *Store) (queued func(n int), release func()) { return s.keyed.hold() }

func (c *combiner[I, R]) hold() (queued func(n int), release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writers > 0 {
		panic("somebody writes")
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

// WaitForConnections changes how long a store that is open waits for a free connection.
func WaitForConnections(s *Store, limit time.Duration) { s.api.wait = limit }

// LaneTurn is in how many claims each lane has been the first.
const LaneTurn = turnEvery * (lanes - 1)

// LaneDue makes the next submission that finds a lane full look at the queue.
func LaneDue(s *Store) {
	s.laner.mu.Lock()
	defer s.laner.mu.Unlock()
	for _, h := range s.laner.heads {
		h.looks.next = time.Time{}
	}
}

// LaneOwners submits for n owners, and returns how many are remembered.
func LaneOwners(n int) int {
	l := laner{owners: make(map[laneKey]*laneOwner), heads: make(map[string]*laneHeads)}
	for i := range n {
		l.choose(laneKey{"a", "t", fmt.Sprint(i)}, true)
	}
	return len(l.owners)
}

// AgeTotals makes what a store knows of the lengths of long lists too old to be good.
func AgeTotals(s *Store) {
	s.totals.mu.Lock()
	defer s.totals.mu.Unlock()
	for _, v := range s.totals.known {
		v.at = v.at.Add(-totalFor)
	}
}

// OnPools runs f on the connections of each pool.
func OnPools(ctx context.Context, s *Store, f func(pool string, conn *pgx.Conn) error) error {
	for _, p := range s.pools() {
		if err := p.Ping(ctx); err != nil { // then there is one
			return err
		}
		for _, conn := range p.conns.AcquireAllIdle(ctx) {
			err := f(p.name, conn.Conn())
			conn.Release()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// QueryAs runs a query as requests of a caller do, for one value.
func QueryAs(ctx context.Context, s *Store, c Caller, sql string, value any) error {
	return requestDB{store: s, set: setCaller, args: c.settings()}.QueryRow(ctx, sql).Scan(value)
}

// CountTasks counts as Overview does, as if so many pages were enough.
func CountTasks(ctx context.Context, s *Store, pages int64) (list []TaskCount, err error) {
	err = s.search(ctx, func(tx *Tx) error {
		list, err = countTasks(ctx, dbsqlc.New(tx), pages)
		return err
	})
	return list, err
}

// HoldPool takes every connection of a pool, or the room of reads that no caller is named for, until
// release.
func HoldPool(ctx context.Context, s *Store, name string) (release func(), err error) {
	if name == "reads" {
		n := int64(0)
		for s.readRoom.TryAcquire(1) {
			n++
		}
		return func() { s.readRoom.Release(n) }, nil
	}
	p := map[string]*pool{"api": s.api, "worker": s.work}[name]
	var held []*pgxpool.Conn
	for range p.conns.Config().MaxConns {
		conn, err := p.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		held = append(held, conn)
	}
	return func() {
		for _, conn := range held {
			conn.Release()
		}
	}, nil
}

// Dialer returns what a pool dials with, on top of dial.
func Dialer(limit time.Duration, lost func(silent bool), dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := newDialer(limit, time.Second, lost)
	d.dial = dial
	return d.DialContext
}

// InTx runs f in a transaction.
func InTx(ctx context.Context, s *Store, f func(tx *Tx) error) error { return doInTx(ctx, s.work, f) }

// Autocommit runs f with statements that commit themselves.
func Autocommit(ctx context.Context, s *Store, f func(tx *Tx) error) error {
	_, err := autocommit(ctx, s.work, func(tx *Tx) (struct{}, error) { return struct{}{}, f(tx) })
	return err
}
