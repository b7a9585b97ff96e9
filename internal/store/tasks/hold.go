package tasks

import (
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// A group of patient items is held for a few milliseconds while items arrive fast enough that holdWorth of them are
// expected in that time. It is written earlier once it has holdItems items, or one that is not patient, or one of each
// task that the last group had an item of: those come again only when they are answered, so nothing more is to be
// expected.
const (
	holdTime  = 5 * time.Millisecond // of events
	stepsTime = time.Millisecond     // of steps, for which agents wait
	holdItems = 64
	holdWorth = 4
)

// slowest is the longest time between two items that counts. So the average recovers from an idle time soon.
const slowest = 100 * time.Millisecond

// hold decides how long a group waits for more items. At first it holds none. It is not safe for concurrent
// use.
type hold struct {
	most time.Duration // how long a group is held

	on    bool // the queue has patient items only, and is not to be written yet
	since time.Time
	timer *time.Timer

	last time.Time           // of the newest item
	gap  time.Duration       // between two items, smoothed
	away map[a2a.ID]struct{} // tasks of the last group that have no newer item
}

// wrote notes the tasks of a group that is written now, from which more items may come.
func (h *hold) wrote(tasks []a2a.ID) {
	if h.away == nil {
		h.away = make(map[a2a.ID]struct{})
	}
	clear(h.away)
	for _, id := range tasks {
		h.away[id] = struct{}{}
	}
}

// arrived notes a new item of a task, the n-th of the queue. ripe is called when a hold that begins here has lasted for
// long enough.
func (h *hold) arrived(n int, task a2a.ID, patient bool, ripe func()) {
	now := time.Now()
	if h.last.IsZero() {
		h.gap = slowest
	}
	h.gap += (min(now.Sub(h.last), slowest) - h.gap) / 16
	h.last = now
	_, back := h.away[task]
	delete(h.away, task)
	back = back && len(h.away) == 0
	switch {
	case h.on && (!patient || back || n >= holdItems):
		h.on = false
		h.timer.Stop()
	case patient && !back && n == 1 && h.gap*holdWorth <= h.most:
		h.on, h.since = true, now
		h.timer = time.AfterFunc(h.most, ripe)
	}
}

// ripen ends the hold if it has lasted for long enough; the timer of an earlier one may call late.
func (h *hold) ripen() {
	if h.on && time.Since(h.since) >= h.most {
		h.on = false
	}
}

// patientEvents is the number of events of a batch from which on it is not held: its agent reports faster than batches
// are written.
const patientEvents = 8

// patient reports whether the batch may wait for a few milliseconds, so that more batches share its commit. It has a
// few events from the middle of a turn. The first ones of a task are what its client waits for, and a change of the
// state or a step is what others wait for.
func (a *pendingBatch) patient() bool {
	if a.lease.LastSeq <= beforeEvents || len(a.rows) == 0 || len(a.rows) >= patientEvents || len(a.batch.Steps) > 0 {
		return false
	}
	return !slices.ContainsFunc(a.rows, func(r eventRow) bool { return r.state != 0 })
}

// expected returns the task if its worker may send another batch.
func (a *pendingBatch) expected() (task a2a.ID) {
	if a.ends() {
		return task
	}
	return a.lease.TaskID
}
