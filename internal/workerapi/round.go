package workerapi

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

// asker is a claim that waits, in one round of the dispatcher. The goroutine of the dispatcher uses it alone.
type asker struct {
	*claim
	got      claimResult
	agents   int // that the round has still to claim from
	finished bool
}

func (k *asker) room() int { return k.max - len(k.got.leases) }

// mostSlots is for how many tasks one statement asks at most, so that other replicas get their part of a burst. The
// first claim may ask for more.
const mostSlots = 256

// serve tries once to claim tasks for each waiting claim, from the queues of its agents in turn. Claims for the same
// agent share a statement: its cost is more than that of a few tasks.
func (d *dispatcher) serve(ctx context.Context, claimer *tasks.Claimer) {
	d.turn++
	var agents []*agent
	askers := make(map[*agent][]*asker)
	for _, c := range d.waitingClaims() {
		k := &asker{claim: c, agents: len(c.agents)}
		for i := range c.agents {
			a := c.agents[(d.turn+i)%len(c.agents)]
			if askers[a] == nil {
				agents = append(agents, a)
			}
			askers[a] = append(askers[a], k)
		}
	}
	for _, a := range agents {
		d.subscribe(a.name) // before the claim, so that no wake-up is missed
		for rest := askers[a]; len(rest) > 0 && ctx.Err() == nil; {
			var group []*asker
			if group, rest = d.startClaim(a.name, rest); len(group) > 0 {
				d.claim(ctx, claimer, a, group)
			}
		}
		for _, k := range askers[a] {
			if k.agents--; k.agents == 0 || k.room() == 0 || k.got.err != nil {
				d.finish(ctx, k)
			}
		}
	}
}

// startClaim returns the first askers, whose claims share a statement, and those that come after them. There are none
// if the queue seems to be empty. It clears the state of the queue.
func (d *dispatcher) startClaim(agent string, askers []*asker) (group, rest []*asker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.queues[agent]
	if state == 0 {
		return nil, nil
	}
	slots, waits := 0, true
	for len(askers) > 0 {
		k := askers[0]
		if !k.done && !k.finished && k.room() > 0 && !d.api.drained(k.worker) {
			if slots > 0 && slots+k.room() > mostSlots {
				break
			}
			slots += k.room()
			waits = waits && !k.noWait
			group = append(group, k)
		}
		askers = askers[1:]
	}
	if len(group) == 0 {
		return nil, nil
	}
	if state == mayHoldTasks && waits { // a claim that does not wait is tried now in any case
		if d.unsure++; d.unsure > fewQueues { // more queues woke up meanwhile: the next round asks for all
			d.signal()
			return nil, nil
		}
	}
	d.clearLocked(agent)
	return group, askers
}

// claim claims tasks of one agent for a group of claims.
func (d *dispatcher) claim(ctx context.Context, claimer *tasks.Claimer, a *agent, group []*asker) {
	ask := tasks.ClaimRequest{
		Agent: a.name, Worker: group[0].worker, Slots: group[0].room(),
		Running: a.limits.Concurrency, TTL: a.limits.LeaseTTL, Deadline: a.limits.Deadline,
	}
	slots := ask.Slots
	for _, k := range group[1:] {
		ask.Others = append(ask.Others, tasks.WorkerSlots{Worker: k.worker, Slots: k.room()})
		slots += k.room()
	}
	asked := time.Now()
	// If the server or the request ended in the middle, it would be unknown what was claimed.
	leases, err := claimer.ClaimFor(context.WithoutCancel(ctx), ask)
	if err != nil {
		d.mark(a.name)
	} else if len(leases) == slots {
		d.markFull(a.name)
	}
	for _, k := range group {
		if len(k.got.leases) == 0 {
			k.got.asked, k.got.err = asked, err
		}
	}
	for i := range leases {
		for _, k := range group {
			if k.worker == leases[i].Worker && k.room() > 0 {
				k.got.leases = append(k.got.leases, leases[i])
				break
			}
		}
	}
}

// finish answers a claim that was given tasks, that failed, or that does not wait.
func (d *dispatcher) finish(ctx context.Context, k *asker) {
	if k.finished || k.got.err == nil && len(k.got.leases) == 0 && !k.noWait {
		return
	}
	k.finished = true
	if !d.answer(k.claim, k.got) && len(k.got.leases) > 0 {
		d.api.release(ctx, k.got.leases, workerGone)
	}
}
