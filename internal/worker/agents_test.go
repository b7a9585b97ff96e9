package worker_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/worker"
)

var done = []a2a.Event{status(a2a.StateCompleted)}

func TestAddedAgentsClaimTheirQueuedTasks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(config(nil, agent("a", say(done...))))
	f.waitState(f.submit("a", "1"), a2a.StateCompleted)
	waits := f.submit("b", "2")
	p.SetAgents([]worker.Agent{agent("a", say(done...)), agent("b", say(done...))})
	f.waitState(waits, a2a.StateCompleted)
	f.waitState(f.submit("b", "3"), a2a.StateCompleted) // by a wake-up, because a poll of all queues is an hour away
}

func TestChangedAgentsKeepTheirRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before, after := newGate(), newGate()
	one := a2a.Limits{Concurrency: 1}
	p := f.start(config(nil, agent("a", before, one)))
	old := f.submit("a", "1")
	receive(t, "first run", before.started)
	p.SetAgents([]worker.Agent{agent("a", after, one)})
	next := f.submit("a", "2")
	other := f.submit("b", "3")
	p.SetAgents([]worker.Agent{agent("a", after, one), agent("b", say(done...))})
	f.waitState(other, a2a.StateCompleted) // so the pool has polled, and a was full
	select {
	case run := <-after.started:
		t.Fatalf("task %s runs beside %s, and one may run", run.Task.ID, old)
	default:
	}
	before.next <- done
	f.waitState(old, a2a.StateCompleted)
	receive(t, "second run", after.started)
	after.next <- done
	f.waitState(next, a2a.StateCompleted)
}

func TestRemovedAgentsFinishTheirRunsAndStartNone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, back := newGate(), newGate()
	p := f.start(config(nil, agent("a", a), agent("b", say(done...))))
	runs := f.submit("a", "1")
	receive(t, "first run", a.started)
	p.SetAgents([]worker.Agent{agent("b", say(done...))})
	f.waitState(f.submit("b", "2"), a2a.StateCompleted)
	waits := f.submit("a", "3")
	f.waitState(f.submit("b", "4"), a2a.StateCompleted)
	f.hub.Wake("ready:a")
	f.waitState(f.submit("b", "5"), a2a.StateCompleted)
	if got := f.snapshot(waits).Status.State; got != a2a.StateSubmitted {
		t.Errorf("a task of a removed agent is %s", got)
	}
	a.next <- done
	f.waitState(runs, a2a.StateCompleted)
	p.SetAgents([]worker.Agent{agent("a", back)})
	receive(t, "run after the agent was added again", back.started)
	back.next <- done
	f.waitState(waits, a2a.StateCompleted)
}

func TestLeasesOfAddedAgentsAreRenewed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	p := f.start(config(nil, agent("a", say(done...)))) // leases of an hour
	p.SetAgents([]worker.Agent{agent("b", g, a2a.Limits{LeaseTTL: 12 * time.Second})})
	task := f.submit("b", "1")
	receive(t, "run", g.started)
	renewed := func(after string) {
		t.Helper()
		f.waitQuery(
			"SELECT (SELECT lease_until FROM a2a.task_leases) > " +
				"(SELECT claimed_at + interval '12 seconds' + interval '" + after + "' FROM a2a.task_attempts)",
		)
	}
	renewed("500 ms")
	p.SetAgents([]worker.Agent{agent("a", say(done...))}) // a run keeps its lease without its agent, too
	renewed("6 seconds")
	g.next <- done
	f.waitState(task, a2a.StateCompleted)
}

func TestPoliciesOutliveTheirAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, remote := agent("a", say()), agent("far", nil)
	a.OnLostLease, remote.OnLostLease = a2a.LostLeaseFail, a2a.LostLeaseInputRequired
	p := worker.New(f.Tasks, f.hub, config(nil, a, remote))
	p.SetAgents([]worker.Agent{agent("b", say())})
	same(t, "policies", []tasks.Policy{
		{
			Agent:       "a",
			Fate:        "fail",
			MaxAttempts: 3,
		},
		{Agent: "b", Fate: "retry", MaxAttempts: 3},
		{Agent: "far", Fate: "input-required", MaxAttempts: 3},
	}, p.Policies())
}
