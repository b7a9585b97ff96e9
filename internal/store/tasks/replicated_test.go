package tasks_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// A repeated send finds the task of the first one. Without a standby that has the task, the answer would be lost with
// this server.
func TestReplaysWaitForAStandby(t *testing.T) {
	t.Parallel()
	short := func(c *store.Config) { c.StatementTimeout = 2 * time.Second }
	f := storetest.OpenOn(t, storetest.NewServer(t, nil), short)
	in := storetest.Submission("hello")
	in.Key = "h:key"
	first, err := f.Tasks.Submit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	f.LoseStandbys()
	if again, err := f.Tasks.Submit(t.Context(), in); a2a.CodeOf(err) != a2a.CodeUnavailable {
		t.Errorf("a replay that no standby has is answered with %+v, %v", again, err)
	}
	f.NeedNoStandbys()
	again, err := f.Tasks.Submit(t.Context(), in)
	if err != nil || again.Task != first.Task || !again.Replay {
		t.Errorf("the replay is answered with %+v, %v, want task %s", again, err, first.Task)
	}
}
