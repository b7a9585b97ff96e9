package answer

import (
	"fmt"
	"time"
)

// Stored is a task in the store of another server.
type Stored struct {
	Task
	// Unknown are the members that a2ad has no place for, by their paths; at most 20.
	Unknown []string
}

const mostUnknown = 20

// DecodeStored reads a task from the store of another server, in the JSON of either generation. It is stricter than
// DecodeTask, because the task will be stored: times must be times, and each message of the history must have a role.
// Ids of other tasks are kept. A missing message id stays empty. raw has passed rawjson.Check.
func DecodeStored(raw []byte) (Stored, error) {
	r := reader{stored: true}
	t := r.task(raw, "task")
	seen := make(map[string]bool, len(t.Artifacts)) // a task may have very many
	for i := range t.Artifacts {
		id := t.Artifacts[i].ID
		if seen[id] {
			r.fail(fmt.Sprintf("task.artifacts[%d].artifactId", i), "%.40q is the id of an earlier artifact", id)
		}
		seen[id] = true
	}
	return Stored{t, r.unknown}, r.err
}

// other notes a member that a2ad does not read. What it knows otherwise is not worth a note.
func (r *reader) other(key, path string) {
	switch key {
	case "kind", "type", "taskId", "contextId":
		return
	}
	if r.stored && len(r.unknown) < mostUnknown {
		r.unknown = append(r.unknown, path)
	}
}

// time reads a time. In an answer it only tells statuses apart and is never stored, so an invalid one counts as absent.
func (r *reader) time(v []byte, path string) time.Time {
	text := r.text(v, path)
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil && r.stored {
		// Agents in Python often write times in UTC without saying so.
		if t, err = time.Parse("2006-01-02T15:04:05", text); err != nil {
			r.fail(path, "%.40q is not a time", text)
		}
	}
	if t.UTC().Year() < 1 { // no time that a2ad could write
		return time.Time{}
	}
	return t
}
