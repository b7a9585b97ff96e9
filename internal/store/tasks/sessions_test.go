package tasks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// present makes the store a server that holds its presence lock, until leave is called or the test ends.
func present(f *storetest.Fixture, s *store.Store) (leave func()) {
	f.T.Helper()
	beat(f, &tasks.Heartbeat{Name: s.DB.Replica(), Instance: s.DB.Instance(), Version: "1.0.0"})
	ctx, cancel := context.WithCancel(f.T.Context())
	done := make(chan error, 1)
	go func() { done <- s.DB.Watch(ctx) }()
	stop := func() {
		if ctx.Err() == nil {
			cancel()
			if err := <-done; err != nil {
				f.T.Error(err)
			}
		}
	}
	f.T.Cleanup(stop)
	awaitHolder(s)
	return func() {
		stop()
		f.WaitDisconnected("a2ad-" + s.DB.Replica() + "-watch")
	}
}

func awaitHolder(s *store.Store) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.DB.Holder() == "" {
		<-tick.C
	}
}

// rescueGone rescues the tasks of servers that have no session now.
func rescueGone(f *storetest.Fixture, s *store.Store) int {
	f.T.Helper()
	n, err := s.Tasks.RescueGone(f.T.Context(), &tasks.Sessions{}, nil, tasks.Policy{MaxAttempts: 9}, 100)
	if err != nil {
		f.T.Fatal(err)
	}
	return n
}

func TestTasksOfServersWithoutSessionsAreRescued(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	other := f.Replica("r2")
	early := f.RunningTask()
	leave := present(f, f.Store)
	present(f, other)
	l := f.RunningTask()
	of := func(s *store.Store, worker string) *tasks.Lease {
		f.NewTask()
		list, err := s.Tasks.NewClaimer().ClaimFor(t.Context(),
			tasks.ClaimRequest{Agent: storetest.Agent, Worker: worker, Slots: 1, TTL: storetest.TTL})
		if err != nil || len(list) != 1 {
			t.Fatal(len(list), err)
		}
		return &list[0]
	}
	remote, others := of(f.Store, "w1"), of(other, "")
	second, err := pgx.ConnectConfig(t.Context(), f.DB.ConnConfig("listener"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.DB.LockPresence(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if n := rescueGone(f, other); n != 0 {
		t.Errorf("%d tasks of servers that are there were rescued", n)
	}
	leave()
	if f.DB.Holder() != "" {
		t.Error("leases are taken in the name of a server without a presence lock")
	}
	if n := rescueGone(f, other); n != 0 {
		t.Errorf("%d tasks of a server with one session were rescued", n)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.WaitDisconnected("a2ad-r1-listener")
	if n := rescueGone(f, f.Store); n != 0 {
		t.Errorf("a server without a presence lock rescued %d tasks", n)
	}
	f.Rescue(0) // by lease only
	awaitHolder(other)
	if n := rescueGone(f, other); n != 1 {
		t.Errorf("%d tasks of a server without sessions were rescued, want 1", n)
	}
	done := storetest.Batch(storetest.Status(a2a.StateCompleted))
	if _, err := f.Tasks.Append(t.Context(), l, done); !errors.Is(err, db.ErrLeaseLost) {
		t.Errorf("the append of a server that was taken for gone = %v, want ErrLeaseLost", err)
	}
	for name, keep := range map[string]struct {
		*store.Store
		*tasks.Lease
	}{
		"taken before the presence lock": {f.Store, early}, "of a remote worker": {f.Store, remote},
		"of another server": {other, others},
	} {
		if _, err := keep.Tasks.Append(t.Context(), keep.Lease, done); err != nil {
			t.Errorf("the lease %s: %v", name, err)
		}
	}
	f.Invariants()
}

// Whether servers are gone is not worth more than leases that have expired.
func TestTasksAreRescuedWithoutTheLook(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	present(f, f.Store)
	f.Expire(f.RunningTask().TaskID)
	f.Exec("REVOKE EXECUTE ON FUNCTION pg_try_advisory_lock(bigint) FROM PUBLIC")
	var sessions tasks.Sessions
	rescue := func() (int, error) {
		awaitHolder(f.Store)
		return f.Tasks.RescueGone(t.Context(), &sessions, nil, tasks.Policy{MaxAttempts: 9}, 100)
	}
	if n, err := rescue(); n != 0 || !db.IsCode(err, "42501") {
		t.Errorf("the first rescue = %d, %v, want error 42501", n, err)
	}
	if n, err := rescue(); n != 1 || err != nil {
		t.Errorf("the next rescue = %d, %v, want 1 task", n, err)
	}
	if n, err := rescue(); !db.IsCode(err, "42501") {
		t.Errorf("the third rescue = %d, %v; it does not look again", n, err)
	}
}
