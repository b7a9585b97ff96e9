// Package tasks keeps tasks from their submission to their removal: messages, events, the queue, leases, artifacts.
//
// It moves the heads of webhooks in the transaction that writes events, and notifies everything else after the commit.
package tasks

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// Config has the functions that the store calls. Nil functions do nothing.
type Config struct {
	// Reserve reserves a slot of this process's worker for a new task of an agent, if one is free and no other task
	// waits. It must not block.
	Reserve func(agent string) (Slot, bool)
	// Committed is called after a commit that wrote events of a task, with those events, or with none if the store does
	// not know them. It must not block, and must not change the events.
	Committed func(task a2a.ID, events []a2a.Entry)
}

// Store is safe for concurrent use.
type Store struct {
	db       *db.DB
	webhooks *webhooks.Store
	cfg      Config

	submits *combiner[submission, created]
	// keyed has the submits with an idempotency key: they may wait for the commit of another submit.
	keyed   *combiner[submission, created]
	appends *combiner[pendingBatch, *appended]
	steps   *combiner[pendingBatch, *appended] // of batches that have nothing else
	laner   laner
	totals  totals

	counters counters
}

// New returns the store of tasks on a database.
func New(conns *db.DB, hooks *webhooks.Store, cfg Config) *Store {
	if cfg.Reserve == nil {
		cfg.Reserve = func(string) (Slot, bool) { return Slot{}, false }
	}
	if cfg.Committed == nil {
		cfg.Committed = func(a2a.ID, []a2a.Entry) {}
	}
	s := &Store{db: conns, webhooks: hooks, cfg: cfg}
	const crowd = combineItems / 4
	s.submits = newCombiner(s.flushSubmits, submissionSize, crowd, conns.Logger())
	s.keyed = newCombiner(s.flushSubmits, submissionSize, 0, conns.Logger())
	s.laner = laner{owners: make(map[laneKey]*laneOwner), heads: make(map[string]*laneHeads)}
	s.appends = newCombiner(s.flushAppends, appendSize, crowd, conns.Logger())
	s.appends.patient = (*pendingBatch).patient
	s.appends.task, s.appends.hold.most = (*pendingBatch).expected, holdTime
	s.steps = newCombiner(s.flushSteps, appendSize, crowd, conns.Logger())
	s.steps.patient = func(*pendingBatch) bool { return true }
	s.steps.task, s.steps.hold.most = (*pendingBatch).expected, stepsTime
	return s
}
