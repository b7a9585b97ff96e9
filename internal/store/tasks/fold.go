package tasks

import "github.com/a2ad/a2ad/internal/a2a"

// foldEvents is the length from which on a log has its artifacts folded at the end of the task. In a shorter log,
// writing the artifacts again costs more than putting them together for each reader.
const foldEvents = 32

// A log with more events or more bytes is not folded at the end of the task: the statement that writes everything again
// would exceed its time limit, and the task could not end.
const (
	foldMostEvents = 10_000
	foldMostBytes  = 16 << 20
)

// folds reports whether the artifacts of a task with this many events and bytes are folded when it ends.
func folds(events, bytes int64) bool {
	return events > foldEvents && events <= foldMostEvents && bytes <= foldMostBytes
}

// folds reports whether the task ends with the batch and is worth folding.
func (a *pendingBatch) folds() bool {
	n := len(a.rows)
	return n > 0 && a2a.State(a.rows[n-1].state).Terminal() && folds(a.lease.LastSeq+int64(n), a.lease.Bytes)
}

// ends reports whether the batch ends the run.
func (a *pendingBatch) ends() bool {
	n := len(a.rows)
	return a.batch.Wait != nil || n > 0 && a2a.State(a.rows[n-1].state).EndsTurn()
}
