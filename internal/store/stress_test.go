package store_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// The stress test runs for stressTime, and longer, up to stressMost, until every kind of event has happened. Its leases
// are short, so that many expire.
const (
	stressTime = 3 * time.Second
	stressMost = 10 * time.Minute
	stressTTL  = 150 * time.Millisecond
)

// Two replicas do everything to one database at the same time: submits, follow-ups, webhooks, claims, appends,
// renewals, retries, releases, cancels and rescues. Some workers die, and some write after they lost their lease. In
// the end the invariants hold, everything that was acknowledged is stored, and there was no deadlock.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), stressMost)
	defer cancel()
	s := &stress{
		Fixture: f, seed: seed, tasks: map[a2a.ID]int{}, acked: map[a2a.ID]map[int64]string{},
		dead: map[*store.Store][]*tasks.Lease{},
	}
	var wg sync.WaitGroup
	s.replicas = []*store.Store{f.Replica("r2"), f.Replica("r3")}
	for i, replica := range s.replicas {
		parts := []func(context.Context, *store.Store, *rand.Rand){
			s.submitter, s.submitter, s.messenger, s.canceler, s.rescuer, s.webhookSetter,
		}
		for j, part := range parts {
			wg.Go(func() { part(ctx, replica, rand.New(rand.NewPCG(seed, uint64(i*100+j)))) })
		}
		work := make(chan tasks.Lease) // from one claimer to several workers, as in a process
		var workers sync.WaitGroup
		for j := range 6 {
			workers.Go(func() { s.worker(ctx, replica, rand.New(rand.NewPCG(seed, uint64(i*100+50+j))), work) })
		}
		wg.Go(func() { defer close(work); s.claimer(ctx, replica, work) })
		wg.Go(workers.Wait)
	}
	wg.Go(func() {
		defer cancel()
		tick := time.NewTicker(stressTime)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if s.missing() == nil {
				return
			}
		}
	})
	wg.Wait()
	s.finish(t)
	if what := s.missing(); what != nil {
		t.Errorf("no %v happened: the test tests nothing", what)
	}
}

// stress is the state of TestEverythingAtOnce.
type stress struct {
	*storetest.Fixture
	seed     uint64
	replicas []*store.Store

	batches, refused, rescued, canceled, followUps atomic.Int64

	mu    sync.Mutex
	list  []a2a.ID                        // guarded by mu
	tasks map[a2a.ID]int                  // guarded by mu; how many messages were acknowledged
	acked map[a2a.ID]map[int64]string     // guarded by mu; texts of chunks that were acknowledged, by seq
	dead  map[*store.Store][]*tasks.Lease // guarded by mu; leases of workers that died, for the zombies
}

// missing returns the kinds of events that have not happened yet.
func (s *stress) missing() (what []string) {
	for name, n := range map[string]*atomic.Int64{
		"batches": &s.batches, "zombies": &s.refused, "rescues": &s.rescued, "cancels": &s.canceled,
		"follow-ups": &s.followUps,
	} {
		if n.Load() == 0 {
			what = append(what, name)
		}
	}
	return what
}

// fail fails the test if err is not nil.
func (s *stress) fail(what string, err error) {
	if err != nil {
		s.T.Errorf("seed %d: %s: %v", s.seed, what, err)
	}
}

// any returns one of the newest tasks: in older ones nothing happens any more.
func (s *stress) any(r *rand.Rand) (a2a.ID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return a2a.ID{}, false
	}
	return s.list[len(s.list)-1-r.IntN(min(len(s.list), 40))], true
}

func (s *stress) submitter(ctx context.Context, st *store.Store, r *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		in := storetest.Submission("hello")
		copies := 1
		if r.IntN(3) == 0 {
			in.Key, copies = fmt.Sprint("h:", r.Uint64()), 1+r.IntN(3)
		}
		var wg sync.WaitGroup
		outs := make([]tasks.Submitted, copies)
		for c := range copies {
			wg.Go(func() {
				var err error
				outs[c], err = st.Tasks.Submit(s.T.Context(), in)
				s.fail("submit", err)
			})
		}
		wg.Wait()
		for _, o := range outs {
			if o.Task != outs[0].Task {
				s.T.Errorf("seed %d: submissions with one key made two tasks", s.seed)
			}
		}
		s.mu.Lock()
		s.list = append(s.list, outs[0].Task)
		s.tasks[outs[0].Task]++
		s.mu.Unlock()
	}
}

func (s *stress) messenger(ctx context.Context, st *store.Store, r *rand.Rand) {
	for ctx.Err() == nil {
		id, ok := s.any(r)
		if !ok {
			continue
		}
		in := storetest.Submission("more")
		in.Task = id
		switch _, err := st.Tasks.Submit(s.T.Context(), in); {
		case err == nil:
			s.followUps.Add(1)
			s.mu.Lock()
			s.tasks[id]++
			s.mu.Unlock()
		case a2a.CodeOf(err) != a2a.CodeTaskTerminal:
			s.fail("follow-up", err)
		}
	}
}

func (s *stress) canceler(ctx context.Context, st *store.Store, r *rand.Rand) {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		id, ok := s.any(r)
		if !ok {
			continue
		}
		switch _, err := st.Tasks.Cancel(s.T.Context(), storetest.Ann, storetest.Agent, id); {
		case err == nil:
			s.canceled.Add(1)
		case a2a.CodeOf(err) != a2a.CodeTaskNotCancelable:
			s.fail("cancel", err)
		}
	}
}

// webhookSetter sets webhooks during the runs of their tasks.
func (s *stress) webhookSetter(ctx context.Context, st *store.Store, r *rand.Rand) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if id, ok := s.any(r); ok {
			webhook := storetest.NewWebhook(fmt.Sprint("p", i))
			s.fail("set a webhook",
				st.Tasks.SetWebhook(s.T.Context(), storetest.Ann, storetest.Agent, id, webhook, 0))
		}
	}
}

func (s *stress) rescuer(ctx context.Context, st *store.Store, r *rand.Rand) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	fates := []string{"retry", "retry", "input-required", "fail"}
	for ctx.Err() == nil {
		policy := tasks.Policy{Agent: storetest.Agent, Fate: fates[r.IntN(len(fates))], MaxAttempts: 4}
		n, err := st.Tasks.Rescue(s.T.Context(), []tasks.Policy{policy}, tasks.Policy{MaxAttempts: 4}, 50)
		s.fail("rescue", err)
		s.rescued.Add(int64(n))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// finish ends every task and checks the database.
func (s *stress) finish(t *testing.T) {
	t.Helper()
	s.Exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second'")
	for n := 1; n > 0; {
		var err error
		if n, err = s.Tasks.Rescue(t.Context(), nil, tasks.Policy{MaxAttempts: 1000}, 500); err != nil {
			t.Fatal(err)
		}
	}
	s.Exec(`WITH t AS (
		  UPDATE a2a.tasks SET ready_at = clock_timestamp() WHERE ready_at > clock_timestamp() RETURNING id, ready_at)
		UPDATE a2a.task_ready r SET run_at = t.ready_at FROM t WHERE r.task_id = t.id`)
	for {
		leases := s.Claim(500)
		if len(leases) == 0 {
			break
		}
		for i := range leases {
			s.Append(&leases[i], storetest.Status(a2a.StateCompleted))
		}
	}
	s.Invariants()
	for what, query := range map[string]string{
		"tasks that neither ended nor wait for their client": `
			SELECT count(*)::int FROM a2a.tasks WHERE state IN (1, 2)`,
		"rows in the queue": "SELECT count(*)::int FROM a2a.task_ready",
		"leases":            "SELECT count(*)::int FROM a2a.task_leases",
		"completed tasks with unread messages": `
			SELECT count(*)::int FROM a2a.tasks WHERE state = 100 AND read_user_seq < last_user_seq`,
	} {
		if n := storetest.Value[int](s.Fixture, query); n != 0 {
			t.Errorf("seed %d: %d %s are left", s.seed, n, what)
		}
	}
	var ids []a2a.ID
	for id := range s.tasks {
		ids = append(ids, id)
	}
	taskList, err := s.Tasks.Snapshots(t.Context(), storetest.Ann, ids, tasks.Want{Artifacts: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(taskList) != len(ids) {
		t.Errorf("seed %d: %d tasks are stored, %d were acknowledged", s.seed, len(taskList), len(ids))
	}
	for _, task := range taskList {
		s.compare(t, &task)
	}
	s.noDeadlocks(t)
}

// compare checks that a task has everything that was acknowledged, once and in order.
func (s *stress) compare(t *testing.T, task *a2a.Task) {
	t.Helper()
	user := 0
	for _, m := range task.History {
		if m.Role == a2a.RoleUser {
			user++
		}
	}
	if user != s.tasks[task.ID] {
		t.Errorf("seed %d: task %s has %d messages of its client, %d were acknowledged",
			s.seed, task.ID, user, s.tasks[task.ID])
	}
	var got []string
	for _, a := range task.Artifacts {
		for _, p := range a.Parts {
			got = append(got, p.Text)
		}
	}
	var want []string
	for _, seq := range slices.Sorted(maps.Keys(s.acked[task.ID])) {
		want = append(want, s.acked[task.ID][seq])
	}
	storetest.Same(t, fmt.Sprintf("seed %d: chunks of task %s", s.seed, task.ID), want, got)
}

// noDeadlocks fails the test if PostgreSQL counted a deadlock.
func (s *stress) noDeadlocks(t *testing.T) {
	t.Helper()
	for _, r := range s.replicas { // a backend reports what it counted when it ends
		r.Close()
	}
	for _, name := range []string{"a2ad-r2-worker", "a2ad-r2-claim", "a2ad-r3-worker", "a2ad-r3-claim"} {
		s.WaitDisconnected(name)
	}
	const deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
	if n := storetest.Value[int64](s.Fixture, deadlocks); n != 0 {
		t.Errorf("seed %d: %d deadlocks", s.seed, n)
	}
}
