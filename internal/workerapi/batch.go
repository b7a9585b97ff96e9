package workerapi

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor/vocab"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// newBatch makes one batch of all that a request reports. It returns CodeInvalidAgentResponse if
// any part is invalid. The last of several checkpoints counts, and the checkpoint of the request
// comes last: all of a request is saved in one transaction. Unlike with exec and http no event need
// follow a checkpoint, because the answer confirms that it was saved.
func (a *API) newBatch(ctx context.Context, h *tasks.RemoteRun, req *eventsRequest) (b tasks.Batch, err error) {
	b.ID = req.batchID
	d := vocab.Decoder{
		TaskID: h.TaskID.String(), ContextID: h.ContextID,
		// The generated ids of two requests must differ, and the length of the log differs.
		Prefix: strconv.FormatInt(h.LastSeq, 10) + "-",
	}
	size, ends := 0, false
	var artifacts []string
	for i, data := range req.events {
		at := "events[" + strconv.Itoa(i) + "]"
		if ends {
			return b, invalid(at, errors.New("nothing may follow the status that ends the turn"))
		}
		e, err := d.Decode(data)
		if err != nil {
			return b, invalid(at, err)
		}
		e, n, err := attempt.Prepare(e)
		if err != nil {
			return b, invalid(at, err)
		}
		size += n
		switch e := e.(type) {
		case *a2a.Checkpoint:
			b.Checkpoint = e.Body
			continue
		case *a2a.ArtifactUpdate:
			artifacts = append(artifacts, e.Artifact.ID)
		case *a2a.StatusUpdate:
			ends = e.Status.State.EndsTurn()
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
