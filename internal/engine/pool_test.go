package engine_test

import (
	"fmt"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
)

// TestStreamsReadNothingOnThePoolOfRuns: however a stream begins, it uses another pool. Otherwise
// 24 streams that start with a large task keep a run from renewing its lease.
func TestStreamsReadNothingOnThePoolOfRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	living, ended := r.task("living"), r.task("ended")
	for range 2 {
		l := r.claim()
		r.append(l, status(a2a.StateWorking, "busy"), artifact("a", "1", false))
		if l.TaskID == ended {
			r.append(l, status(a2a.StateCompleted, "done"))
		}
	}
	begin := func(what string, open func() (*engine.Stream, error), want string) {
		t.Helper()
		r.runs.reset()
		s, err := open()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		defer s.Close()
		if got := frames(t, s, want); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		for _, name := range r.runs.reset() {
			if name != "TaskSubmit" && name != "Confirm" { // which commit
				t.Errorf("%s: %s ran on the pool of runs", what, name)
			}
		}
	}
	subscribe := func(rules a2a.StreamRules, id a2a.ID, last string) func() (*engine.Stream, error) {
		return func() (*engine.Stream, error) {
			op := &a2a.Subscribe{StreamRules: rules, ID: id.String(), EndedOK: true}
			op.LastEventID = last
			return r.Subscribe(t.Context(), ann, words, op)
		}
	}
	for name, rules := range map[string]a2a.StreamRules{"0.3": rules03, "1.0": rules10} {
		begin(name+", from the present", subscribe(rules, living, ""), "task@4 …")
		begin(name+", from before", subscribe(rules, living, r.eventID(living, 1)),
			map[string]string{"0.3": "2 3 4 …", "1.0": "task@1 2 3 4 …"}[name])
		begin(name+", from nowhere", subscribe(rules, living, "nowhere"), "gap@4 …")
		begin(name+", after the end", subscribe(rules, ended, "nowhere"),
			map[string]string{"0.3": "gap@5 5!", "1.0": "gap@5"}[name])
	}
	again := func() (*engine.Stream, error) { return r.Stream(t.Context(), ann, words, send("keyed", key("k"))) }
	for i := range 2 {
		begin(fmt.Sprint("a message, time ", i+1), again, "task@1 …")
	}
}
