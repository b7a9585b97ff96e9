package tasks_test

import (
	"context"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// private returns a pointer to a field that another package does not export. The path leads to it from a pointer to a struct.
func private[T any](of any, path ...string) *T {
	v := reflect.ValueOf(of).Elem()
	for _, name := range path {
		v = v.FieldByName(name)
	}
	return (*T)(unsafe.Pointer(v.UnsafeAddr())) // in tests only: the room exports no such knob
}

// pushesLooked makes a store one that has polled for due webhooks from the start just now: its next claim begins at the floor.
func pushesLooked(s *store.Store) { setPushPoll(s, time.Now().Add(time.Hour)) }

// pushesDue makes the next claim of webhooks poll from the start.
func pushesDue(s *store.Store) { setPushPoll(s, time.Time{}) }

func setPushPoll(s *store.Store, at time.Time) {
	mu := private[sync.Mutex](s.Webhooks, "pushes", "mu")
	mu.Lock()
	defer mu.Unlock()
	private[db.Pace](s.Webhooks, "pushes", "whole").Next = at
}

func pool(s *store.Store, name string) *db.Pool {
	return *private[*db.Pool](s.DB, map[string]string{"api": "api", "worker": "work", "claim": "claims", "renew": "renews"}[name])
}

// waitForConnections changes how long an open store waits for a free connection of a request.
func waitForConnections(s *store.Store, limit time.Duration) {
	*private[time.Duration](pool(s, "api"), "wait") = limit
}

// onPools runs f on a connection of each pool.
func onPools(ctx context.Context, s *store.Store, f func(pool string, conn *pgx.Conn) error) error {
	for _, stat := range s.DB.Pools() {
		conn, err := pool(s, stat.Name).Acquire(ctx)
		if err != nil {
			return err
		}
		err = f(stat.Name, conn.Conn())
		conn.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// queryAs runs a query as requests of a caller do, for one value.
func queryAs(ctx context.Context, s *store.Store, c db.Caller, sql string, value any) error {
	return s.DB.As(c).QueryRow(ctx, sql).Scan(value)
}

// countTasks counts as the overview does, as if so many pages were enough.
func countTasks(ctx context.Context, s *store.Store, pages int64) (list []operate.TaskCount, err error) {
	err = s.DB.Search(ctx, func(tx *db.Tx) error {
		list, err = operate.CountTasks(ctx, tx, pages)
		return err
	})
	return list, err
}

// holdPool takes every connection of a pool, or the room of reads without a caller, until release.
func holdPool(ctx context.Context, s *store.Store, name string) (release func(), err error) {
	if name == "reads" {
		return holdReads(ctx, s)
	}
	p := pool(s, name)
	most := int32(0)
	for _, stat := range s.DB.Pools() {
		if stat.Name == name {
			most = stat.MaxConns()
		}
	}
	var held []*pgxpool.Conn
	for range most {
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

// inTransaction runs f in a transaction, and byItself with statements that commit themselves.
func inTransaction(ctx context.Context, s *store.Store, f func(tx *db.Tx) error) error {
	return db.DoInTx(ctx, s.DB.Work(), f)
}

func byItself(ctx context.Context, s *store.Store, f func(tx *db.Tx) error) error {
	_, err := db.Autocommit(ctx, s.DB.Work(), func(tx *db.Tx) (struct{}, error) { return struct{}{}, f(tx) })
	return err
}

func holdReads(_ context.Context, s *store.Store) (release func(), err error) {
	room := *private[*semaphore.Weighted](s.DB, "readRoom")
	n := int64(0)
	for room.TryAcquire(1) {
		n++
	}
	return func() { room.Release(n) }, nil
}
