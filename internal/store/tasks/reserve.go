package tasks

import (
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// Slot is a free slot of this process's worker, reserved for a task that is about to be stored. One of its functions is
// called, once. Neither may block.
type Slot struct {
	TTL      time.Duration // of the lease
	Deadline time.Duration // of the turn; 0: none
	Start    func(Lease, Input)
	Release  func() // the task was not stored, or the outcome is unknown
}

// reservedSlot is the slot of a new task that is claimed by the statement that stores it, without waiting in the queue.
type reservedSlot struct {
	slot    Slot
	uid     a2a.ID // of the event of the claim
	started bool   // the run has begun
}

// reserveSlots reserves slots for new tasks. A task with a webhook goes into the queue: the webhook is set after the
// statement, and the claim must move its head.
func (s *Store) reserveSlots(items []*submission) []*reservedSlot {
	slots := make([]*reservedSlot, len(items))
	for i, it := range items {
		if it.Push != nil || it.Webhooks != nil {
			continue
		}
		if slot, ok := s.cfg.Reserve(it.Agent); ok {
			slots[i] = &reservedSlot{slot: slot, uid: db.NewUID()}
		}
	}
	return slots
}

func (t *reservedSlot) param(p *dbsqlc.TaskSubmitParams, i int) {
	p.Claimed[i], p.ClaimUids[i] = true, db.PGID(t.uid)
	p.Ttls[i], p.Deadlines[i] = t.slot.TTL.Milliseconds(), t.slot.Deadline.Milliseconds()
}

// releaseSlots releases the slots whose runs have not begun.
func releaseSlots(slots []*reservedSlot) {
	for _, t := range slots {
		if t != nil && !t.started {
			t.slot.Release()
		}
	}
}

// start begins the run of a new task that was stored at the given time. The commit was acknowledged. The run has begun
// already if the task was found stored before, and the confirmation of that was lost.
func (s *Store) start(t *reservedSlot, it *submission, at time.Time) {
	if t.started {
		return
	}
	t.started = true
	s.counters.enter(a2a.StateWorking, 1)
	// The run gets what a claim would have read from the tables.
	m := it.Message
	m.ContextID, m.TaskID, m.Parts = "", "", slices.Clone(m.Parts)
	working := a2a.Status{State: a2a.StateWorking, Time: at}
	const seq = 2
	s.cfg.Committed(it.id, []a2a.Entry{{
		TaskID: it.id, Seq: seq, UID: t.uid, Time: at, Event: &a2a.StatusUpdate{Status: working},
	}})
	t.slot.Start(Lease{
		TaskID: it.id, Agent: it.Agent, Tenant: it.Tenant, Owner: it.Owner, Epoch: 1, Attempt: 1, Through: 1,
		Left: t.slot.Deadline, LastSeq: seq, Bytes: int64(len(it.body)), Traceparent: it.Traceparent,
		Depth: it.depth,
	}, Input{
		Task: a2a.Task{
			ID: it.id, Agent: it.Agent, ContextID: it.ContextID, Status: working, History: []a2a.Message{m},
			CreatedAt: at, LastSeq: seq, LastUID: t.uid,
		},
		Messages: []a2a.Message{m},
	})
}
