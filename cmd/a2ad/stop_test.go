package main

import (
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/admin"
)

// TestAgentsArePausedAndWorkersDrained: the commands say what they did, stats shows it, and nothing is claimed.
func TestAgentsArePausedAndWorkersDrained(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	w.submit(oldTask, "bob", nil)
	w.claim()
	if i := w.run(exitOK, "agent", "pause", "words", "--reason", "bad release"); i.stdout != "words paused\n" {
		t.Errorf("%q", i.stdout)
	}
	i := w.run(exitFailure, "agent", "pause", "words")
	if i.stderr != "a2ad: agent words: the agent is already paused\n" {
		t.Errorf("%q", i.stderr)
	}
	list := rows[admin.Agent](t, w.run(exitOK, "agent", "ls", "-o", "json"))
	if len(list) != 1 || list[0].State != "paused" || list[0].Waiting != 1 || list[0].Running != 1 {
		t.Errorf("%+v", list)
	}
	for _, command := range []string{"agent ls", "stats"} {
		if i := w.run(exitOK, strings.Fields(command)...); !strings.Contains(i.stdout, "bad release") {
			t.Errorf("a2ad %s:\n%s", command, i.stdout)
		}
	}
	leases, err := w.store.Tasks.NewClaimer().Claim(t.Context(), "words", 1, time.Minute, time.Hour)
	if err != nil || len(leases) != 0 {
		t.Errorf("claimed %d tasks of a paused agent, %v", len(leases), err)
	}
	i = w.run(exitOK, "agent", "resume", "words", "-o", "json")
	if i.stdout != `{"agent":"words","paused":false}`+"\n" {
		t.Errorf("%q", i.stdout)
	}

	worker := rows[admin.Worker](t, w.run(exitOK, "worker", "ls", "-o", "json"))
	if len(worker) != 1 || worker[0].Running != 1 || worker[0].State != "active" {
		t.Fatalf("%+v", worker)
	}
	i = w.run(exitOK, "worker", "drain", worker[0].Name, "--expire", "--reason", "it hangs")
	if i.stdout != worker[0].Name+" drained, 1 lease ended\n" {
		t.Errorf("%q", i.stdout)
	}
	if i := w.run(exitOK, "worker", "ls"); !strings.Contains(i.stdout, "drained") {
		t.Errorf("%s", i.stdout)
	}
	if i := w.run(exitOK, "worker", "resume", worker[0].Name); i.stdout != worker[0].Name+" resumed\n" {
		t.Errorf("%q", i.stdout)
	}
}
