package executor

import "github.com/a2ad/a2ad/internal/a2a"

// Conversation returns what the client has said in the task so far, oldest first, and
// the index of the first message that is new in this run. The position of a message in
// it is the same on every attempt; message ids are not enough to tell messages apart,
// because clients reuse them (PROTOCOL T-01).
//
// The new messages are at the end of run.Task.History. A run whose history lacks them
// is read as if they stood there.
func Conversation(run Run) (said []a2a.Message, fresh int) {
	for _, m := range run.Task.History {
		if m.Role == a2a.RoleUser {
			said = append(said, m)
		}
	}
	fresh = len(said) - len(run.Messages)
	if fresh < 0 || !sameIDs(said[fresh:], run.Messages) {
		fresh = len(said)
		said = append(said, run.Messages...)
	}
	return said, fresh
}

func sameIDs(a, b []a2a.Message) bool {
	for i := range a {
		if a[i].ID != b[i].ID {
			return false
		}
	}
	return true
}
