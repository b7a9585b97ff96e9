package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// An idle remote worker and the servers are listed by their heartbeats. A remote worker that holds leases and asks for
// more is one entry.
func TestIdleWorkersAreListed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("acme", "ann", "words", "x")
	f.claim("words", "w1")
	beat := &tasks.Heartbeat{
		Name: "r1", Instance: "i", Version: "1.2.3", Host: "node-1", Slots: 8, Busy: 2, BusyShare: 0.5,
		Commands: 3, BusyCommands: 1, CommandsWait: 7 * time.Second,
	}
	for _, name := range []string{"w1", "w2", "w3"} {
		beat.Remote = append(beat.Remote, tasks.RemoteWorker{
			Tenant: "acme", Name: name, Version: "a2ad-go/1.0", Agents: []string{"far", "words"},
		})
	}
	if err := f.Tasks.Heartbeat(t.Context(), beat); err != nil {
		t.Fatal(err)
	}
	f.Exec(`UPDATE a2a.workers SET seen_at = seen_at - interval '1 minute' WHERE name = 'w2'`)
	f.Exec(`UPDATE a2a.workers SET seen_at = seen_at - interval '11 minutes' WHERE name = 'w3'`)
	got := map[string]string{}
	for _, w := range read[admin.WorkerList](f, f.get("both", "/workers")).Workers {
		if w.HeartbeatAt == nil || w.StartedAt == nil {
			t.Errorf("no times of %+v", w)
		}
		got[w.Name] = fmt.Sprint(w.State, w.Replica, w.Running, w.Version, w.Host, w.Tenant, w.Slots, w.Busy,
			w.BusyPercent, w.Commands, w.BusyCommands, w.CommandsWait, w.Asks)
	}
	want := map[string]string{
		"r1": fmt.Sprint("idle", true, 0, "1.2.3", "node-1", "", 8, 2, 50, 3, 1, 7000, []string{}),
		"w1": fmt.Sprint("active", false, 1, "a2ad-go/1.0", "", "acme", 0, 0, 0, 0, 0, 0, []string{"far", "words"}),
		"w2": fmt.Sprint("gone", false, 0, "a2ad-go/1.0", "", "acme", 0, 0, 0, 0, 0, 0, []string{"far", "words"}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("workers (-want +got):\n%s", diff)
	}
}

// claim gives a task of an agent to a worker.
func (f *fixture) claim(agent, worker string) *tasks.Lease {
	f.T.Helper()
	leases, err := f.Tasks.NewClaimer().ClaimFor(f.T.Context(), tasks.ClaimRequest{
		Agent: agent, Worker: worker, Slots: 1, TTL: time.Hour,
	})
	if err != nil {
		f.T.Fatal(err)
	}
	if len(leases) == 0 {
		return nil
	}
	return &leases[0]
}

func TestAgentsArePausedAndResumed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *admin.Config) {
		c.Agents = func() []*a2a.Agent {
			return []*a2a.Agent{
				{
					Name: "idle", Executor: "http", Limits: a2a.Limits{Concurrency: 3, Deadline: time.Minute},
					Card: a2a.Card{Description: "Does nothing.", Version: "2", Skills: []a2a.Skill{{ID: "rest"}}},
				},
			}
		}
	})
	f.submit("acme", "ann", "words", "x")
	f.submit("acme", "ann", "words", "y")
	f.claim("words", "w1")
	f.submit("acme", "ann", "other", "z")
	served, not := true, false
	agents := func() map[string]admin.Agent {
		t.Helper()
		all := map[string]admin.Agent{}
		for _, a := range read[admin.AgentList](f, f.get("both", "/agents")).Agents {
			all[a.Name] = a
		}
		return all
	}
	got := agents()
	if len(got) != 3 || got["words"].State != "active" || got["words"].Waiting != 1 || got["words"].Running != 1 ||
		*got["words"].Served != not {
		t.Errorf("agents %+v", got)
	}
	if a := got["idle"]; *a.Served != served || a.Description != "Does nothing." || a.Concurrency != 3 ||
		a.Executor != "http" || a.DeadlineMs != 60_000 || a.Version != "2" || strings.Join(a.Skills, " ") != "rest" {
		t.Errorf("the agent with a file: %+v", a)
	}
	list := read[admin.AgentList](f, f.get("one", "/agents"))
	if len(list.Agents) != 1 || list.Agents[0].Name != "other" {
		t.Errorf("credentials for the agent other see %+v", list.Agents)
	}

	paused := read[admin.StoppedAgent](f, f.post("both", "/agents/words/pause", `{"reason":"bad release"}`))
	if paused.Name != "words" || !paused.Paused {
		t.Errorf("paused %+v", paused)
	}
	if got := f.post("both", "/agents/words/pause", `{}`); got.reason() != "ALREADY_STOPPED" {
		t.Errorf("paused again: %d %s", got.status, got.body)
	}
	words := agents()["words"]
	if p := words.Paused; words.State != "paused" || p == nil || p.Actor != "key k1" || p.Reason != "bad release" {
		t.Errorf("the paused agent: %+v", words)
	}
	if f.claim("words", "w1") != nil {
		t.Error("a task of the paused agent was claimed")
	}
	resumed := read[admin.StoppedAgent](f, f.post("both", "/agents/words/resume", `{"reason":"rolled back"}`))
	if resumed.Name != "words" || resumed.Paused {
		t.Errorf("resumed %+v", resumed)
	}
	if got := f.post("both", "/agents/words/resume", `{}`); got.reason() != "NOT_STOPPED" {
		t.Errorf("resumed again: %d %s", got.status, got.body)
	}
	if f.claim("words", "w1") == nil {
		t.Error("no task of the resumed agent was claimed")
	}
}

func TestQueuesAreListedByLane(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *admin.Config) {
		c.Agents = func() []*a2a.Agent { return []*a2a.Agent{{Name: "words", Limits: a2a.Limits{Concurrency: 3}}} }
	})
	for range 7 { // more than the first lane takes of one owner
		f.submit("acme", "ann", "words", "x")
	}
	f.submit("acme", "bob", "words", "y")
	f.submit("acme", "bob", "other", "z")
	f.claim("words", "w1")
	f.post("both", "/agents/words/pause", `{"reason":"a test"}`)
	all := read[admin.QueueList](f, f.get("both", "/queues")).Queues
	if len(all) != 2 || all[0].Agent != "other" || all[0].State != "active" {
		t.Fatalf("queues %+v", all)
	}
	q := all[1]
	if q.State != "paused" || q.Waiting != 7 || q.Due != 7 || q.Running != 1 || q.Limit != 3 || len(q.Lanes) != 2 {
		t.Fatalf("the queue: %+v", q)
	}
	first, second := q.Lanes[0], q.Lanes[1]
	if first.Lane != 0 || second.Lane != 1 || first.Waiting+second.Waiting != 7 || first.Due != first.Waiting {
		t.Errorf("its lanes: %+v", q.Lanes)
	}
	list := read[admin.QueueList](f, f.get("one", "/queues")).Queues
	if len(list) != 1 || list[0].Agent != "other" {
		t.Errorf("credentials for the agent other see %+v", list)
	}
}

func TestWorkersAreDrainedAndResumed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("acme", "ann", "words", "x")
	f.submit("acme", "ann", "other", "y")
	l := f.claim("words", "team/w 1")
	f.Append(f.claim("other", "w2"), storetest.Artifact("a", "x"))
	workers := func() map[string]admin.Worker {
		t.Helper()
		all := map[string]admin.Worker{}
		for _, w := range read[admin.WorkerList](f, f.get("both", "/workers")).Workers {
			all[w.Name] = w
		}
		return all
	}
	w := workers()["team/w 1"]
	if w.State != "active" || w.Running != 1 || w.Expired != 0 || w.Replica || len(w.Agents) != 1 ||
		w.Agents[0] != "words" || w.HeartbeatAt == nil || w.SilentSince == nil || w.OldestAt == nil {
		t.Errorf("the worker at work: %+v", w)
	}
	f.Expire(l.TaskID)
	if w := workers()["team/w 1"]; w.State != "lost" || w.Expired != 1 {
		t.Errorf("the worker that renews nothing: %+v", w)
	}
	drained := read[admin.StoppedWorker](f, f.post("both", "/workers/w2/drain", `{"reason":"it hangs","expire":true}`))
	if drained.Name != "w2" || !drained.Drained || drained.Expired != 1 {
		t.Errorf("drained %+v", drained)
	}
	if got := f.post("both", "/workers/w2/drain", `{"expire":true}`); got.reason() != "ALREADY_STOPPED" {
		t.Errorf("drained again: %d %s", got.status, got.body)
	}
	if d := workers()["w2"]; d.State != "drained" || d.Drained == nil || d.Drained.Reason != "it hangs" {
		t.Errorf("the drained worker: %+v", d)
	}
	resumed := read[admin.StoppedWorker](f, f.post("both", "/workers/w2/resume", `{}`))
	if resumed.Name != "w2" || resumed.Drained {
		t.Errorf("resumed %+v", resumed)
	}
	if got := f.post("both", "/workers/team%2Fw%201/drain", `{}`); got.status != http.StatusOK {
		t.Errorf("a name with a slash: %d %s", got.status, got.body)
	}
	if w := workers()["team/w 1"]; w.State != "drained" {
		t.Errorf("a name with a slash: %+v", w)
	}
	f.Invariants()
}
