package worker

import (
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

// registry knows the running attempts of this process, one for each task.
type registry struct {
	mu      sync.Mutex
	byTask  map[a2a.ID]*run // guarded by mu
	stopped error           // guarded by mu; the cause with which all runs end, once endAll was called
}

func newRegistry() *registry { return &registry{byTask: make(map[a2a.ID]*run)} }

// add registers a run. An earlier run of the same task has lost its lease and ends: no renewal would tell
// it, because renewals only see registered runs.
func (g *registry) add(r *run) {
	g.mu.Lock()
	earlier, stopped := g.byTask[r.lease.TaskID], g.stopped
	g.byTask[r.lease.TaskID] = r
	g.mu.Unlock()
	if earlier != nil {
		earlier.cancel(executor.ErrLeaseLost)
	}
	if stopped != nil {
		r.cancel(stopped)
	}
}

// remove forgets a run. A later run of the same task stays.
func (g *registry) remove(r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byTask[r.lease.TaskID] == r {
		delete(g.byTask, r.lease.TaskID)
	}
}

// withTTL returns the runs whose leases have this length.
func (g *registry) withTTL(ttl time.Duration) (runs []*run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.byTask {
		if r.queue.limits.LeaseTTL == ttl {
			runs = append(runs, r)
		}
	}
	return runs
}

// endAll ends all runs, and those that start later.
func (g *registry) endAll(cause error) {
	g.mu.Lock()
	g.stopped = cause
	runs := make([]*run, 0, len(g.byTask))
	for _, r := range g.byTask {
		runs = append(runs, r)
	}
	g.mu.Unlock()
	for _, r := range runs {
		r.cancel(cause)
	}
}

func (g *registry) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.byTask)
}
