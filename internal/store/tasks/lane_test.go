package tasks_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// flood submits n tasks of an owner, many at once.
func flood(f *storetest.Fixture, owner string, n int) {
	f.T.Helper()
	const callers = 64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				in := storetest.Submission("hello")
				in.Owner = owner
				if _, err := f.Tasks.Submit(f.T.Context(), in); err != nil {
					f.T.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// submitOf submits a task of an owner.
func submitOf(f *storetest.Fixture, owner string) a2a.ID {
	f.T.Helper()
	in := storetest.Submission("hello")
	in.Owner = owner
	return f.Submit(in).Task
}

func TestFloodOfOneOwnerDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Crash)
	f := storetest.Open(t)
	flood(f, "flood", 10_000)
	c := f.Tasks.NewClaimer()
	var order []string
	claim := func(slots int) {
		leases, err := c.Claim(t.Context(), storetest.Agent, slots, storetest.TTL, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases {
			order = append(order, l.Owner)
		}
	}
	for round := range 5 {
		order = nil
		others := []string{fmt.Sprintf("ann%d", round), fmt.Sprintf("bob%d", round)}
		for _, o := range others {
			submitOf(f, o)
		}
		for range 12 {
			claim(1)
		}
		if got := strings.Join(order, " "); !strings.Contains(got, others[0]) || !strings.Contains(got, others[1]) {
			t.Errorf("round %d: the first claims are of %s, want the tasks of both other owners among them", round, got)
		}
	}
	// The same for claims of several tasks, and for an owner with 20 tasks.
	for range 20 {
		submitOf(f, "carol")
	}
	order = nil
	for range 8 {
		claim(8)
	}
	if n := strings.Count(strings.Join(order, " "), "carol"); n < 20 {
		t.Errorf("of the first %d claimed tasks %d are carol's, want 20: %v", len(order), n, order)
	}
	f.Invariants()
}

// Tasks in the last lane are claimed even if the first lanes never become empty.
func TestTasksOfAFloodAreClaimed(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	flood(f, "flood", 400)
	c := f.Tasks.NewClaimer()
	flooded := 0
	for i := range 64 {
		submitOf(f, fmt.Sprint("small", i))
		leases, err := c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, 0)
		if err != nil || len(leases) != 1 {
			t.Fatalf("claimed %d, %v", len(leases), err)
		}
		if leases[0].Owner == "flood" {
			flooded++
		}
	}
	if flooded < 64/8 {
		t.Errorf("of 64 claims %d were of the owner with 400 waiting tasks, want at least an eighth", flooded)
	}
}

// Under overload claims serve every lane, not only the first and the last. Here no lane ever becomes empty, and each
// claim has one slot.
func TestEveryLaneIsClaimedUnderOverload(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	const rounds = 4
	flood(f, "flood", 400) // fills all lanes; the owners with one task keep the first lane full
	c := f.Tasks.NewClaimer()
	claimed := make(map[int]int)
	for i := range rounds * tasks.LaneTurn {
		submitOf(f, fmt.Sprint("small", i))
		leases, err := c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, 0)
		if err != nil || len(leases) != 1 {
			t.Fatalf("claimed %d, %v", len(leases), err)
		}
		claimed[storetest.Value[int](f, "SELECT priority::int FROM a2a.tasks WHERE id = $1", leases[0].TaskID)]++
	}
	for lane := 1; lane < 4; lane++ {
		if claimed[lane] != rounds {
			t.Errorf("of %d claims %d were of lane %d, want %d", rounds*tasks.LaneTurn, claimed[lane], lane, rounds)
		}
	}
	f.Invariants()
}

// A new task does not overtake older tasks of its owner, even if the first lanes have room again.
func TestTasksOfAnOwnerKeepTheirOrder(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	c := f.Tasks.NewClaimer()
	var submitted, claimed []a2a.ID
	claim := func(n int) (got []a2a.ID) {
		for range n {
			leases, err := c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, 0)
			if err != nil || len(leases) != 1 {
				t.Fatalf("claimed %d, %v", len(leases), err)
			}
			got = append(got, leases[0].TaskID)
		}
		return got
	}
	for range 400 {
		submitted = append(submitted, f.NewTask())
	}
	before := claim(300) // all of the first lanes, and some of the last
	for range 20 {
		tasks.LaneDue(f.Store.Tasks)
		submitted = append(submitted, f.NewTask())
	}
	claimed = claim(120)
	left := slices.DeleteFunc(submitted, func(id a2a.ID) bool { return slices.Contains(before, id) })
	if !slices.Equal(claimed, left) {
		t.Error("tasks of one owner were not claimed in the order in which they came")
	}
	f.Invariants()
}

// A claim makes room in a lane. So an owner without waiting tasks stays in the first lane.
func TestOwnerWithoutWaitingTasksStaysInTheFirstLane(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for range 100 {
		f.NewTask()
		if got := f.Claim(1); len(got) != 1 {
			t.Fatalf("claimed %d, want 1", len(got))
		}
		tasks.LaneDue(f.Store.Tasks)
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks WHERE priority <> 0"); n != 0 {
		t.Errorf("%d of 100 tasks were in other lanes, want all in the first", n)
	}
}

func TestLanerRemembersABoundedNumberOfOwners(t *testing.T) {
	t.Parallel()
	if n := tasks.LaneOwners(30_000); n > 10_000 {
		t.Errorf("the laner remembers %d owners, want at most 10,000", n)
	}
}

func TestLimitOfRunsHoldsOverAllReplicas(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.SubmitMany(60)
	const limit, replicas = 5, 4
	var mu sync.Mutex
	running, most, total := 0, 0, 0
	var wg sync.WaitGroup
	for r := range replicas {
		s := f.Replica(fmt.Sprintf("r%d", r+2))
		wg.Go(func() {
			c := s.Tasks.NewClaimer()
			for idle := 0; idle < 50; {
				leases, err := c.ClaimFor(t.Context(),
					tasks.ClaimRequest{Agent: storetest.Agent, Slots: 3, Running: limit, TTL: storetest.TTL})
				if err != nil {
					t.Error(err)
					return
				}
				if len(leases) == 0 {
					idle++
					continue
				}
				mu.Lock()
				running += len(leases)
				most, total = max(most, running), total+len(leases)
				mu.Unlock()
				for i := range leases {
					mu.Lock()
					running-- // before the append, after which other replicas may claim the next task
					mu.Unlock()
					end := storetest.Batch(storetest.Status(a2a.StateCompleted))
					if _, err := s.Tasks.Append(t.Context(), &leases[i], end); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if most > limit || total != 60 {
		t.Errorf("%d tasks ran, up to %d at once, want 60 and up to %d", total, most, limit)
	}
	f.Invariants()
}

func TestEveryEndOfACountedRunWakesTheQueue(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	c := f.Tasks.NewClaimer()
	ask := tasks.ClaimRequest{Agent: storetest.Agent, Slots: 10, Running: 1, TTL: storetest.TTL}
	one := func() *tasks.Lease {
		t.Helper()
		leases, err := c.ClaimFor(t.Context(), ask)
		if err != nil || len(leases) != 1 || !leases[0].Counted {
			t.Fatalf("claimed %+v, %v, want one that counts", leases, err)
		}
		if more, err := c.ClaimFor(t.Context(), ask); len(more) != 0 || err != nil {
			t.Fatalf("claimed %d more, %v, want none", len(more), err)
		}
		return &leases[0]
	}
	f.SubmitMany(12)
	for name, end := range map[string]func(l *tasks.Lease) error{
		"completed": func(l *tasks.Lease) error {
			_, err := f.Tasks.Append(t.Context(), l, storetest.Batch(storetest.Status(a2a.StateCompleted)))
			return err
		},
		"input": func(l *tasks.Lease) error {
			_, err := f.Tasks.Append(t.Context(), l, storetest.Batch(storetest.Status(a2a.StateInputRequired)))
			return err
		},
		"retry":    func(l *tasks.Lease) error { return f.Tasks.Retry(t.Context(), l, "x", storetest.TTL) },
		"released": func(l *tasks.Lease) error { return f.Tasks.Release(t.Context(), []*tasks.Lease{l}, "given back") },
		"canceled": func(l *tasks.Lease) error {
			_, err := f.Tasks.Cancel(t.Context(), storetest.Ann, "", l.TaskID)
			return err
		},
		"rescued": func(l *tasks.Lease) error {
			f.Expire(l.TaskID)
			f.Rescue(1, tasks.Policy{Agent: storetest.Agent, Fate: "fail", MaxAttempts: 1})
			return nil
		},
	} {
		l := one()
		f.TakeWakes()
		if err := end(l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if keys := strings.Join(f.TakeWakes(), " "); !strings.Contains(keys, wake.Ready(storetest.Agent)) {
			t.Errorf("%s: woke %q, want ready:%s among them", name, keys, storetest.Agent)
		}
	}
	one()
	f.Invariants()
}

// A counted claim needs the lock of its agent. If another claim has it, the claim returns nothing and does not wait.
func TestCountedClaimDoesNotWaitForAnother(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.SubmitMany(3)
	release := f.Lock("SELECT pg_advisory_xact_lock(x'61326177'::int, hashtext($1))", storetest.Agent)
	c := f.Tasks.NewClaimer()
	ask := tasks.ClaimRequest{Agent: storetest.Agent, Slots: 1, Running: 2, TTL: storetest.TTL}
	if leases, err := c.ClaimFor(t.Context(), ask); len(leases) != 0 || err != nil {
		t.Errorf("claimed %d, %v while the agent is locked, want none", len(leases), err)
	}
	if leases, err := c.Claim(t.Context(), storetest.Agent, 1, storetest.TTL, 0); len(leases) != 1 || err != nil {
		t.Errorf("without a limit: claimed %d, %v, want 1", len(leases), err)
	}
	release()
	if leases, err := c.ClaimFor(t.Context(), ask); len(leases) != 1 || err != nil {
		t.Errorf("claimed %d, %v", len(leases), err)
	}
}
