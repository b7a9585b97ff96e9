package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/maintenance"
	"github.com/a2ad/a2ad/internal/worker"
)

// call sends a call. ok is false if the run has ended.
func (p *program) call(key, agent, text string) (ok bool) {
	m := message(text)
	m.ID = ""
	return p.yield(&a2a.Call{Key: key, Agent: agent, Message: m, Input: []byte(text)}, nil)
}

// cancelsCalls cancels the tasks that ended tasks have called until the test ends, as a replica does.
func (f *fixture) cancelsCalls() {
	f.t.Helper()
	c := &maintenance.Calls{Store: f.Tasks, Wait: f.hub.Wait, Logger: config(nil).Logger}
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Run(ctx); err != nil {
			f.t.Errorf("Run = %v", err)
		}
	})
	f.t.Cleanup(func() { cancel(); wg.Wait() })
}

// echo completes a task with the text of its message.
func echo() executor.Executor {
	return agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		yield(status(a2a.StateCompleted, run.Messages[0].Parts[0].Text), nil)
	})
}

// callers is a program that calls n tasks of an agent, waits for all of them, and completes with how many have ended
// completed. It repeats its calls in each run.
func callers(agent string, n int) executor.Executor {
	return programs(func(p *program) {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf("sub#%d", i+1))
			if !p.call(keys[i], agent, fmt.Sprintf("part %d", i+1)) {
				return
			}
		}
		if _, over := p.wait(a2a.Wait{Key: "all", Tasks: keys}); !over {
			return
		}
		completed := 0
		for _, key := range keys {
			if strings.Contains(string(p.known[key].Result), `"state":"TASK_STATE_COMPLETED"`) {
				completed++
			}
		}
		p.complete(fmt.Sprintf("%d of %d", completed, n))
	})
}

func anyAgent(string, *a2a.Message) error { return nil }

// Tasks that wait for those that they have called hold no slot: many more of them than there are slots make progress.
func TestCallersHoldNoSlots(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.waits()
	f.start(config(func(c *worker.Config) { c.Slots, c.MayCall = 8, anyAgent },
		agent("parent", callers("child", 10)), agent("child", echo())))
	const parents = 100
	var ids []a2a.ID
	for i := range parents {
		ids = append(ids, f.submit("parent", fmt.Sprint(i)))
	}
	for _, id := range ids {
		done := f.waitState(id, a2a.StateCompleted)
		if got := done.Status.Message.Parts[0].Text; got != "10 of 10" {
			t.Errorf("the task completed with %q", got)
		}
	}
	const attempts = "SELECT max(attempt) FROM a2a.task_attempts"
	if n := value[int](f, attempts); n != 1 {
		t.Errorf("a task took %d attempts", n)
	}
	if n := value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != parents*11 {
		t.Errorf("%d tasks, want %d", n, parents*11)
	}
}

// A task at the deepest level, or with all its calls, cannot call; and no task can call an agent that does not exist.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.waits()
	f.cancelsCalls()
	mayCall := func(name string, _ *a2a.Message) error {
		if name == "nobody" {
			return errors.New("this server has no such agent")
		}
		return nil
	}
	f.start(config(func(c *worker.Config) { c.MaxDepth, c.MaxCalls, c.MayCall = 3, 5, mayCall },
		agent("deep", callers("deep", 1)), agent("wide", callers("echo", 6)), agent("lost", callers("nobody", 1)),
		agent("echo", echo())))
	for name, want := range map[string]string{
		"wide": "event 6: the task would call more than 5 times",
		"lost": `event 1: call.agent "nobody": this server has no such agent`,
	} {
		got := f.waitState(f.submit(name, "x"), a2a.StateFailed).Status.Message.Parts[0].Text
		if got != "invalid agent response: "+want {
			t.Errorf("%s failed with %q, want %q", name, got, want)
		}
	}
	if got := f.waitState(f.submit("deep", "x"), a2a.StateCompleted).Status.Message.Parts[0].Text; got != "1 of 1" {
		t.Errorf("deep completed with %q", got)
	}
	if n := value[int](f, "SELECT max(depth)::int FROM a2a.tasks"); n != 3 {
		t.Errorf("the deepest task is at %d, want 3", n)
	}
	// The calls of the task that failed were canceled, or had ended.
	f.waitQuery("SELECT count(*) = 0 FROM a2a.tasks WHERE state < 100")
}
