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

// backWithin is how long a store may take to work again after its connections fell silent.
const backWithin = 12 * time.Second

// frozenKinds are the kinds of statements a replica runs, each with what it has to answer.
var frozenKinds = []struct {
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
		_, err := s.Tasks.NewClaimer().ClaimFor(ctx, tasks.ClaimRequest{Agent: storetest.Agent, Slots: 1, Running: 3, TTL: storetest.TTL})
		return err
	}},
	{"rescue", func(ctx context.Context, _ *storetest.Fixture, s *store.Store) error {
		_, err := s.Tasks.Rescue(ctx, nil, 1, 10)
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
		_, err := s.Tasks.Append(ctx, f.RunningTask(), tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "x")}})
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
		if err == access.ErrNoKey { //nolint:errorlint // as it is returned
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

// A machine that loses its power closes nothing. Whatever a replica was asking for then, and whatever it asks for next, is
// answered over new connections within a bound, and nothing is lost.
func TestStatementsOnConnectionsThatFellSilent(t *testing.T) {
	t.Parallel()
	for _, kind := range frozenKinds {
		for name, ft := range map[string]storetest.Fault{
			"no request arrives": {Frozen: true, Match: func([]byte) bool { return true }},
			"no answer arrives":  {Frozen: true, Answered: true, Match: func([]byte) bool { return true }},
		} {
			t.Run(kind.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := storetest.Open(t)
				p, url := storetest.NewProxy(t, f.URL)
				s := f.Replica("r1", func(c *store.Config) { c.URL, c.PoolSize, c.StatementTimeout = url, 8, time.Second })
				if err := kind.do(t.Context(), f, s); err != nil { // there are connections, with statements that are prepared
					t.Fatal(err)
				}
				fired := p.Arm(ft)
				done := make(chan error, 1)
				begin := time.Now()
				go func() {
					err := kind.do(context.WithoutCancel(t.Context()), f, s)
					for err != nil && time.Since(begin) < backWithin {
						err = kind.do(context.WithoutCancel(t.Context()), f, s) // as all of them do that have to do it
					}
					done <- err
				}()
				storetest.WantFired(t, fired)
				select {
				case err := <-done:
					if err != nil {
						t.Errorf("after %v: %v", time.Since(begin), err)
					}
					t.Logf("works after %v", time.Since(begin))
				case <-time.After(backWithin):
					p.BreakAll(0)
					t.Errorf("nothing works for %v: it waits for a connection that fell silent (%v)", backWithin, <-done)
				}
				f.Invariants()
			})
		}
	}
}

// awaits polls until ok, within the bound.
func awaits(t *testing.T, what string, ok func() bool) time.Duration {
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
	return time.Since(begin)
}

// watch runs Watch until the end of the test.
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

// A database that cannot be reached makes a replica unready, and calls are refused at once: nobody waits for what is known to be
// away. Once it is back both change by themselves.
func TestCallsAreRefusedAtOnceWhileTheDatabaseIsKnownToBeAway(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]struct {
		away func(p *storetest.Proxy)
		back func(p *storetest.Proxy)
	}{
		"connections are refused": {func(p *storetest.Proxy) { p.BreakAll(1 << 30) }, func(p *storetest.Proxy) { p.BreakAll(0) }},
		"nothing passes":          {func(p *storetest.Proxy) { p.FreezeAll() }, func(p *storetest.Proxy) { p.Thaw() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			p, url := storetest.NewProxy(t, f.URL)
			s := f.Replica("r1", func(c *store.Config) { c.URL = url })
			watch(t, s)
			if err := s.DB.Ready(t.Context()); err != nil {
				t.Fatalf("Ready = %v", err)
			}
			cut.away(p)
			awaits(t, "known to be away", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return s.DB.Ready(ctx) != nil
			})
			const calls = 100
			made := p.Opened()
			begin := time.Now()
			for range calls {
				if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); a2a.CodeOf(err) != a2a.CodeUnavailable {
					t.Fatalf("Submit = %v", err)
				}
				if _, err := s.Tasks.Head(t.Context(), storetest.Ann, db.NewTaskID()); a2a.CodeOf(err) != a2a.CodeUnavailable {
					t.Fatalf("Head = %v", err)
				}
				if _, err := s.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 1, storetest.TTL, 0); a2a.CodeOf(err) != a2a.CodeUnavailable {
					t.Fatalf("Claim = %v", err)
				}
			}
			t.Logf("%d calls were refused in %v, %d tries to connect", 3*calls, time.Since(begin), p.Opened()-made)
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("%d calls were refused in %v: each of them waits", 3*calls, took)
			}
			cut.back(p)
			t.Logf("back after %v", awaits(t, "back", func() bool { return s.DB.Ready(t.Context()) == nil }))
			if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("hello")); err != nil {
				t.Errorf("Submit = %v once the database is back", err)
			}
			f.Invariants()
		})
	}
}
