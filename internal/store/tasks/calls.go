package tasks

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/wake"
)

// Keys in the metadata of the first message of a task that was called: the id of the task whose run has called it, and
// the key of the call.
const (
	MetaParent = "a2ad/parent"
	MetaCall   = "a2ad/call"
)

// What the end of a task does to the children that it has called, as stored.
const (
	callCancel  = 1
	callAbandon = 2
)

func onParentEnd(c *a2a.Call) int16 {
	switch {
	case c == nil:
		return 0
	case c.Abandon:
		return callAbandon
	}
	return callCancel
}

// prepareCalls makes the submissions of the calls of a batch. It may read the queue.
func (s *Store) prepareCalls(ctx context.Context, a *pendingBatch) {
	for i := range a.batch.Steps {
		step := &a.batch.Steps[i]
		if step.Call == nil {
			continue
		}
		owner := db.Caller{Tenant: a.lease.Tenant, Owner: a.lease.Owner}
		parent := a.lease.TaskID.String()
		m := step.Call.Message
		m.ID, m.ContextID = db.NewUID().String(), a.batch.ContextID
		m.ReferenceTaskIDs = []string{parent}
		m.Metadata = withMember(withMember(m.Metadata, MetaCall, step.Key), MetaParent, parent)
		body := appendMessage(nil, &m)
		digest := sha256.Sum256(body)
		a.calls = append(a.calls, &submission{
			Submission: Submission{
				Caller: owner, Agent: step.Call.Agent, ContextID: m.ContextID, Message: m,
				Traceparent: a.lease.Traceparent,
			},
			body: body, digest: digest[:], uid: db.NewUID(), id: step.Child, parent: a.lease.TaskID, step: step.Seq,
			depth: a.lease.Depth + 1, lane: s.lane(ctx, laneKey{step.Call.Agent, owner.Tenant, owner.Owner}),
		})
	}
}

// hasFamily reports whether the batch may end a task that others have called, or that has called others.
func (a *pendingBatch) hasFamily() bool {
	n := len(a.rows)
	return n > 0 && a2a.State(a.rows[n-1].state).Terminal() &&
		(a.lease.Depth > 0 || a.lease.Steps > 0 || a.added > 0)
}

// appendCalls completes the transaction of batches: it stores the tasks that they call, ends the calls of those that
// they end, and locks the calls that they begin to wait for.
func (s *Store) appendCalls(ctx context.Context, tx *db.Tx, items []*pendingBatch, rows []appended) error {
	var called []*submission
	var slots []*reservedSlot
	var ended family
	for i := range rows {
		it := items[rows[i].Pos-1]
		called, slots = append(called, it.calls...), append(slots, it.slots...)
		if state := a2a.State(rows[i].State); state.Terminal() && it.hasFamily() {
			ended.add(rows[i].ID, it.lease.Depth > 0, it.lease.Steps+it.added > 0)
			ended.know(it, state)
		}
		if it.batch.Wait == nil {
			continue
		}
		for _, seq := range it.batch.Steps[len(it.batch.Steps)-1].Calls {
			ended.waiting, ended.steps = append(ended.waiting, rows[i].ID), append(ended.steps, int32(seq))
		}
	}
	if err := s.submitIn(ctx, tx, called, slots); err != nil {
		return err
	}
	return s.endFamily(ctx, tx, &ended)
}

// family is what a transaction must do about calls, because it ends tasks or begins waits.
type family struct {
	children []pgtype.UUID // ended tasks that may have been called
	parents  []pgtype.UUID // ended tasks that may have called others
	waiting  []pgtype.UUID // tasks that begin to wait for calls, and the steps of these
	steps    []int32
	results  map[a2a.ID][]byte // of those children whose results need not be read
}

// beforeEvents is the newest event of a task whose agent has reported nothing: it was submitted and claimed.
const beforeEvents = 2

// know keeps the result of a task whose agent has reported all in the batch that ends it.
func (f *family) know(it *pendingBatch, end a2a.State) {
	if it.lease.Depth == 0 || it.lease.LastSeq > beforeEvents || it.lease.Bytes+int64(it.size) > maxInline {
		return
	}
	t := a2a.Task{ID: it.lease.TaskID}
	for _, e := range it.batch.Events {
		switch e := e.(type) {
		case *a2a.ArtifactUpdate:
			t.Artifacts = a2a.Fold(t.Artifacts, e)
		case *a2a.StatusUpdate:
			t.Status.Message = e.Status.Message
		}
	}
	t.Status.State = end
	if f.results == nil {
		f.results = make(map[a2a.ID][]byte)
	}
	f.results[t.ID] = callResult(&t, nil)
}

func (f *family) add(task pgtype.UUID, child, parent bool) {
	if child {
		f.children = append(f.children, task)
	}
	if parent {
		f.parents = append(f.parents, task)
	}
}

// familyOf is the family of tasks of which nothing is known.
func familyOf(ended []pgtype.UUID) *family { return &family{children: ended, parents: ended} }

// endFamily ends the calls that made the ended tasks, which may end waits of their parents, and notes the children of
// the ended tasks for their cancel. The transaction has locked the ended tasks, and locks no task after this.
func (s *Store) endFamily(ctx context.Context, tx *db.Tx, f *family) error {
	q := dbsqlc.New(tx)
	if len(f.parents) > 0 {
		n, err := q.OrphansAdd(ctx, f.parents)
		if err != nil {
			return err
		}
		if n > 0 {
			tx.Wake(wake.Orphans)
		}
	}
	if len(f.children) == 0 && len(f.waiting) == 0 {
		return nil
	}
	locked, err := q.CallsLock(ctx, dbsqlc.CallsLockParams{Children: f.children, Waiting: f.waiting, Steps: f.steps})
	if err != nil {
		return err
	}
	ended := slices.DeleteFunc(locked, func(r dbsqlc.CallsLockRow) bool { return !r.Ends })
	return s.endCalls(ctx, tx, ended, f.results)
}

// endCalls ends the steps of calls whose tasks have ended. The transaction has locked the steps.
func (s *Store) endCalls(
	ctx context.Context, tx *db.Tx, calls []dbsqlc.CallsLockRow, known map[a2a.ID][]byte,
) error {
	if len(calls) == 0 {
		return nil
	}
	q := dbsqlc.New(tx)
	results, err := callResults(ctx, q, calls, known)
	if err != nil {
		return fmt.Errorf("read the results of called tasks: %w", err)
	}
	p := dbsqlc.CallsEndParams{Results: results}
	for _, c := range calls {
		p.Parents, p.Steps = append(p.Parents, c.ParentID), append(p.Steps, c.Step)
	}
	due, err := q.CallsEnd(ctx, p)
	if due {
		tx.Wake(wake.Waits)
	}
	return err
}

// maxInline is the size of a task up to which its artifacts are part of the result of its call. The result of a larger
// one has their ids and names.
const maxInline = 16 << 10

// callResults returns what the parents learn about the ends of the tasks that they have called.
func callResults(
	ctx context.Context, q *dbsqlc.Queries, calls []dbsqlc.CallsLockRow, known map[a2a.ID][]byte,
) ([][]byte, error) {
	var small, large []pgtype.UUID
	for _, c := range calls {
		switch {
		case known[c.ChildID.Bytes] != nil:
		case c.Bytes <= maxInline:
			small = append(small, c.ChildID)
		default:
			large = append(large, c.ChildID)
		}
	}
	read := make(map[a2a.ID]*taskBuilder)
	for _, w := range []struct {
		ids       []pgtype.UUID
		artifacts bool
	}{{small, true}, {large, false}} {
		if len(w.ids) == 0 {
			continue
		}
		rows, err := q.TaskSnapshots(ctx, dbsqlc.TaskSnapshotsParams{Ids: w.ids, Artifacts: w.artifacts})
		if err != nil {
			return nil, err
		}
		for id, b := range build(rows, Want{Artifacts: w.artifacts}) {
			read[id] = b
		}
	}
	results := make([][]byte, len(calls))
	for i, c := range calls {
		if results[i] = known[c.ChildID.Bytes]; results[i] != nil {
			continue
		}
		b := read[c.ChildID.Bytes]
		if b == nil {
			return nil, fmt.Errorf("task %s is gone", a2a.ID(c.ChildID.Bytes))
		}
		b.task.Agent = c.Agent
		if c.Bytes <= maxInline {
			results[i] = callResult(b.task, nil)
			continue
		}
		ids, err := q.ArtifactIDs(ctx, c.ChildID, 0)
		if err != nil {
			return nil, err
		}
		results[i] = callResult(b.task, ids)
	}
	return results, nil
}

// endNames are the names of states in the results of calls: those of A2A 1.0, as in the rest of a run.
var endNames = map[a2a.State]string{
	a2a.StateCompleted: "TASK_STATE_COMPLETED", a2a.StateFailed: "TASK_STATE_FAILED",
	a2a.StateCanceled: "TASK_STATE_CANCELED", a2a.StateRejected: "TASK_STATE_REJECTED",
}

// callResult writes the result of a call: the id and the state of the task, its last message, and its artifacts, or the
// ids of those that are left out.
func callResult(t *a2a.Task, leftOut []string) []byte {
	b := append([]byte(`{"taskId":"`), t.ID.String()...)
	b = append(append(b, `","state":"`...), endNames[t.Status.State]...)
	b = append(b, '"')
	if t.Status.Message != nil {
		b = appendMessage(append(b, `,"message":`...), t.Status.Message)
	}
	if len(t.Artifacts) == 0 && len(leftOut) == 0 {
		return append(b, '}')
	}
	b = append(b, `,"artifacts":[`...)
	for i := range t.Artifacts {
		b = appendCalledArtifact(b, &t.Artifacts[i])
	}
	for _, id := range leftOut {
		b = append(rawjson.AppendString(append(b, `{"artifactId":`...), id), `},`...)
	}
	return append(b[:len(b)-1], `]}`...)
}

func appendCalledArtifact(b []byte, a *a2a.Artifact) []byte {
	b = rawjson.AppendString(append(b, `{"artifactId":`...), a.ID)
	b = appendText(b, `,"name":`, a.Name)
	b = appendText(b, `,"description":`, a.Description)
	b = appendParts(append(b, `,"parts":`...), a.Parts)
	b = appendRaw(b, `,"metadata":`, a.Metadata)
	return append(b, `},`...)
}

// CallsOf returns how many calls the runs of a task have made.
func (s *Store) CallsOf(ctx context.Context, task a2a.ID) (n int, err error) {
	err = s.db.RepeatRead(ctx, func() error {
		calls, err := dbsqlc.New(s.db.Work()).CallsCount(ctx, db.PGID(task))
		n = int(calls)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count calls: %w", db.UnavailableToRun(err))
	}
	return n, nil
}
