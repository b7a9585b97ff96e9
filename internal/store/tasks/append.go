package tasks

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Batch is what a run reports at once: events in order, steps, a checkpoint, usage. Only the last event may end the
// turn. A wait ends the run; the last of the steps records it. Error is the reason of a failure, for the record of
// attempts. A batch with an ID is recorded with the newest seq and the lease's Until, so that RenewRemote can answer a
// repeated batch.
type Batch struct {
	Events     []a2a.Event // no *a2a.Checkpoint among them
	Checkpoint a2a.Raw
	Steps      []a2a.StepRecord // new ones are numbered from the lease's Steps on
	Wait       *a2a.Wait
	Usage      []a2a.Usage // is added to the sums of the task and of the day
	Error      string
	ID         string
	// ContextID is the context of the task, which the tasks that it calls get. It is needed if a step is a call.
	ContextID string
	// Reply says that the last event, which completes the task with a message, is a direct reply:
	// the message is the answer in place of the task, unless a client knows of the task already.
	Reply bool
}

// Appended says where a batch is in the log. State is the state that was set, if any. It is working if the batch asked
// for the end of the turn but the client had sent more meanwhile (Requeued).
type Appended struct {
	Base     int64 // seq of the event before the first one
	At       time.Time
	State    a2a.State
	Requeued bool
}

// pendingBatch is a batch that is being written. Only the caller of Append changes it, and only that caller reads the
// fields of the lease that move.
type pendingBatch struct {
	lease *Lease
	batch Batch
	uids  []a2a.ID
	rows  []eventRow
	size  int
	calls []*submission   // the tasks that its steps make
	slots []*reservedSlot // of the calls, kept while the outcome is unknown; nil: the task waits in the queue
	added int             // new steps
	steps int             // bytes of all steps, and of the usage
	push  bool            // the heads of webhooks must be moved
}

// appended is a batch that was written.
type appended struct{ dbsqlc.EventAppendRow }

type eventRow struct {
	kind, state int16
	artifactID  string
	body, parts []byte
	messageID   string
	message     []byte
}

// uniqueViolation is the error of PostgreSQL for a key that is stored already.
const uniqueViolation = "23505"

func appendSize(a *pendingBatch) int { return a.size + a.steps }

// Append records events in order under lease, and ends the lease if they end the turn. If the lease is lost, it returns
// ErrLeaseLost and has written nothing. Appends of one lease must not overlap. An event that cannot be stored is
// CodeInvalidAgentResponse. While another transaction has locked the task, it waits until ctx ends.
//
// If the connection is lost, it finds out whether the batch was committed. CodeUnavailable means that it could not find
// out.
func (s *Store) Append(ctx context.Context, lease *Lease, batch Batch) (Appended, error) {
	a := &pendingBatch{
		lease: lease, batch: batch, push: lease.HasPush, rows: make([]eventRow, 0, len(batch.Events)),
		uids: make([]a2a.ID, 0, len(batch.Events)),
	}
	for _, e := range batch.Events {
		row, err := encodeEvent(e)
		if err != nil {
			return Appended{}, fmt.Errorf("append: %w", err)
		}
		a.rows = append(a.rows, row)
		a.uids = append(a.uids, db.NewUID())
		a.size += len(row.body) + len(row.parts) + len(row.message)
	}
	a.countSteps()
	a.countUsage()
	s.prepareCalls(ctx, a)
	a.slots = s.reserveSlots(a.calls)
	defer func() { releaseSlots(a.slots) }() // also after a panic
	lease.Kept = lease.Kept || batch.Checkpoint != nil
	out, err := db.Repeat(ctx, s.db, func(try int) (*appended, error) { return s.appendOne(ctx, a, try) })
	if db.IsCode(err, "22", "54") { // the agent's event is no JSON, no UTF-8, or exceeds a limit of PostgreSQL
		err = a2a.Error{Code: a2a.CodeInvalidAgentResponse, Message: "the event cannot be stored"}.With(err)
	}
	if err != nil {
		return Appended{}, fmt.Errorf("append: %w", db.UnavailableToRun(err))
	}
	if out == nil {
		return Appended{}, db.ErrLeaseLost
	}
	n := int64(len(batch.Events))
	lease.LastSeq, lease.HasPush = out.Base+n, out.HasPush
	lease.Bytes += int64(a.size)
	lease.Steps, lease.StepBytes = lease.Steps+a.added, lease.StepBytes+int64(a.steps)
	return Appended{
		Base: out.Base, At: db.WireTime(out.LastAt), State: a2a.State(out.State), Requeued: out.Requeued,
	}, nil
}

// tellAppended registers what must happen after the commit of a batch.
func (s *Store) tellAppended(tx *db.Tx, b *pendingBatch, out *appended) {
	tx.After(func() {
		s.counters.appendedBatch(b, out)
		if len(b.batch.Events) > 0 {
			s.cfg.Committed(b.lease.TaskID, b.entries(out))
		}
	})
	if out.Requeued || b.lease.Counted && b.ends() {
		tx.Wake(wake.Ready(b.lease.Agent))
	}
}

// appendOne tries once to write a batch: with others, and then alone if it was left out. No row means that it is
// fenced.
func (s *Store) appendOne(ctx context.Context, a *pendingBatch, try int) (*appended, error) {
	group := s.appends
	if a.onlySteps() {
		group, a.push = s.steps, true // steps move no head
	}
	out, err := group.do(ctx, a)
	for {
		switch {
		case db.Blocked(err) && ctx.Err() == nil: // it waited for a lock until the statement timed out
		case err == nil && out == nil && !a.push:
			a.push = true // fenced, or a client has set a webhook since the claim: try again and move its head
		case try > 1 && (err == nil && out == nil || db.IsCode(err, uniqueViolation)):
			return s.written(ctx, a) // its number or its id is stored already, or it is fenced
		default:
			return out, err
		}
		out, err = group.doAlone(ctx, a)
	}
}

// entries returns the batch's events as they are in the log. Status updates are copied, because the time and the state
// of the log may differ from what the agent reported.
func (a *pendingBatch) entries(out *appended) []a2a.Entry {
	at := db.WireTime(out.LastAt)
	entries := make([]a2a.Entry, len(a.batch.Events))
	for i, e := range a.batch.Events {
		if s, ok := e.(*a2a.StatusUpdate); ok {
			logged := *s
			logged.Status.Time = at
			if out.Requeued && i == len(entries)-1 {
				logged.Status.State = a2a.State(out.State)
			}
			e = &logged
		}
		entries[i] = a2a.Entry{TaskID: a.lease.TaskID, Seq: out.Base + 1 + int64(i), UID: a.uids[i], Time: at, Event: e}
	}
	entries[len(entries)-1].Messages = out.LastMessageSeq
	return entries
}

// flushAppends writes batches of several runs in one transaction. A nil result means that the batch is fenced.
func (s *Store) flushAppends(ctx context.Context, items []*pendingBatch) ([]*appended, error) {
	return s.flushOrdered(ctx, items, func(ctx context.Context, items []*pendingBatch) ([]appended, error) {
		p := s.appendParams(items)
		p.WithPush = slices.Contains(p.Folds, true) || slices.ContainsFunc(items, func(it *pendingBatch) bool {
			return it.push
		})
		return s.appendRows(ctx, items, p)
	})
}

// flushOrdered gives batches to write in the order of locks, and returns for each what was written.
func (s *Store) flushOrdered(
	ctx context.Context, items []*pendingBatch, write func(context.Context, []*pendingBatch) ([]appended, error),
) ([]*appended, error) {
	ctx, cancel := s.db.Detached(ctx)
	defer cancel()
	ordered := slices.Clone(items)
	slices.SortFunc(ordered, func(a, b *pendingBatch) int {
		return bytes.Compare(a.lease.TaskID[:], b.lease.TaskID[:])
	})
	written, err := write(ctx, ordered)
	if err != nil {
		return nil, err
	}
	made := make(map[*pendingBatch]*appended, len(items))
	for i := range written {
		made[ordered[written[i].Pos-1]] = &written[i]
	}
	out := make([]*appended, len(items))
	for i, it := range items {
		out[i] = made[it]
	}
	return out, nil
}

func (s *Store) appendParams(items []*pendingBatch) dbsqlc.EventAppendParams {
	k, n := len(items), 0
	for _, it := range items {
		n += len(it.rows)
	}
	p := dbsqlc.EventAppendParams{
		Numbers: make([]int32, k), TaskIds: make([]pgtype.UUID, k), Epochs: make([]int64, k), Counts: make([]int32, k),
		MessageCounts: make([]int32, k), Sizes: make([]int64, k),
		Artifacts: make([]bool, k), Throughs: make([]int64, k), Afters: make([]int64, k), Errors: make([]string, k),
		Asked: make([]int16, k), Said: make([]bool, k), Folds: make([]bool, k),
		Checkpoints: make([][]byte, k), Kept: make([]bool, k), Workers: make([]string, k), Tells: make([]bool, k),
		Replies:    make([]bool, k),
		StepCounts: make([]int32, k), StepAfters: make([]int32, k), StepSizes: make([]int64, k), Waits: make([]bool, k),
		Positions: make([]int32, 0, n), Places: make([]int32, 0, n), EventUids: make([]pgtype.UUID, 0, n),
		Kinds: make([]int16, 0, n), States: make([]int16, 0, n),
		Bodies: make([][]byte, 0, n), ArtifactIds: make([]string, 0, n), Parts: make([][]byte, 0, n),
		MessagePositions: []int32{}, MessagePlaces: []int32{}, MessageNumbers: []int32{}, MessageIds: []string{},
		Messages: [][]byte{},
	}
	for i, it := range items {
		p.Numbers[i], p.TaskIds[i], p.Epochs[i] = int32(i+1), db.PGID(it.lease.TaskID), it.lease.Epoch
		p.Counts[i], p.Sizes[i] = int32(len(it.rows)), int64(it.size)
		p.Throughs[i], p.Afters[i], p.Kept[i] = it.lease.Through, it.lease.LastSeq, it.lease.Kept
		p.Errors[i], p.Checkpoints[i] = it.batch.Error, it.batch.Checkpoint
		p.Folds[i], p.Workers[i] = it.folds(), cmp.Or(it.lease.Worker, s.db.Replica())
		it.stepParams(&p, i)
		p.Tells[i], p.Replies[i] = slices.ContainsFunc(it.batch.Events, DecidesAnswer), it.batch.Reply
		for j, r := range it.rows {
			if r.message != nil {
				p.MessageCounts[i]++
				p.MessagePositions = append(p.MessagePositions, int32(i+1))
				p.MessagePlaces = append(p.MessagePlaces, int32(j+1))
				p.MessageNumbers = append(p.MessageNumbers, p.MessageCounts[i])
				p.MessageIds = append(p.MessageIds, r.messageID)
				p.Messages = append(p.Messages, r.message)
			}
			if r.state > 0 {
				p.Asked[i], p.Said[i] = r.state, r.message != nil
			}
			p.Artifacts[i] = p.Artifacts[i] || r.artifactID != ""
			p.Positions = append(p.Positions, int32(i+1))
			p.Places = append(p.Places, int32(j+1))
			p.EventUids = append(p.EventUids, db.PGID(it.uids[j]))
			p.Kinds = append(p.Kinds, r.kind)
			p.States = append(p.States, r.state)
			p.Bodies = append(p.Bodies, r.body)
			p.ArtifactIds = append(p.ArtifactIds, r.artifactID)
			p.Parts = append(p.Parts, r.parts)
		}
	}
	return p
}

// appendRows runs the statement: alone, or in a transaction with more statements if artifacts are folded, tasks have
// webhooks or batches have ids.
func (s *Store) appendRows(ctx context.Context, items []*pendingBatch, p dbsqlc.EventAppendParams) ([]appended, error) {
	whole := p.WithPush || slices.ContainsFunc(items, func(it *pendingBatch) bool {
		return it.batch.ID != "" || len(it.batch.Steps) > 0 || len(it.batch.Usage) > 0 || it.hasFamily()
	})
	run := db.Autocommit[[]appended]
	if whole {
		run = db.InTx[[]appended]
	}
	return run(ctx, s.db.Work(), func(tx *db.Tx) ([]appended, error) {
		written, err := dbsqlc.New(tx).EventAppend(ctx, p)
		if err != nil {
			return nil, err
		}
		rows := make([]appended, len(written))
		tx.After(func() { s.counters.appends.add(len(rows)) })
		for i := range written {
			rows[i] = appended{written[i]}
			s.tellAppended(tx, items[rows[i].Pos-1], &rows[i])
		}
		if !whole {
			return rows, nil
		}
		return rows, s.appendWith(ctx, tx, items, rows)
	})
}

// appendWith completes the transaction of batches that were written: it folds artifacts, records the ids of batches and
// moves the heads of webhooks.
func (s *Store) appendWith(ctx context.Context, tx *db.Tx, items []*pendingBatch, rows []appended) error {
	q := dbsqlc.New(tx)
	var ended []pgtype.UUID
	var m webhooks.HeadMoves
	for i := range rows {
		r := &rows[i]
		if r.Folded {
			ended = append(ended, r.ID)
		}
		m.Add(r.ID, r.HasPush, r.State != 0)
	}
	if len(ended) > 0 {
		if err := q.ArtifactFold(ctx, ended); err != nil {
			return err
		}
	}
	if ids := batchIDs(items, rows); len(ids.TaskIds) > 0 {
		if err := q.BatchesAdd(ctx, ids); err != nil {
			return err
		}
	}
	if err := addSteps(ctx, q, items, rows, s.db.Replica()); err != nil {
		return err
	}
	if err := addUsage(ctx, q, items, rows); err != nil {
		return err
	}
	if err := s.appendCalls(ctx, tx, items, rows); err != nil {
		return err
	}
	for i := range rows {
		if it := items[rows[i].Pos-1]; it.batch.Wait != nil {
			if err := beginWait(ctx, tx, it, &rows[i]); err != nil {
				return err
			}
		}
	}
	return m.Move(ctx, tx)
}

// batchIDs returns the ids of the batches that were written, with the answers to repeat.
func batchIDs(items []*pendingBatch, rows []appended) (p dbsqlc.BatchesAddParams) {
	for i := range rows {
		it := items[rows[i].Pos-1]
		if it.batch.ID == "" {
			continue
		}
		p.TaskIds, p.Epochs = append(p.TaskIds, db.PGID(it.lease.TaskID)), append(p.Epochs, it.lease.Epoch)
		p.BatchIds = append(p.BatchIds, it.batch.ID)
		p.LastSeqs = append(p.LastSeqs, rows[i].Base+int64(len(it.rows)))
		until := db.PGTime(it.lease.Until)
		if !until.Valid { // no worker asks for the answer of a local run
			until = rows[i].LastAt
		}
		p.LeaseUntils = append(p.LeaseUntils, until)
	}
	return p
}
