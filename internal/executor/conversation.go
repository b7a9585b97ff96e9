package executor

import (
	"reflect"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Conversation returns the client's messages in the task up to this run, oldest first, and the index of the first new
// one. The position of a message is the same on every attempt. Message ids do not identify messages, because clients
// reuse them (T-01 in docs/reference/protocol.md).
//
// The new messages are the client's last ones in run.Task.History, except for messages that arrived after the run was
// claimed, which belong to the next run. If the history lacks the new messages, they are appended.
func Conversation(run Run) (said []a2a.Message, fresh int) {
	for _, m := range run.Task.History {
		if m.Role == a2a.RoleUser {
			said = append(said, m)
		}
	}
	n := len(run.Messages)
	for fresh = len(said) - n; fresh >= 0; fresh-- {
		if same(said[fresh:fresh+n], run.Messages) {
			return said[:fresh+n], fresh
		}
	}
	return append(said, run.Messages...), len(said)
}

func same(a, b []a2a.Message) bool {
	for i := range a {
		if a[i].ID != b[i].ID || !reflect.DeepEqual(a[i].Parts, b[i].Parts) {
			return false
		}
	}
	return true
}
