package engine_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// The agent is done while its request is still being stored: the stream has all of it, although no
// wake comes behind the end and the poll is an hour away.
func TestStreamOfATaskThatEndsAtOnceIsComplete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.take = func(string) (tasks.Slot, bool) {
		return tasks.Slot{TTL: time.Minute, Leave: func() {}, Start: func(l tasks.Lease, _ tasks.Input) {
			r.append(&l, artifact("a", "1", false), status(a2a.StateCompleted, "done"))
		}}, true
	}
	s, err := r.Stream(r.ctx, ann, words, send("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const whole = "task@1 2 3 4!"
	same(t, "frames", whole, frames(t, s, whole))
}
