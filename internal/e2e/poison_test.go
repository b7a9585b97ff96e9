package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// A poisonous task kills its agent each time: the connection was accepted and the request was read, so its attempts
// count and it fails. Its neighbors are refused while the agent is down. That costs them no attempt, and they complete.
func TestPoisonousTaskFailsAndItsNeighborsComplete(t *testing.T) {
	t.Parallel()
	const poison, neighbors, attempts = "poison", 20, 3
	c := newCluster(t)
	var poisoned atomic.Int64
	deaths := make(chan struct{}, 100)
	agent := newChaosAgent(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var run agentRun
		if err := json.NewDecoder(r.Body).Decode(&run); err != nil {
			t.Errorf("the agent reads: %v", err)
		}
		if run.Messages[0].Parts[0].Text == poison {
			poisoned.Add(1)
			deaths <- struct{}{}
			<-r.Context().Done() // stop cuts the connection
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		fmt.Fprintln(w, `{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`)
	}))
	t.Cleanup(agent.stop)
	// One run at a time: a neighbor that the agent has read when it dies would be charged for that, too.
	c.agent("fragile", fmt.Sprintf("name: fragile\ndescription: Dies.\nskills: [{id: d, name: D, description: Dies, "+
		"tags: [test]}]\nexecutor: {http: {url: %q}}\nlimits: {max_attempts: %d, concurrency: 1}\n",
		"http://"+agent.addr+"/run", attempts))
	a := c.start("a")
	cl := c.client(a, "fragile")
	send := func(text string) string {
		got, err := cl.Send(bounded(t), client.SendParams{Message: say(text), NoWait: true})
		if err != nil {
			t.Fatal(err)
		}
		return got.TaskID
	}
	bad := send(poison)
	var good []string
	for range neighbors {
		good = append(good, send("x"))
	}
	refused := func() int64 {
		return one[int64](c, `SELECT count(*) FROM a2a.task_attempts WHERE outcome = 'unreachable'`)
	}
	for range attempts {
		select {
		case <-deaths:
		case <-time.After(patience):
			t.Fatal("the poisonous task does not run")
		}
		before := refused()
		agent.stop()
		good = append(good, send("y")) // the others may have completed
		until(t, "the dead agent refuses a task", func() bool { return refused() > before })
		if err := agent.start(); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(id string) a2a.State {
		var state a2a.State
		until(t, "task "+id+" ends", func() bool {
			task, err := cl.Get(bounded(t), id, 0)
			if err != nil {
				t.Fatal(err)
			}
			state = task.State
			return state.Terminal()
		})
		return state
	}
	if got := ends(bad); got != a2a.StateFailed || poisoned.Load() != attempts {
		t.Errorf("the poisonous task is %s after %d runs, want failed after %d", got, poisoned.Load(), attempts)
	}
	for _, id := range good {
		if got := ends(id); got != a2a.StateCompleted {
			t.Errorf("neighbor %s is %s, want completed", id, got)
		}
	}
	const charged = `SELECT count(*) FROM a2a.task_attempts WHERE task_id <> $1::text::uuid
		AND (outcome NOT IN ('unreachable', 'completed') OR outcome = 'completed' AND attempt > 1)`
	if n := one[int64](c, charged, bad); n != 0 {
		t.Errorf("%d attempts of neighbors were counted", n)
	}
}
