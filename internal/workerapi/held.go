package workerapi

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// heldRuns remembers the runs whose leases this replica has just claimed or renewed for workers. A report on such a run
// is written without a statement before it that renews the lease and reads the run. The append writes only if the epoch
// and the length of the log are those that are remembered, so a run that is remembered wrongly costs a statement and
// nothing else. A run may be forgotten at any time.
//
// A run is remembered for as long as its lease would not be renewed anyway. That span is measured by the clock of this
// process from before the statement on, so it ends too early rather than too late.
type heldRuns struct {
	mu   sync.Mutex
	runs map[heldKey]*heldRun // guarded by mu
}

type heldKey struct {
	task  a2a.ID
	epoch int64
}

// heldRun is used by one request at a time: the one that has taken it.
type heldRun struct {
	*tasks.RemoteRun
	until time.Time // when it is forgotten
	batch string    // the id of the newest batch
}

// maxHeldRuns bounds the memory of the runs, to about 5 MB.
const maxHeldRuns = 10_000

// take returns a run and forgets it, so that no other request uses it meanwhile. It returns nil if the run is not
// remembered, or if the batch repeats the newest one.
func (h *heldRuns) take(g tasks.RemoteLease) *heldRun {
	key := heldKey{g.Task, g.Epoch}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.runs[key]
	if r == nil {
		return nil
	}
	delete(h.runs, key)
	if !time.Now().Before(r.until) || g.Batch != "" && g.Batch == r.batch {
		return nil
	}
	return r
}

// put remembers a run. asked is a moment before the statement that set its Fresh and Left.
func (h *heldRuns) put(run *tasks.RemoteRun, asked time.Time) {
	fresh := run.Fresh
	if run.Left > 0 {
		fresh = min(fresh, run.Left)
	}
	h.putBack(&heldRun{RemoteRun: run, until: asked.Add(fresh)})
}

// putBack remembers a run that was taken.
func (h *heldRuns) putBack(r *heldRun) {
	now := time.Now()
	if !now.Before(r.until) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.runs) >= maxHeldRuns {
		maps.DeleteFunc(h.runs, func(_ heldKey, r *heldRun) bool { return !now.Before(r.until) })
	}
	if h.runs == nil || len(h.runs) >= maxHeldRuns {
		h.runs = make(map[heldKey]*heldRun)
	}
	h.runs[heldKey{r.TaskID, r.Epoch}] = r
}

// forget forgets all runs.
func (h *heldRuns) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.runs)
}

// reportHeld is report for a run that is remembered. If it returns neither done nor an error, it has written nothing,
// and the lease must be renewed before anything can be said of the report.
func (a *API) reportHeld(
	ctx context.Context, r *request, g tasks.RemoteLease, req *eventsRequest,
) (n answer, done bool, err error) {
	h := a.held.take(g)
	if h == nil || !r.principal.MayUse(h.Agent) {
		return answer{}, false, nil
	}
	a.presence.note(h.Agent)
	b, err := a.newBatch(ctx, r.mem, h.RemoteRun, req)
	if err != nil && a2a.CodeOf(err) != a2a.CodeInvalidAgentResponse {
		return answer{}, false, err
	}
	if err != nil || isEmpty(&b) {
		return answer{}, false, nil
	}
	n, continues, err := a.append(ctx, h.RemoteRun, b)
	switch {
	case err == nil && continues:
		h.batch = req.batchID
		a.held.putBack(h)
	case errors.Is(err, db.ErrLeaseLost), db.IsCode(err, repeatedBatch),
		err != nil && a2a.CodeOf(err) == a2a.CodeInvalidAgentResponse:
		return answer{}, false, nil
	}
	return n, err == nil, err
}

// repeatedBatch is the error of PostgreSQL for a key that is stored already, here the id of a batch.
const repeatedBatch = "23505"
