package workerapi

import (
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// quietHub passes no wake-ups on.
type quietHub struct{}

func (quietHub) Watch(string, func()) func() { return func() {} }
func (quietHub) Wake(...string)              {}

// round is a dispatcher whose rounds the test starts.
type round struct {
	*storetest.Fixture
	d       *dispatcher
	claimer *tasks.Claimer
}

func newRound(t *testing.T, limits ...a2a.Limits) *round {
	t.Helper()
	f := storetest.Open(t)
	list := []*a2a.Agent{{Name: storetest.Agent}, {Name: "other"}}
	for i, l := range limits {
		list[i].Limits = l
	}
	api := New(f.Tasks, quietHub{}, Config{Agents: list, Limits: a2a.Limits{LeaseTTL: time.Hour, MaxAttempts: 3}})
	api.dispatcher.running = true
	return &round{f, api.dispatcher, f.Tasks.NewClaimer()}
}

// wait adds a claim that waits.
func (r *round) wait(worker string, slots int, agents ...string) *claim {
	r.T.Helper()
	c := &claim{worker: worker, max: slots}
	for _, name := range agents {
		c.agents = append(c.agents, r.d.api.agents()[name])
	}
	if !r.d.add(c) {
		r.T.Fatal("too many claims wait")
	}
	return c
}

// answered returns how many tasks a claim was given; -1 if it waits.
func (r *round) answered(c *claim) int {
	r.T.Helper()
	select {
	case got := <-c.got:
		if got.err != nil {
			r.T.Errorf("claim of %s: %v", c.worker, got.err)
		}
		if len(got.leases) > 0 && got.asked.IsZero() {
			r.T.Errorf("it is not known when %s was given tasks", c.worker)
		}
		for _, l := range got.leases {
			asked := slices.ContainsFunc(c.agents, func(a *agent) bool { return a.name == l.Agent })
			if l.Worker != c.worker || !asked {
				r.T.Errorf("the claim of %s was given a task of %s for %s", c.worker, l.Agent, l.Worker)
			}
		}
		return len(got.leases)
	default:
		return -1
	}
}

func (r *round) want(list []*claim, want ...int) {
	r.T.Helper()
	var got []int
	for _, c := range list {
		got = append(got, r.answered(c))
	}
	if !slices.Equal(got, want) {
		r.T.Errorf("the claims were given %v tasks, want %v", got, want)
	}
}

func TestClaimsOfOneAgentShareAStatement(t *testing.T) {
	t.Parallel()
	r := newRound(t)
	r.SubmitMany(7)
	list := []*claim{
		r.wait("w1", 2, storetest.Agent), r.wait("w2", 3, storetest.Agent), r.wait("w1", 1, storetest.Agent),
		r.wait("w3", 4, storetest.Agent), r.wait("w4", 1, storetest.Agent),
	}
	r.d.serve(t.Context(), r.claimer)
	r.want(list, 2, 3, 1, 1, -1)
	if got := r.Column("SELECT DISTINCT xmin::text FROM a2a.task_leases"); len(got) != 1 {
		t.Errorf("%d transactions claimed, want 1", len(got))
	}
	r.SubmitMany(1)
	r.d.mark(storetest.Agent)
	r.d.serve(t.Context(), r.claimer)
	r.want(list[4:], 1)
	r.Invariants()
}

// TestGroupsOfClaimsAreBounded: a replica does not take a whole burst with one statement.
func TestGroupsOfClaimsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRound(t)
	r.SubmitMany(300)
	var list []*claim
	for range 5 {
		list = append(list, r.wait("w", 100, storetest.Agent))
	}
	r.d.serve(t.Context(), r.claimer)
	r.want(list, 100, 100, 100, -1, -1)
	if got := r.Column("SELECT DISTINCT xmin::text FROM a2a.task_leases"); len(got) != 2 {
		t.Errorf("%d transactions claimed, want 2", len(got))
	}
}

func TestClaimsOfSeveralAgents(t *testing.T) {
	t.Parallel()
	r := newRound(t)
	r.SubmitMany(2)
	other := storetest.Submission("x")
	other.Agent = "other"
	for range 3 {
		r.Submit(other)
	}
	list := []*claim{
		r.wait("w1", 4, storetest.Agent, "other"), r.wait("w2", 2, "other"), r.wait("w3", 1, storetest.Agent),
		r.wait("w4", 1, "other", storetest.Agent),
	}
	left := r.wait("w5", 1, storetest.Agent)
	r.d.answer(left, claimResult{}) // its worker has gone
	<-left.got
	r.d.serve(t.Context(), r.claimer)
	var given int
	for _, c := range list {
		given += max(r.answered(c), 0)
	}
	if given != 5 || r.answered(left) != -1 {
		t.Errorf("%d tasks were given, want 5, and none to a claim that does not wait", given)
	}
	if got := r.Column("SELECT count(*)::text FROM a2a.task_leases"); got[0] != "5" {
		t.Errorf("%s leases, want 5", got[0])
	}
}

// TestClaimThatEndsMeanwhileGivesItsTasksBack: another claim of the group keeps its own.
func TestClaimThatEndsMeanwhileGivesItsTasksBack(t *testing.T) {
	t.Parallel()
	r := newRound(t)
	r.SubmitMany(2)
	stays, leaves := r.wait("w1", 1, storetest.Agent), r.wait("w2", 1, storetest.Agent)
	group, rest := r.d.startClaim(storetest.Agent, []*asker{{claim: stays}, {claim: leaves}})
	if len(group) != 2 || len(rest) != 0 {
		t.Fatalf("a group of %d, then %d", len(group), len(rest))
	}
	r.d.claim(t.Context(), r.claimer, r.d.api.agents()[storetest.Agent], group)
	r.d.answer(leaves, claimResult{})
	<-leaves.got
	for _, k := range group {
		r.d.finish(t.Context(), k)
		r.d.finish(t.Context(), k) // a claim is finished once: another time would release its tasks
	}
	r.d.mark(storetest.Agent)
	if group, _ := r.d.startClaim(storetest.Agent, []*asker{{claim: leaves}}); len(group) > 0 {
		t.Error("tasks are claimed for a worker that has gone")
	}
	r.want([]*claim{stays, leaves}, 1, -1)
	if got := r.Column("SELECT worker FROM a2a.task_leases"); !slices.Equal(got, []string{"w1"}) {
		t.Errorf("leases of %q, want one of w1", got)
	}
	r.Invariants()
}
