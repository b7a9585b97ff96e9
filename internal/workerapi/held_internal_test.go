package workerapi

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestHeldRunsAreForgotten(t *testing.T) {
	t.Parallel()
	run := func(task byte, fresh, left time.Duration) *tasks.RemoteRun {
		return &tasks.RemoteRun{Lease: tasks.Lease{TaskID: a2a.ID{task}, Epoch: 1, Left: left}, Fresh: fresh}
	}
	lease := func(task byte, batch string) tasks.RemoteLease {
		return tasks.RemoteLease{Task: a2a.ID{task}, Epoch: 1, Batch: batch}
	}
	synctest.Test(t, func(t *testing.T) {
		var h heldRuns
		start := time.Now()
		h.put(run(1, 10*time.Second, 0), start)
		h.put(run(2, 10*time.Second, 5*time.Second), start) // its deadline comes first
		h.put(run(3, 10*time.Second, 0), start.Add(-6*time.Second))
		h.put(run(4, 10*time.Second, 0), start.Add(-time.Minute)) // the statement took longer than the lease is fresh
		if len(h.runs) != 3 {
			t.Errorf("%d runs are remembered, want 3", len(h.runs))
		}
		time.Sleep(5 * time.Second)
		for task, want := range map[byte]bool{1: true, 2: false, 3: false, 4: false} {
			if got := h.take(lease(task, "")); (got != nil) != want {
				t.Errorf("run %d is remembered: %v, want %v", task, got != nil, want)
			}
		}
		if h.take(lease(1, "")) != nil {
			t.Error("a run that one request has taken is remembered for the next")
		}
		one := &heldRun{RemoteRun: run(1, 0, 0), until: start.Add(8 * time.Second), batch: "b"}
		h.putBack(one)
		if h.take(lease(1, "b")) != nil {
			t.Error("a batch that was written is written again")
		}
		h.putBack(one)
		if h.take(tasks.RemoteLease{Task: a2a.ID{1}, Epoch: 2}) != nil {
			t.Error("a run is taken for another epoch")
		}
		if h.take(lease(1, "c")) == nil {
			t.Error("a run is forgotten although its lease is fresh")
		}
		time.Sleep(3 * time.Second)
		if h.putBack(one); len(h.runs) != 0 {
			t.Error("a run is put back although its lease is not fresh any more")
		}
	})
}

func TestHeldRunsAreBounded(t *testing.T) {
	t.Parallel()
	var h heldRuns
	at := time.Now()
	for i := range maxHeldRuns + 1 {
		h.put(&tasks.RemoteRun{Lease: tasks.Lease{TaskID: a2a.ID{byte(i), byte(i >> 8)}}, Fresh: time.Hour}, at)
	}
	if len(h.runs) == 0 || len(h.runs) > maxHeldRuns {
		t.Errorf("%d runs are remembered, want at most %d", len(h.runs), maxHeldRuns)
	}
}
