package tasks

import "github.com/a2ad/a2ad/internal/a2a"

// foldEvents is how many events a log has when its artifacts are folded at the end of the
// task. Those of a shorter one cost more to write again than to put together for a reader.
const foldEvents = 32

// A log of more events, or of more bytes, is left as it is: to write all of it once more would take so long that
// the task could not end within the limits of a statement, and that of a flood never would.
const (
	foldMostEvents = 10_000
	foldMostBytes  = 16 << 20
)

// folds reports whether the artifacts of a task are folded when it ends with so many events and bytes.
func folds(events, bytes int64) bool {
	return events > foldEvents && events <= foldMostEvents && bytes <= foldMostBytes
}

// folds reports whether the task ends with the batch and is worth folding.
func (a *pendingBatch) folds() bool {
	n := len(a.rows)
	return n > 0 && a2a.State(a.rows[n-1].state).Terminal() && folds(a.lease.LastSeq+int64(n), a.lease.Bytes)
}

// ends reports whether the batch ends the turn.
func (a *pendingBatch) ends() bool {
	n := len(a.rows)
	return n > 0 && a2a.State(a.rows[n-1].state).EndsTurn()
}
