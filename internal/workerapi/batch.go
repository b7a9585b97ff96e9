package workerapi

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/attempt"
	"github.com/a2ad/a2ad/internal/executor/vocab"
	"github.com/a2ad/a2ad/internal/store"
)

// gather makes a batch of what a request reports, all or nothing. What is wrong with it is
// CodeInvalidAgentResponse. Of several checkpoints the last one counts, and that of the request
// is the last: all of a request is saved in one transaction. A checkpoint needs no event after
// it here, unlike those of exec and http: the answer says that it was saved.
func (a *API) gather(ctx context.Context, h *store.Held, req *eventsRequest) (b store.Batch, err error) {
	b.ID = req.batchID
	d := vocab.Decoder{
		TaskID: h.TaskID.String(), ContextID: h.ContextID,
		// Nobody knows what ids an earlier request was given, so those of another place in the
		// log are others.
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

// admitArtifacts refuses more artifacts than a task may have. A log that is shorter than that
// cannot name so many.
func (a *API) admitArtifacts(ctx context.Context, h *store.Held, ids []string) error {
	limit := a.bounds.Artifacts
	if limit == 0 || len(ids) == 0 || h.LastSeq+int64(len(ids)) <= int64(limit) {
		return nil
	}
	all := a.known.of(h.TaskID)
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

// known remembers the artifacts of tasks with a long log, so that it is read once. It can be
// lost at any time.
type known struct {
	mu    sync.Mutex
	tasks map[a2a.ID]*artifacts // guarded by mu
}

// artifacts are the ids that a task's log names up to an event.
type artifacts struct {
	mu      sync.Mutex
	ids     map[string]bool // guarded by mu
	through int64           // guarded by mu
}

const maxKnown = 1000

func (k *known) of(task a2a.ID) *artifacts {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tasks == nil || len(k.tasks) >= maxKnown {
		k.tasks = make(map[a2a.ID]*artifacts)
	}
	if k.tasks[task] == nil {
		k.tasks[task] = &artifacts{ids: make(map[string]bool)}
	}
	return k.tasks[task]
}

func (k *known) drop(task a2a.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.tasks, task)
}
