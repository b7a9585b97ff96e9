package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// backWithin ends a test that hangs. A store notices silent connections within seconds, and a connection that it does
// not notice stays silent.
const backWithin = 5 * time.Minute

// statementKinds are the kinds of statements that a replica runs.
var statementKinds = []struct {
	name string
	do   func(ctx context.Context, f *storetest.Fixture, s *store.Store) error
}{
	{"ping", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error { return s.DB.Ping(ctx) }},
	{"schema", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		return s.Operate.CheckSchema(ctx)
	}},
	{"claim", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Tasks.NewClaimer().Claim(ctx, storetest.Agent, 1, storetest.TTL, time.Hour)
		return err
	}},
	{"claim of an agent with a limit", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Tasks.NewClaimer().ClaimFor(ctx,
			tasks.ClaimRequest{Agent: storetest.Agent, Slots: 1, Running: 3, TTL: storetest.TTL})
		return err
	}},
	{"rescue", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Tasks.Rescue(ctx, nil, tasks.Policy{MaxAttempts: 1}, 10)
		return err
	}},
	{"renewal", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Tasks.Renew(ctx, []*tasks.Lease{{TaskID: db.NewTaskID(), Epoch: 1}}, storetest.TTL)
		return err
	}},
	{"poll of followed tasks", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, _, err := s.Tasks.Ahead(ctx, []a2a.ID{db.NewTaskID()}, []int64{0})
		return err
	}},
	{"events", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Tasks.EventsAfter(ctx, db.NewTaskID(), 0, 10)
		return err
	}},
	{"new task", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Tasks.Submit(ctx, storetest.Submission("frozen"))
		return err
	}},
	{"message to a task", func(ctx context.Context, f *storetest.Fixture, s *store.Store) error {
		in := storetest.Submission("more")
		in.Task, in.ContextID = f.NewTask(), ""
		_, err := s.Tasks.Submit(ctx, in)
		return err
	}},
	{"cancel", func(ctx context.Context, f *storetest.Fixture, s *store.Store) error {
		_, err := s.Tasks.Cancel(ctx, storetest.Ann, storetest.Agent, f.NewTask())
		return err
	}},
	{"append", func(ctx context.Context, f *storetest.Fixture, s *store.Store) error {
		_, err := s.Tasks.Append(ctx, f.RunningTask(), storetest.Batch(storetest.Chunk("a", "x")))
		return err
	}},
	{"read for a caller", func(ctx context.Context, f *storetest.Fixture, s *store.Store) error {
		_, err := s.Tasks.Snapshot(ctx, storetest.Ann, f.NewTask(), tasks.Want{Artifacts: true})
		return err
	}},
	{"list for a caller", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, _, err := s.Tasks.Page(ctx, storetest.Ann, tasks.Filter{Limit: 10})
		return err
	}},
	{"sign-in", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, _, err := s.Access.LookupKey(ctx, "none")
		if err == access.ErrNoKey { //nolint:errorlint // it must not be wrapped
			return nil
		}
		return err
	}},
	{"claim of webhooks", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Webhooks.Claim(ctx, 10, 1, storetest.TTL)
		return err
	}},
	{"sweep of webhooks", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Webhooks.Sweep(ctx, webhooks.SweepPolicy{Keep: time.Hour, Forget: time.Hour, Batch: 10})
		return err
	}},
	{"gauges", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Operate.Gauges(ctx)
		return err
	}},
	{"overview", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Operate.Overview(ctx)
		return err
	}},
	{"server key", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Access.ServerKey(ctx, "k")
		return err
	}},
	{"wake", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		return s.DB.Notify(ctx, []string{"x"})
	}},
}

// A machine that loses its power closes no connection. The replica must answer the present and the next request over
// new connections, within a bound, and lose nothing.
func TestStatementsWorkAgainAfterConnectionsFellSilent(t *testing.T) {
	t.Parallel()
	for _, kind := range statementKinds {
		for name, ft := range map[string]storetest.Fault{
			"no request arrives": {Frozen: true, Match: func([]byte) bool { return true }},
			"no answer arrives":  {Frozen: true, Answered: true, Match: func([]byte) bool { return true }},
		} {
			t.Run(kind.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := storetest.Open(t)
				p, url := storetest.NewProxy(t, f.URL)
				s := f.Replica("r1", func(c *store.Config) {
					c.URL, c.PoolSize, c.StatementTimeout = url, 8, 5*time.Second
				})
				// This opens the connections and prepares the statements.
				if err := kind.do(t.Context(), f, s); err != nil {
					t.Fatal(err)
				}
				fired := p.Arm(ft)
				done := make(chan error, 1)
				begin := time.Now()
				go func() {
					err := kind.do(context.WithoutCancel(t.Context()), f, s)
					for err != nil && time.Since(begin) < backWithin {
						err = kind.do(context.WithoutCancel(t.Context()), f, s) // every caller in a server repeats it
					}
					done <- err
				}()
				storetest.WantFired(t, fired)
				select {
				case err := <-done:
					t.Logf("it works again after %v", time.Since(begin))
					if err != nil {
						t.Error(err)
					}
				case <-time.After(backWithin):
					p.BreakAll(0)
					t.Errorf("the statement waits for a silent connection for over %v (%v)",
						backWithin, <-done)
				}
				f.Invariants()
			})
		}
	}
}

// A search whose connection falls silent has not taken too long: the next one may succeed.
func TestSilentSearchIsUnavailable(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	p, url := storetest.NewProxy(t, f.URL)
	s := f.Replica("r1", func(c *store.Config) { c.URL, c.PoolSize = url, 8 })
	search := func() error {
		return s.DB.Browse(t.Context(), time.Second, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		})
	}
	if err := search(); err != nil {
		t.Fatal(err)
	}
	fired := p.Arm(storetest.Fault{Frozen: true, Answered: true, Match: func([]byte) bool { return true }})
	err := search()
	storetest.WantFired(t, fired)
	if db.Blocked(err) || a2a.CodeOf(db.Unavailable(err)) != a2a.CodeUnavailable {
		t.Errorf("Browse = %v, want an error of the connection", err)
	}
	if err := search(); err != nil {
		t.Errorf("the next search: %v", err)
	}
	between := s.DB.Browse(t.Context(), time.Millisecond, func(ctx context.Context, _ *db.Tx) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if !db.Blocked(between) || db.ConnectionLost(between) {
		t.Errorf("Browse = %v after its limit, between two statements", between)
	}
}

// waitUntil polls until ok, for at most backWithin.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(begin) > backWithin {
			t.Fatalf("%s: not within %v", what, backWithin)
		}
		<-tick.C
	}
}

// watch runs DB.Watch until the end of the test.
func watch(t *testing.T, s *store.Store) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.DB.Watch(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// While the database is known to be unreachable, the replica is unready and calls fail at once. Both change by
// themselves when the database can be reached again.
func TestCallsFailAtOnceWhileTheDatabaseIsUnreachable(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		cut, restore func(p *storetest.Proxy)
	}{
		"connections are refused": {
			func(p *storetest.Proxy) { p.BreakAll(1 << 30) }, func(p *storetest.Proxy) { p.BreakAll(0) },
		},
		"nothing passes": {func(p *storetest.Proxy) { p.FreezeAll() }, func(p *storetest.Proxy) { p.Thaw() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			p, url := storetest.NewProxy(t, f.URL)
			// A call that waits for the database waits for an hour.
			s := f.Replica("r1", func(c *store.Config) {
				c.URL, c.StatementTimeout, c.AcquireTimeout = url, time.Hour, time.Hour
			})
			watch(t, s)
			if err := s.DB.Ready(t.Context()); err != nil {
				t.Fatalf("Ready = %v", err)
			}
			fault.cut(p)
			waitUntil(t, "not ready", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return s.DB.Ready(ctx) != nil
			})
			const calls = 100
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), backWithin)
			defer cancel()
			for range calls {
				_, err := s.Tasks.Submit(ctx, storetest.Submission("hello"))
				storetest.WantCode(t, err, a2a.CodeUnavailable)
				_, err = s.Tasks.Head(ctx, storetest.Ann, db.NewTaskID())
				storetest.WantCode(t, err, a2a.CodeUnavailable)
				_, err = s.Tasks.NewClaimer().Claim(ctx, storetest.Agent, 1, storetest.TTL, 0)
				storetest.WantCode(t, err, a2a.CodeUnavailable)
			}
			if ctx.Err() != nil {
				t.Error("the calls wait for the database")
			}
			t.Logf("%d calls failed in %v", 3*calls, time.Since(begin))
			fault.restore(p)
			waitUntil(t, "ready again", func() bool { return s.DB.Ready(t.Context()) == nil })
			if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); err != nil {
				t.Errorf("Submit = %v after the database can be reached again", err)
			}
			f.Invariants()
		})
	}
}
