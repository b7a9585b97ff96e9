package engine

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
)

// seen is what a blocking send has seen of its task. It is enough to answer without a read if the
// task ends soon and stays small.
type seen struct {
	items []*stream.Item
	bytes int
	many  bool // there was more than is kept, so the task must be read
	ended bool // the turn has ended
}

// Limits of what is kept during the wait.
const (
	seenItems = 64
	seenBytes = 64 << 10
)

func (s *seen) add(items []*stream.Item) {
	for _, it := range items {
		s.bytes += it.Size()
		if s.many = s.many || len(s.items) == seenItems || s.bytes > seenBytes; s.many {
			s.items = nil
			return
		}
		s.items = append(s.items, it)
	}
}

// task builds a new task from its first message and all of its events. ok is false if some are
// missing, or if the client has sent further messages: the log has only their count.
func (s *seen) task(in *tasks.Submission, sub *tasks.Submitted, history *int) (t *a2a.Task, ok bool) {
	if s.many || len(s.items) == 0 || s.items[0].Seq != 2 {
		return nil, false
	}
	t = freshTask(in, sub, nil)
	messages := int64(1)
	for _, it := range s.items {
		switch e := it.Event.(type) {
		case *a2a.StatusUpdate:
			if t.Status.Message != nil {
				t.History = append(t.History, *t.Status.Message)
			}
			t.Status = e.Status
			if e.Status.Message != nil {
				messages++
			}
		case *a2a.ArtifactUpdate:
			t.Artifacts = a2a.Fold(t.Artifacts, e)
		default:
			return nil, false
		}
	}
	last := s.items[len(s.items)-1]
	if last.Messages != messages || !last.State().EndsTurn() {
		return nil, false
	}
	t.LastSeq, t.LastUID = last.Seq, last.UID
	if history != nil {
		t.History = t.History[max(len(t.History)-*history, 0):]
	}
	return t, true
}
