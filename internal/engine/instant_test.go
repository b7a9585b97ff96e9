package engine_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// TestStreamOfATaskThatEndsAtOnceIsComplete: the agent finishes while its request is still being
// stored. The stream has all events, although no wake-up follows and the next poll is an hour away.
func TestStreamOfATaskThatEndsAtOnceIsComplete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.freeSlot = func(string) (tasks.Slot, bool) {
		return tasks.Slot{TTL: time.Minute, Release: func() {}, Start: func(l tasks.Lease, _ tasks.Input, _ time.Time) {
			r.append(&l, artifact("a", "1", false), status(a2a.StateCompleted, "done"))
		}}, true
	}
	s, err := r.Stream(t.Context(), ann, words, send("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const whole = "task@1 2 3 4!"
	same(t, "frames", whole, frames(t, s, whole))
}
