package scheduler_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/scheduler"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// cluster is replicas with schedulers on one database. A wake-up reaches all of them.
type cluster struct {
	*storetest.Fixture
	hub        notify.Hub
	mu         sync.Mutex
	schedules  []a2a.Schedule // guarded by mu; of the agent files
	schedulers []*scheduler.Scheduler
}

// far is a schedule whose own next tick is months away.
func far(change ...func(*a2a.Schedule)) a2a.Schedule {
	s := a2a.Schedule{
		Name: "y", Cron: storetest.FarCron(), Timezone: "UTC", Tenant: storetest.Ann.Tenant, Owner: storetest.Ann.Owner,
		CatchUp: time.Hour, Message: storetest.Message("", "x"),
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

// start starts replicas with the same agent files.
func start(t *testing.T, replicas int, files ...a2a.Schedule) *cluster {
	t.Helper()
	c := &cluster{schedules: files}
	config := func(cfg *store.Config) {
		cfg.Wake = func(keys ...string) { c.hub.Wake(keys...) }
		cfg.Committed = func(id a2a.ID, _ []a2a.Entry) { c.hub.Wake(wake.Task(id)) }
	}
	c.Fixture = storetest.Open(t, config)
	agents := func() []*a2a.Agent {
		c.mu.Lock()
		defer c.mu.Unlock()
		return []*a2a.Agent{{Name: storetest.Agent, Schedules: c.schedules}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(cancel)
	for i := range replicas {
		s := c.Replica("r"+string(rune('2'+i)), config)
		one := scheduler.New(s.Schedules, &c.hub, agents, 0, slog.New(slog.DiscardHandler))
		// Without a poll, a test whose wake-up does not arrive waits in vain.
		one.SetLongest(24 * time.Hour)
		c.schedulers = append(c.schedulers, one)
		wg.Go(func() { one.Run(ctx) }) //nolint:errcheck // always nil
	}
	c.await("the schedules are stored",
		"(SELECT count(*) FROM a2a.schedules WHERE next_at IS NOT NULL) = $1", len(files))
	return c
}

// await waits until a condition in SQL is true.
func (c *cluster) await(what, condition string, args ...any) {
	c.T.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(5 * time.Minute) // only ends a test that hangs
	for !storetest.Value[bool](c.Fixture, "SELECT "+condition, args...) {
		select {
		case <-tick.C:
		case <-end:
			c.T.Fatalf("waited in vain: %s", what)
		}
	}
}

// tickIn sets the next tick, and wakes all replicas.
func (c *cluster) tickIn(d time.Duration) {
	c.T.Helper()
	c.Exec(`UPDATE a2a.schedules SET next_tick = clock_timestamp() + $1::interval,
		next_at = clock_timestamp() + $1::interval`, d)
	c.hub.Wake(wake.Schedules)
}

const started = "(SELECT count(*) FROM a2a.schedule_ticks WHERE outcome = 'started') = $1"

// Three replicas start one task for each tick, at its time.
func TestReplicasStartOneTaskPerTick(t *testing.T) {
	t.Parallel()
	c := start(t, 3, far(func(s *a2a.Schedule) { s.Overlap = a2a.OverlapAllow }))
	const rounds = 10
	for i := range rounds {
		c.tickIn(time.Duration(i) * 20 * time.Millisecond) // the replicas sleep until then
		c.await("the tick starts", started, i+1)
	}
	if n := storetest.Value[int](c.Fixture, "SELECT count(*)::int FROM a2a.tasks"); n != rounds {
		t.Errorf("%d tasks of %d ticks", n, rounds)
	}
	if early := storetest.Value[int](c.Fixture,
		"SELECT count(*)::int FROM a2a.schedule_ticks WHERE at < tick"); early != 0 {
		t.Errorf("%d tasks were started too early", early)
	}
	c.Invariants()
}

// The end of a task starts the queued tick, without a poll.
func TestEndOfATaskStartsTheQueuedTick(t *testing.T) {
	t.Parallel()
	c := start(t, 1, far(func(s *a2a.Schedule) { s.Overlap = a2a.OverlapQueue }))
	c.tickIn(0)
	c.await("the first tick starts", started, 1)
	c.tickIn(0)
	c.await("the second tick is queued", "EXISTS (SELECT FROM a2a.schedules WHERE queued_tick IS NOT NULL)")
	for c.hub.Waiters() < 2 { // the second one waits for the end of the task
		c.await("the subscription", "true")
	}
	leases := c.Claim(1)
	c.Append(&leases[0], storetest.Status(a2a.StateCompleted))
	c.hub.Wake(wake.Task(leases[0].TaskID))
	c.await("the second tick starts", started, 2)
}

// A changed file takes effect at once.
func TestReload(t *testing.T) {
	t.Parallel()
	c := start(t, 1, far())
	c.mu.Lock()
	c.schedules = []a2a.Schedule{far(func(s *a2a.Schedule) { s.Name = "z" })}
	c.mu.Unlock()
	c.schedulers[0].Reload()
	c.await("the schedules are replaced",
		"(SELECT string_agg(name, ',') FROM a2a.schedules WHERE removed_at IS NULL) = 'z'")
}
