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
	items := []*submission{sub}
	rows, err := dbsqlc.New(tx).TaskSubmit(ctx, s.submitParams(items, make([]*reservedSlot, len(items))))
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	list := make([]created, len(items))
	for i := range list {
		list[i] = created{ok: true, at: submittedAt(rows)[sub.id]}
	}
	s.tellCreated(tx, items, list)
	return nil
}

// EncodeMessage returns a message as the store keeps it, for DecodeMessage.
func EncodeMessage(m *a2a.Message) []byte { return appendMessage(nil, m) }
