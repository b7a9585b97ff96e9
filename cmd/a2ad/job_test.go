package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/bulk"
	"github.com/a2ad/a2ad/internal/notify"
)

// runJobs runs bulk jobs as a server does, until the end of the test.
func (w *world) runJobs() {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	w.Cleanup(func() { cancel(); wg.Wait() })
	r := bulk.New(bulk.Config{
		Store: w.store.Jobs, Hub: &notify.Hub{}, Worker: "r1", Poll: 20 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	wg.Go(func() { r.Run(ctx) }) //nolint:errcheck // it only returns nil
}

// Commands with filters print the same and have the same exit code on a server, where the server runs the job, and on a
// database, where the command does.
func TestJobsOfCommands(t *testing.T) {
	t.Parallel()
	for _, server := range []bool{false, true} {
		w := newWorld(t)
		w.submit(oldTask, "bob", nil)
		w.append(w.claim(), statusUpdate(a2a.StateFailed))
		w.submit(taskID, "alice", nil)
		w.submit(thirdTask, "alice", nil)
		if server {
			srv := w.serve()
			t.Cleanup(srv.Close)
			w.runJobs()
			w.env = []string{"A2AD_API_KEY=secret", "A2AD_SERVER=" + srv.URL}
		}
		for _, tc := range []struct {
			code           int
			args           string
			stdout, stderr string
		}{
			{exitOK, "task cancel --agent words --dry-run", "AGENT  STATE      TASKS\nwords  submitted  2\n",
				"2 tasks would be canceled\n"},
			{exitOK, "task cancel --agent words --dry-run -o json",
				`{"tasks":2,"groups":[{"agent":"words","state":"submitted","tasks":2}]}` + "\n", ""},
			{exitOK, "task cancel --agent echo --yes", "", "0 tasks canceled\n"},
			{exitOK, "task cancel --state submitted --owner alice --yes",
				taskID + " canceled\n" + thirdTask + " canceled\n", "2 tasks canceled\n"},
			{exitUsage, "task cancel", "", ""},
			{exitUsage, "task cancel --all", "", ""},
			{exitUsage, "task cancel --no-wait " + oldTask, "", ""},
			{exitOK, "task retry --all --dry-run", "AGENT  STATE   TASKS\nwords  failed  1\n",
				"1 task would be retried\n"},
		} {
			i := w.run(tc.code, strings.Fields(tc.args)...)
			if tc.code == exitOK && (i.stdout != tc.stdout || i.stderr != tc.stderr) {
				t.Errorf("server %t: %s printed\n%s%s", server, tc.args, i.stdout, i.stderr)
			}
		}
		if i := w.run(exitOK, "task", "retry", "--all", "--yes"); !strings.HasPrefix(i.stdout, oldTask+" → ") ||
			i.stderr != "1 task retried\n" {
			t.Errorf("server %t: retry printed\n%s%s", server, i.stdout, i.stderr)
		}
		list := rows[jobRow](t, w.run(exitOK, "job", "ls", "-o", "json"))
		if len(list) != 3 || list[0].Action != "retry" || list[0].State != "done" || list[1].Done != 2 {
			t.Errorf("server %t: the jobs are %+v", server, list)
		}
	}
}

// A job that nobody waits for is left to the servers. It can be shown and stopped.
func TestJobWithoutWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	i := w.run(exitOK, "task", "cancel", "--all", "--yes", "--no-wait", "--reason", "too many")
	id := strings.TrimSpace(i.stdout)
	if i.stderr != "a server runs the job; follow it with: a2ad job show "+id+"\n" {
		t.Errorf("the command printed %s%s", i.stdout, i.stderr)
	}
	if i := w.run(exitOK, "job", "show", id[:30]); !strings.Contains(i.stdout, "running") ||
		!strings.Contains(i.stdout, "too many") {
		t.Errorf("the job is\n%s", i.stdout)
	}
	if i := w.run(exitOK, "job", "stop", id, "--reason", "a mistake"); i.stdout != id+" stopped\n" {
		t.Errorf("stop printed %s%s", i.stdout, i.stderr)
	}
	if i := w.run(exitFailure, "job", "stop", id); !strings.Contains(i.stderr, "the job has ended") {
		t.Errorf("a second stop printed %s%s", i.stdout, i.stderr)
	}
	w.run(exitFailure, "job", "show", "01938c1e")
	if i := w.run(exitOK, "job", "ls", "--state", "stopped"); !strings.Contains(i.stdout, id) {
		t.Errorf("the list is\n%s", i.stdout)
	}
}
