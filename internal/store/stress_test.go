package store_test

import (
	"context"
	"errors"
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
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Bounds of the stress test: it goes on for longer while there was not yet some of everything. The
// leases are so short that many run out by themselves.
const (
	stressTime = 3 * time.Second
	stressMost = time.Minute
	stressTTL  = 150 * time.Millisecond
)

// TestEverythingAtOnce lets two replicas do everything to one database at the same time: submits, follow-ups, webhooks, claims, appends,
// renewals, retries, releases, cancels and rescues, with workers that die and zombies that write on. Then the database must be whole, what was
// acknowledged must be there, and there must have been no deadlock.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), stressMost)
	defer cancel()
	s := &stress{Fixture: f, seed: seed, tasks: map[a2a.ID]int{}, acked: map[a2a.ID]map[int64]string{}, dead: map[*store.Store][]*tasks.Lease{}}
	var wg sync.WaitGroup
	s.replicas = []*store.Store{f.Replica("r2"), f.Replica("r3")}
	for i, replica := range s.replicas {
		parts := []func(context.Context, *store.Store, *rand.Rand){s.submitter, s.submitter, s.speaker, s.canceller, s.rescuer, s.hooker}
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
		look := time.NewTicker(stressTime)
		defer look.Stop()
		for {
			select {
			case <-look.C:
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
	t.Logf("%d tasks, %d batches, %d zombies refused, %d rescued, %d canceled, %d follow-ups",
		len(s.tasks), s.batches.Load(), s.refused.Load(), s.rescued.Load(), s.canceled.Load(), s.followUps.Load())
	if what := s.missing(); what != nil {
		t.Errorf("there were no %v: the test tests nothing", what)
	}
}

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

// missing returns what has not happened yet.
func (s *stress) missing() (what []string) {
	for name, n := range map[string]*atomic.Int64{
		"batches": &s.batches, "zombies": &s.refused, "rescues": &s.rescued, "cancels": &s.canceled, "follow-ups": &s.followUps,
	} {
		if n.Load() == 0 {
			what = append(what, name)
		}
	}
	return what
}

func (s *stress) fail(what string, err error) {
	if err != nil {
		s.T.Errorf("seed %d: %s: %v", s.seed, what, err)
	}
}

func (s *stress) any(r *rand.Rand) (a2a.ID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return a2a.ID{}, false
	}
	// The newest ones are where things happen.
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
				s.T.Errorf("seed %d: one key, two tasks", s.seed)
			}
		}
		s.mu.Lock()
		s.list = append(s.list, outs[0].Task)
		s.tasks[outs[0].Task]++
		s.mu.Unlock()
	}
}

func (s *stress) speaker(ctx context.Context, st *store.Store, r *rand.Rand) {
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

func (s *stress) canceller(ctx context.Context, st *store.Store, r *rand.Rand) {
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

// hooker sets webhooks that the runs of their tasks do not know of.
func (s *stress) hooker(ctx context.Context, st *store.Store, r *rand.Rand) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if id, ok := s.any(r); ok {
			s.fail("set a webhook", st.Tasks.SetWebhook(s.T.Context(), storetest.Ann, storetest.Agent, id, storetest.NewWebhook(fmt.Sprint("p", i)), 0))
		}
	}
}

func (s *stress) rescuer(ctx context.Context, st *store.Store, r *rand.Rand) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	fates := []string{"retry", "retry", "input-required", "fail"}
	for ctx.Err() == nil {
		n, err := st.Tasks.Rescue(s.T.Context(), []tasks.Policy{{Agent: storetest.Agent, Fate: fates[r.IntN(len(fates))], MaxAttempts: 4}}, 4, 50)
		s.fail("rescue", err)
		s.rescued.Add(int64(n))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (s *stress) claimer(ctx context.Context, st *store.Store, work chan<- tasks.Lease) {
	c := st.Tasks.NewClaimer()
	for ctx.Err() == nil {
		leases, err := c.Claim(s.T.Context(), storetest.Agent, 4, stressTTL, time.Minute)
		s.fail("claim", err)
		_, err = st.Tasks.Inputs(s.T.Context(), leases)
		s.fail("inputs", err)
		for _, l := range leases {
			work <- l
		}
	}
}

// worker runs what it is given. Some runs die, some go on though their lease ran out, and some of the dead write later.
func (s *stress) worker(ctx context.Context, st *store.Store, r *rand.Rand, work <-chan tasks.Lease) {
	for l := range work {
		s.run(ctx, st, r, &l)
		if r.IntN(2) == 0 {
			s.zombie(st, r)
		}
	}
}

func (s *stress) run(ctx context.Context, st *store.Store, r *rand.Rand, l *tasks.Lease) {
	for {
		var err error
		text := fmt.Sprint(l.Epoch, "-", l.LastSeq)
		switch r.IntN(20) {
		case 0: // dies
			s.mu.Lock()
			s.dead[st] = append(s.dead[st], l)
			s.mu.Unlock()
			return
		case 1: // sleeps past its lease
			select {
			case <-time.After(stressTTL + 20*time.Millisecond):
			case <-ctx.Done():
			}
		case 2:
			err = st.Tasks.Retry(s.T.Context(), l, "again", time.Duration(r.IntN(20))*time.Millisecond)
			if err == nil {
				return
			}
		case 3:
			s.fail("release", st.Tasks.Release(s.T.Context(), []*tasks.Lease{l}))
			return
		case 4, 5:
			held, err := st.Tasks.Renew(s.T.Context(), []*tasks.Lease{l}, stressTTL)
			s.fail("renew", err)
			if err == nil && held[0] == tasks.Lost {
				s.zombieWrite(st, l)
				return
			}
		case 6, 7, 8, 9:
			end := []a2a.State{a2a.StateCompleted, a2a.StateCompleted, a2a.StateInputRequired, a2a.StateFailed}[r.IntN(4)]
			var out tasks.Appended
			if out, err = st.Tasks.Append(s.T.Context(), l, tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", text), storetest.Status(end, text)}}); err == nil {
				s.ack(l, out, text)
				return
			}
		default:
			b := tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", text), storetest.Status(a2a.StateWorking, text)}}
			if r.IntN(3) == 0 {
				b.Checkpoint = a2a.Raw(fmt.Sprintf("%q", text))
			}
			var out tasks.Appended
			if out, err = st.Tasks.Append(s.T.Context(), l, b); err == nil {
				s.ack(l, out, text)
			}
		}
		switch {
		case errors.Is(err, db.ErrLeaseLost):
			s.refused.Add(1)
			return
		case err != nil:
			s.fail("run", err)
			return
		}
	}
}

func (s *stress) ack(l *tasks.Lease, out tasks.Appended, text string) {
	s.batches.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acked[l.TaskID] == nil {
		s.acked[l.TaskID] = make(map[int64]string)
	}
	s.acked[l.TaskID][out.Base+1] = text
}

// zombie wakes a worker that died. Its lease may still be in force: then it ends the task after all.
func (s *stress) zombie(st *store.Store, r *rand.Rand) {
	s.mu.Lock()
	dead := s.dead[st]
	if len(dead) == 0 {
		s.mu.Unlock()
		return
	}
	i := r.IntN(len(dead))
	l := dead[i]
	s.dead[st] = slices.Delete(dead, i, i+1)
	s.mu.Unlock()
	s.zombieWrite(st, l)
}

func (s *stress) zombieWrite(st *store.Store, l *tasks.Lease) {
	switch out, err := st.Tasks.Append(s.T.Context(), l, tasks.Batch{Events: []a2a.Event{storetest.Chunk("a", "zombie"), storetest.Status(a2a.StateCompleted, "zombie")}}); {
	case err == nil:
		s.ack(l, out, "zombie")
	case errors.Is(err, db.ErrLeaseLost):
		s.refused.Add(1)
	default:
		s.fail("zombie", err)
	}
}

// finish brings every task to its end and looks at what is left.
func (s *stress) finish(t *testing.T) {
	t.Helper()
	s.Exec("UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second'")
	for n := 1; n > 0; {
		var err error
		if n, err = s.Tasks.Rescue(t.Context(), nil, 1000, 500); err != nil {
			t.Fatal(err)
		}
	}
	s.Exec(`WITH t AS (UPDATE a2a.tasks SET ready_at = clock_timestamp() WHERE ready_at > clock_timestamp() RETURNING id, ready_at)
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
		"tasks that neither ended nor wait for their client": "SELECT count(*)::int FROM a2a.tasks WHERE state IN (1, 2)",
		"rows in the queue": "SELECT count(*)::int FROM a2a.task_ready",
		"leases":            "SELECT count(*)::int FROM a2a.task_leases",
		"tasks completed with messages that nobody read": "SELECT count(*)::int FROM a2a.tasks WHERE state = 100 AND read_user_seq < last_user_seq",
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
		t.Errorf("seed %d: %d tasks are there, %d were acknowledged", s.seed, len(taskList), len(ids))
	}
	for _, task := range taskList {
		s.compare(t, &task)
	}
	s.noDeadlocks(t)
}

// compare wants everything that was acknowledged, once and in order.
func (s *stress) compare(t *testing.T, task *a2a.Task) {
	t.Helper()
	user := 0
	for _, m := range task.History {
		if m.Role == a2a.RoleUser {
			user++
		}
	}
	if user != s.tasks[task.ID] {
		t.Errorf("seed %d: task %s has %d messages of its client, %d were acknowledged", s.seed, task.ID, user, s.tasks[task.ID])
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

func (s *stress) noDeadlocks(t *testing.T) {
	t.Helper()
	for _, r := range s.replicas { // a backend reports what it counted at its end
		r.Close()
	}
	for _, name := range []string{"a2ad-r2-worker", "a2ad-r2-claim", "a2ad-r3-worker", "a2ad-r3-claim"} {
		s.WaitDisconnected(name)
	}
	if n := storetest.Value[int64](s.Fixture, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("seed %d: %d deadlocks", s.seed, n)
	}
}
