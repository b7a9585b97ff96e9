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
	// Start starts the run. The lease was stored by a request that was made just after sent.
	Start   func(l Lease, in Input, sent time.Time)
	Release func() // the task was not stored, or the outcome is unknown
}

// reservedSlot is the slot of a new task that is claimed by the statement that stores it, without waiting in the queue.
type reservedSlot struct {
	slot    Slot
	claims  []slotClaim // one for each request; once the task is stored, the last one is in force
	started bool        // the run has begun
}

// slotClaim is the claim of one request to store a task. If the answer to a COMMIT was lost, the uid tells which
// request has stored the task, and so from when on its lease counts.
type slotClaim struct {
	uid  a2a.ID // of the event of the claim
	sent time.Time
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
			slots[i] = &reservedSlot{slot: slot}
		}
	}
	return slots
}

// claim adds a claim to a request, which is sent next. What the transaction has waited for takes no time of the lease.
func (t *reservedSlot) claim(p *dbsqlc.TaskSubmitParams, i int) {
	c := slotClaim{uid: db.NewUID(), sent: time.Now()}
	t.claims = append(t.claims, c)
	p.Claimed[i], p.ClaimUids[i] = true, db.PGID(c.uid)
	p.Ttls[i], p.Deadlines[i] = t.slot.TTL.Milliseconds(), t.slot.Deadline.Milliseconds()
}

// stored reports whether a task is stored with one of the claims, whose event has the uid.
func (t *reservedSlot) stored(uid a2a.ID) bool {
	i := slices.IndexFunc(t.claims, func(c slotClaim) bool { return c.uid == uid })
	if i < 0 {
		return false
	}
	t.claims = t.claims[:i+1]
	return true
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
	claim := t.claims[len(t.claims)-1]
	working := a2a.Status{State: a2a.StateWorking, Time: at}
	const seq = 2
	s.cfg.Committed(it.id, []a2a.Entry{{
		TaskID: it.id, Seq: seq, UID: claim.uid, Time: at, Event: &a2a.StatusUpdate{Status: working},
	}})
	t.slot.Start(Lease{
		TaskID: it.id, Agent: it.Agent, Tenant: it.Tenant, Owner: it.Owner, Epoch: 1, Attempt: 1, Through: 1,
		Left: t.slot.Deadline, LastSeq: seq, Bytes: int64(len(it.body)), Traceparent: it.Traceparent,
		Depth: it.depth,
	}, Input{
		Task: a2a.Task{
			ID: it.id, Agent: it.Agent, ContextID: it.ContextID, Status: working, History: []a2a.Message{m},
			CreatedAt: at, LastSeq: seq, LastUID: claim.uid,
		},
		Messages: []a2a.Message{m},
	}, claim.sent)
}
