package tasks

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// Lane chooses the lane of a task that SubmitIn is about to store. It may read the queue, so call it before the
// transaction begins.
func (s *Store) Lane(ctx context.Context, agent string, owner db.Caller) int16 {
	return s.lane(ctx, laneKey{agent, owner.Tenant, owner.Owner})
}

// SubmitIn stores a new task in a transaction of the caller. The task has the id in.NewTask and waits in the queue. It
// has no key, webhook or action: the transaction must not be made twice.
func (s *Store) SubmitIn(ctx context.Context, tx *db.Tx, in Submission, lane int16) error {
	sub := &submission{
		Submission: in, body: appendMessage(nil, &in.Message), uid: db.NewUID(), id: in.NewTask, lane: lane,
	}
	digest := sha256.Sum256(sub.body)
	sub.digest = digest[:]
	return s.submitIn(ctx, tx, []*submission{sub}, nil)
}

// submitIn stores new tasks in a transaction of the caller. Those without a slot wait in the queue. slots may be nil.
func (s *Store) submitIn(ctx context.Context, tx *db.Tx, items []*submission, slots []*reservedSlot) error {
	if len(items) == 0 {
		return nil
	}
	if slots == nil {
		slots = make([]*reservedSlot, len(items))
	}
	rows, err := dbsqlc.New(tx).TaskSubmit(ctx, s.submitParams(items, slots))
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	at := submittedAt(rows)
	list := make([]created, len(items))
	for i, it := range items {
		list[i] = created{ok: true, at: at[it.id], slot: slots[i]}
	}
	s.tellCreated(tx, items, list)
	return nil
}

// EncodeMessage returns a message as the store keeps it, for DecodeMessage.
func EncodeMessage(m *a2a.Message) []byte { return appendMessage(nil, m) }
