package tasks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// Submission is a client's message for an agent. Task is zero for a new task.
type Submission struct {
	db.Caller
	Agent       string
	Task        a2a.ID
	NewTask     a2a.ID // id for a new task, made by NewTaskID; zero: Submit makes one
	ContextID   string // of a new task; for an existing one it must be its own, or empty
	Message     a2a.Message
	Digest      [32]byte             // of the request
	Key         string               // "h:" and the Idempotency-Key, or "m:" and the message id; or empty
	Reject      bool                 // refuse the message if the task is being worked on
	OnlyWaiting bool                 // refuse the message with ErrNotWaiting unless the task waits for one
	Asked       time.Time            // when the task asked the only question that the message may answer; zero: any
	MaxBytes    int64                // of the task; 0: no limit
	MaxSeq      int64                // messages in the history of the task; 0: no limit
	Push        *webhooks.NewWebhook // set in the same transaction, in force from the message on; may be nil
	MaxPushes   int                  // of the task; 0: no limit
	Traceparent a2a.Traceparent      // of the request; empty: the task keeps the one it has
	// Undecided says that the agent may answer with a message in place of a new task. No client sees the task until the
	// agent has reported something else, or Reveal was called.
	Undecided bool
	// Answers checks whether the message is what the question of its task expects. Its error is for the client. nil: no
	// message is refused.
	Answers func(expects a2a.Raw) error
	// Action is recorded in the same transaction, if it is not nil. It is for new tasks.
	Action *access.Action
	// Webhooks are set in the same transaction, if it is not nil. It is for new tasks.
	Webhooks *webhooks.Copy
}

// Submitted is the result of a Submission. The events that the message causes come after the seq After. Of a replay,
// After is the newest event, at which the task is in State.
type Submitted struct {
	Task      a2a.ID
	ContextID string
	After     int64
	State     a2a.State
	Resumed   bool      // the task waited for the message, and event After says that it is submitted again
	Replay    bool      // the key was used before, and nothing was written
	Undecided bool      // the answer may still be a message
	At        time.Time // of a new task: its first status
	UID       a2a.ID    // of a new task: its first event
}

type submission struct {
	Submission
	body   []byte
	id     a2a.ID
	uid    a2a.ID
	digest []byte
	lane   int16

	parent a2a.ID // of a task that was called; and the step and the depth of the call
	step   int
	depth  int
}

// created is what the transaction of new tasks did with a submission.
type created struct {
	ok   bool // false: its key belongs to another task
	at   time.Time
	slot *reservedSlot // where the task runs; nil: it waits in the queue
}

func submissionSize(s *submission) int { return len(s.body) + 256 }

var errKeyReused = a2a.InvalidParams("", "the Idempotency-Key was used before with another request")

// Submit stores the message, as the first of a new task or the next of an existing one. A task that waited for its
// client goes back into the queue. The same key with the same digest changes nothing and returns the task that the
// first request created.
//
// Errors for the caller: CodeTaskNotFound, CodeTaskTerminal, CodeInvalidParams (context of another task, key used for
// another request, limits), CodeUnsupportedOperation (Reject). With Asked, it returns ErrNotWaiting if the
// task asks nothing now, and ErrOtherQuestion if it asks something else.
func (s *Store) Submit(ctx context.Context, in Submission) (Submitted, error) {
	sub := newSubmission(in)
	if !in.Task.IsZero() {
		return s.resume(ctx, sub)
	}
	if in.MaxBytes > 0 && int64(len(sub.body)) > in.MaxBytes {
		return Submitted{}, fmt.Errorf("submit: %w", tooLarge(in.MaxBytes))
	}
	if sub.id.IsZero() {
		sub.id = db.NewTaskID()
	}
	sub.lane = s.lane(ctx, laneKey{in.Agent, in.Tenant, in.Owner})
	group := s.submits
	if in.Key != "" {
		group = s.keyed
	}
	m, err := group.do(ctx, sub)
	if err != nil {
		return Submitted{}, fmt.Errorf("submit: %w", err)
	}
	if !m.ok {
		return s.replay(ctx, sub)
	}
	return Submitted{
		Task: sub.id, ContextID: in.ContextID, State: a2a.StateSubmitted, Undecided: in.Undecided, At: m.at,
		UID: sub.uid,
	}, nil
}

func newSubmission(in Submission) *submission {
	sub := &submission{Submission: in, body: appendMessage(nil, &in.Message), uid: db.NewUID(), id: in.NewTask}
	h := sha256.New()
	h.Write([]byte(in.Agent))
	h.Write([]byte{0})
	h.Write(in.Digest[:])
	sub.digest = h.Sum(nil)
	return sub
}

// flushSubmits is safe to repeat: this process made the ids, so an id that exists means that an earlier try was
// committed.
func (s *Store) flushSubmits(ctx context.Context, items []*submission) ([]created, error) {
	ctx, cancel := s.db.Detached(ctx)
	defer cancel()
	slots := s.reserveSlots(items)
	defer releaseSlots(slots) // also after a panic
	return db.Repeat(ctx, s.db, func(try int) ([]created, error) {
		list, err := s.submitRows(ctx, items, slots, try == 1)
		// Items of an earlier try find their own key, and those without a key their own id.
		if try > 1 && err == nil || db.IsCode(err, uniqueViolation) {
			return s.submitted(ctx, items, slots)
		}
		return list, err
	})
}

// tellCreated registers what must happen after the commit of new tasks.
func (s *Store) tellCreated(tx *db.Tx, items []*submission, list []created) {
	tx.After(func() { s.counters.submits.add(len(items)) })
	for i, it := range items {
		m := list[i]
		if !m.ok {
			continue
		}
		tx.After(func() {
			s.counters.enter(a2a.StateSubmitted, 1)
			if m.slot != nil {
				s.start(m.slot, it, m.at)
			}
		})
		if m.slot == nil {
			tx.Wake(wake.Ready(it.Agent))
		}
		if it.Push != nil || it.Webhooks != nil {
			tx.Wake(wake.Webhooks)
		}
	}
}

// submitParams makes a request, which is sent next. Each slot gets a claim for it.
func (s *Store) submitParams(items []*submission, slots []*reservedSlot) dbsqlc.TaskSubmitParams {
	n := len(items)
	p := dbsqlc.TaskSubmitParams{
		Ids: make([]pgtype.UUID, n), Tenants: make([]string, n), Owners: make([]string, n), Agents: make([]string, n),
		ContextIds: make([]string, n), Keys: make([]string, n), Digests: make([][]byte, n),
		EventUids:  make([]pgtype.UUID, n),
		MessageIds: make([]string, n), Messages: make([][]byte, n), Sizes: make([]int64, n),
		Traceparents: make([]string, n), Undecided: make([]bool, n),
		Claimed: make([]bool, n), ClaimUids: make([]pgtype.UUID, n), Ttls: make([]int64, n),
		Deadlines: make([]int64, n), Lanes: make([]int16, n), Worker: s.db.Replica(), Holder: s.db.Holder(),
		Parents: make([]pgtype.UUID, n), ParentSteps: make([]int32, n), Depths: make([]int16, n),
	}
	for i, it := range items {
		p.Ids[i], p.Tenants[i], p.Owners[i], p.Agents[i] = db.PGID(it.id), it.Tenant, it.Owner, it.Agent
		p.ContextIds[i], p.Keys[i], p.Digests[i], p.EventUids[i] = it.ContextID, it.Key, it.digest, db.PGID(it.uid)
		p.MessageIds[i], p.Messages[i], p.Sizes[i] = it.Message.ID, it.body, int64(len(it.body))
		p.Lanes[i] = it.lane
		p.Parents[i] = pgtype.UUID{Bytes: it.parent, Valid: it.depth > 0}
		p.ParentSteps[i], p.Depths[i] = int32(it.step), int16(it.depth)
		p.Traceparents[i], p.Undecided[i] = string(it.Traceparent), it.Undecided
		if t := slots[i]; t != nil {
			t.claim(&p, i)
		}
	}
	return p
}

// submitRows runs the statement, in a transaction with the webhooks and actions if there are any. A task whose key
// exists is not stored. It registers the effects of the new tasks only if tell is set; else submitted does that.
func (s *Store) submitRows(
	ctx context.Context, items []*submission, slots []*reservedSlot, tell bool,
) ([]created, error) {
	run := db.Autocommit[[]created]
	if slices.ContainsFunc(items, (*submission).several) {
		run = db.InTx[[]created]
	}
	return run(ctx, s.db.Work(), func(tx *db.Tx) ([]created, error) {
		rows, err := dbsqlc.New(tx).TaskSubmit(ctx, s.submitParams(items, slots))
		if err != nil {
			return nil, err
		}
		at := submittedAt(rows)
		list := make([]created, len(items))
		for i, it := range items {
			t, ok := at[it.id]
			list[i] = created{ok, t, slots[i]}
			if !ok {
				continue
			}
			if err := submitWith(ctx, tx, it); err != nil {
				return nil, err
			}
		}
		if tell {
			s.tellCreated(tx, items, list)
		}
		return list, nil
	})
}

func submittedAt(rows []dbsqlc.TaskSubmitRow) map[a2a.ID]time.Time {
	at := make(map[a2a.ID]time.Time, len(rows))
	for _, r := range rows {
		at[r.ID.Bytes] = db.WireTime(r.CreatedAt)
	}
	return at
}

// submitted is submitRows for items that an earlier try, whose answer was lost, may have stored. An item without a key
// must be stored: if it is not, the statement was refused for another reason than an earlier success.
func (s *Store) submitted(ctx context.Context, items []*submission, slots []*reservedSlot) ([]created, error) {
	return db.Autocommit(ctx, s.db.Work(), func(tx *db.Tx) ([]created, error) {
		list, err := stored(ctx, dbsqlc.New(tx), items, slots)
		if err != nil {
			return nil, err
		}
		for i, it := range items {
			if !list[i].ok && it.Key == "" {
				return nil, fmt.Errorf("look for a task that may have been made: %w", pgx.ErrNoRows)
			}
		}
		s.tellCreated(tx, items, list)
		return list, nil
	})
}

// stored finds out which items are stored, and which of them with their slots.
func stored(
	ctx context.Context, q *dbsqlc.Queries, items []*submission, slots []*reservedSlot,
) ([]created, error) {
	list := make([]created, len(items))
	for i, it := range items {
		row, err := q.TaskOwner(ctx, db.PGID(it.id))
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for a task that may have been made: %w", err)
		}
		list[i] = created{ok: true, at: db.WireTime(row.CreatedAt)}
		if slots[i] == nil {
			continue
		}
		switch uid, err := q.EventUID(ctx, db.PGID(it.id), 2); {
		case err == nil && slots[i].stored(uid.Bytes):
			list[i].slot = slots[i]
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return nil, err
		}
	}
	return list, nil
}

// replay answers a submission whose key was used before. The first request may have got no answer, because its commit
// was not on a standby yet.
func (s *Store) replay(ctx context.Context, sub *submission) (Submitted, error) {
	out, err := db.Repeat(ctx, s.db, func(int) (Submitted, error) {
		k, err := dbsqlc.New(s.db.As(sub.Caller)).TaskKeyed(ctx, dbsqlc.TaskKeyedParams{
			Tenant: sub.Tenant, Owner: sub.Owner, Key: sub.Key,
		})
		if err != nil {
			return Submitted{}, err
		}
		if !bytes.Equal(k.Digest, sub.digest) {
			return Submitted{}, errKeyReused
		}
		t, err := s.head(ctx, sub.Caller, k.TaskID)
		if err != nil {
			return Submitted{}, err
		}
		if err := s.db.Confirm(ctx); err != nil {
			return Submitted{}, err
		}
		return Submitted{
			Task: k.TaskID.Bytes, ContextID: t.ContextID, After: t.LastSeq, State: a2a.State(t.State), Replay: true,
			Undecided: undecided(t.Reply, t.State),
		}, nil
	})
	if err != nil {
		return Submitted{}, fmt.Errorf("replay: %w", err)
	}
	return out, nil
}
