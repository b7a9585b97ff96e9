package workerapi

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/executor/vocab"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// newBatch makes one batch of all that a request reports. It returns CodeInvalidAgentResponse if
// any part is invalid. The last of several checkpoints counts, and the checkpoint of the request
// comes last: all of a request is saved in one transaction. Unlike with exec and http no event need
// follow a checkpoint, because the answer confirms that it was saved.
func (a *API) newBatch(
	ctx context.Context, mem *budget.Lease, h *tasks.RemoteRun, req *eventsRequest,
) (b tasks.Batch, err error) {
	b.ID, b.ContextID = req.batchID, h.ContextID
	d := vocab.Decoder{
		TaskID: h.TaskID.String(), ContextID: h.ContextID,
		// The generated ids of two requests must differ, and the length of the log differs.
		Prefix: strconv.FormatInt(h.LastSeq, 10) + "-",
	}
	events, size, err := decodeAll(&d, req.events)
	if err != nil {
		return b, err
	}
	journal, err := a.journal(ctx, h, events)
	if err != nil {
		return b, err
	}
	ends := false
	var artifacts []string
	for i, e := range events {
		if ends {
			return b, invalid(place(i), errors.New("nothing may follow the status or the wait that ends the run"))
		}
		ends = a2a.EndsRun(e)
		switch e := e.(type) {
		case *a2a.Checkpoint:
			b.Checkpoint = e.Body
			continue
		case *a2a.Step, *a2a.Wait, *a2a.Call:
			s, err := a.addStep(&b, h, journal, e)
			if err != nil {
				return b, invalid(place(i), err)
			}
			if s != nil && s.Again {
				n, err := a.restore(ctx, mem, h, &b, s)
				if err != nil {
					return b, err
				}
				size += n
			}
			continue
		case *a2a.Usage:
			b.Usage = append(b.Usage, *e)
			continue
		case *a2a.ArtifactUpdate:
			artifacts = append(artifacts, e.Artifact.ID)
		}
		b.Events = append(b.Events, e)
	}
	if req.checkpoint != nil {
		_, n, err := attempt.Prepare(&a2a.Checkpoint{Body: req.checkpoint})
		if err != nil {
			return b, invalid("checkpoint", err)
		}
		size += n
		b.Checkpoint = req.checkpoint
	}
	if err := a.bounds.Admit(&h.Lease, len(b.Events), size, ends); err != nil {
		return b, invalid("events", err)
	}
	return b, a.admitArtifacts(ctx, h, artifacts)
}

// place names the i-th event of a request.
func place(i int) string { return "events[" + strconv.Itoa(i) + "]" }

// decodeAll decodes and checks the events of a request. size is their approximate size.
func decodeAll(d *vocab.Decoder, list [][]byte) (events []a2a.Event, size int, err error) {
	for i, data := range list {
		e, err := d.Decode(data)
		if err != nil {
			return nil, 0, invalid(place(i), err)
		}
		e, n, err := attempt.Prepare(e)
		if err != nil {
			return nil, 0, invalid(place(i), err)
		}
		size += n
		events = append(events, e)
	}
	return events, size, nil
}

// journal returns a journal that knows those steps of the task whose keys the events have.
func (a *API) journal(ctx context.Context, h *tasks.RemoteRun, events []a2a.Event) (*attempt.Journal, error) {
	var keys []string
	calls := false
	for _, e := range events {
		switch e := e.(type) {
		case *a2a.Step:
			keys = append(keys, e.Key)
		case *a2a.Wait:
			keys = append(append(keys, e.Key), e.Tasks...)
		case *a2a.Call:
			keys, calls = append(keys, e.Key), true
		}
	}
	if len(keys) == 0 || h.Steps == 0 {
		return a.bounds.Journal(h.Steps, nil), nil
	}
	known, err := a.store.StepsKeyed(ctx, h.TaskID, keys)
	if err != nil {
		return nil, err
	}
	j := a.bounds.Journal(h.Steps, known)
	if calls {
		n, err := a.store.CallsOf(ctx, h.TaskID)
		if err != nil {
			return nil, err
		}
		j.SetCalls(n)
	}
	return j, nil
}

// addStep adds a step, a call or a wait to the batch. It returns what is stored of it; nil if it is stored already.
func (a *API) addStep(
	b *tasks.Batch, h *tasks.RemoteRun, journal *attempt.Journal, e a2a.Event,
) (*a2a.StepRecord, error) {
	s, err := journal.Record(e, h.LastSeq+int64(len(b.Events)))
	if err != nil {
		return nil, err
	}
	if s != nil {
		if err := a.bounds.AdmitCall(&h.Lease, s, journal.Calls()); err != nil {
			return nil, err
		}
		b.Steps = attempt.AddStep(b.Steps, *s)
	}
	if w, ok := e.(*a2a.Wait); ok {
		b.Wait = w
		if w.Status != nil {
			b.Events = append(b.Events, &a2a.StatusUpdate{Status: *w.Status})
		}
	}
	return s, nil
}

// restore adds the event that sets the artifact of a step back that begins again, and returns its size.
func (a *API) restore(
	ctx context.Context, mem *budget.Lease, h *tasks.RemoteRun, b *tasks.Batch, s *a2a.StepRecord,
) (int, error) {
	if err := mem.Grow(ctx, 2*h.Bytes); err != nil {
		return 0, err
	}
	u, size, err := attempt.Restored(ctx, a.store, &h.Lease, b.Events, s)
	if u != nil {
		b.Events = append(b.Events, u)
	}
	return size, err
}

func invalid(at string, err error) error {
	e := a2a.Errorf(a2a.CodeInvalidAgentResponse, "%s: %w", at, err)
	e.Field = at
	return e
}

// admitArtifacts refuses more artifacts than a task may have. A log with fewer events than that
// cannot name too many, so it is not read.
func (a *API) admitArtifacts(ctx context.Context, h *tasks.RemoteRun, ids []string) error {
	limit := a.bounds.Artifacts
	if limit == 0 || len(ids) == 0 || h.LastSeq+int64(len(ids)) <= int64(limit) {
		return nil
	}
	all := a.artifacts.of(h.TaskID)
	all.mu.Lock()
	defer all.mu.Unlock()
	more, err := a.store.ArtifactIDs(ctx, h.TaskID, all.through)
	if err != nil {
		return err
	}
	for _, id := range more {
		all.ids[id] = true
	}
	all.through = h.LastSeq
	fresh := make(map[string]bool)
	for _, id := range ids {
		if !all.ids[id] {
			fresh[id] = true
		}
	}
	if err := a.bounds.TooMany(len(all.ids) + len(fresh)); err != nil && len(fresh) > 0 {
		return invalid("events", err)
	}
	return nil
}

// artifactCache remembers the artifacts of tasks with a long log, so that each log is read once. It
// may lose entries at any time.
type artifactCache struct {
	mu    sync.Mutex
	tasks map[a2a.ID]*artifactIDs // guarded by mu
}

// artifactIDs are the ids that the log of a task names, up to an event.
type artifactIDs struct {
	mu      sync.Mutex
	ids     map[string]bool // guarded by mu
	through int64           // guarded by mu
}

const maxCachedTasks = 1000

func (c *artifactCache) of(task a2a.ID) *artifactIDs {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks == nil || len(c.tasks) >= maxCachedTasks {
		c.tasks = make(map[a2a.ID]*artifactIDs)
	}
	if c.tasks[task] == nil {
		c.tasks[task] = &artifactIDs{ids: make(map[string]bool)}
	}
	return c.tasks[task]
}

func (c *artifactCache) drop(task a2a.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tasks, task)
}
