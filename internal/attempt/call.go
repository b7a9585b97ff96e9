package attempt

import (
	"errors"
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// copyCall checks a call.
func copyCall(c a2a.Call) (a2a.Event, int, error) {
	if len(c.Message.Metadata) > maxPart {
		return nil, 0, fmt.Errorf("call.message.metadata is larger than %d bytes", maxPart)
	}
	m := &c.Message
	m.ID, m.TaskID, m.ContextID, m.Role, m.ReferenceTaskIDs = "", "", "", a2a.RoleUser, nil
	m.Extensions = cleanList(m.Extensions)
	var n int
	var err error
	m.Parts, n, err = copyParts(m.Parts)
	return &c, n + len(m.Metadata), err
}

// AdmitCall refuses a new call of an agent that cannot be called with this message, and calls that are too deep or too
// many. calls is how many the task has made, with this one. A step that is no call is admitted.
func (b Bounds) AdmitCall(l *tasks.Lease, s *a2a.StepRecord, calls int) error {
	c := s.Call
	switch {
	case c == nil:
		return nil
	case b.Depth > 0 && l.Depth >= b.Depth:
		return fmt.Errorf("the call would be the %dth below a task of a client, and at most %d are allowed",
			l.Depth+1, b.Depth)
	case b.Children > 0 && calls > b.Children:
		return fmt.Errorf("the task would call more than %d times", b.Children)
	case b.MayCall == nil:
		return errors.New("the server allows no calls")
	}
	if err := b.MayCall(c.Agent, &c.Message); err != nil {
		return fmt.Errorf("call.agent %q: %w", CleanText(c.Agent), err)
	}
	return nil
}
