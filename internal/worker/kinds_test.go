package worker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/worker"
)

// Commands have slots of their own. If all are in use, other agents run, and the pool says that tasks wait.
func TestCommandsHaveFewerSlots(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	commands, others := newGate(), newGate()
	command := agent("command", commands)
	command.Command = true
	var list []a2a.ID
	for i := range 5 {
		list = append(list, f.submit("command", fmt.Sprint(i)), f.submit("other", fmt.Sprint(i)))
	}
	p := f.start(config(func(c *worker.Config) { c.Slots, c.Commands = 8, 2 }, command, agent("other", others)))
	for range 2 {
		receive(t, "run of a command", commands.started)
	}
	for range 5 {
		receive(t, "run of another agent", others.started)
	}
	if n := commands.working.Load(); n != 2 {
		t.Errorf("%d commands are at work, want 2", n)
	}
	if l := p.Load(); l.Slots != 8 || l.Busy != 7 || l.Commands != 2 || l.BusyCommands != 2 || l.Waiting == 0 {
		t.Errorf("load %+v, want 7 of 8 slots and 2 of 2 commands, and tasks that wait", l)
	}
	for range 3 {
		commands.next <- []a2a.Event{status(a2a.StateCompleted)}
		receive(t, "run of a command", commands.started)
	}
	for range 2 {
		commands.next <- []a2a.Event{status(a2a.StateCompleted)}
	}
	for range 5 {
		others.next <- []a2a.Event{status(a2a.StateCompleted)}
	}
	for _, task := range list {
		f.waitState(task, a2a.StateCompleted)
	}
	p.stop()
	if l := p.Load(); l.BusyCommands != 0 || l.Waiting != 0 {
		t.Errorf("load %+v at the end, want no command and no task that waits", l)
	}
}

// Runs hold no more tasks than the memory for them has room for, and one. The others wait in the queue, which costs no
// attempt. Once it is known that few fit, few are claimed.
func TestRunsHoldBoundedMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	text := strings.Repeat("x", 1000)
	list := []a2a.ID{f.submit("a", strings.Repeat("x", 5000))} // it is larger than all memory
	for range 6 {
		list = append(list, f.submit("a", text))
	}
	size := value[int64](f, "SELECT bytes FROM a2a.tasks WHERE id = $1", list[1])
	p := f.start(config(func(c *worker.Config) { c.Slots, c.MaxHeld = 8, size*5/2 }, agent("a", g)))
	receive(t, "run", g.started)
	for ended := range len(list) {
		if n, most := g.working.Load(), int64(3); n > most {
			t.Errorf("%d at work after %d ends, want at most %d", n, ended, most)
		}
		if l := p.Load(); ended > 0 && l.HeldBytes > size*7/2 {
			t.Errorf("runs hold %d bytes after %d ends, want at most %d", l.HeldBytes, ended, size*7/2)
		}
		g.next <- []a2a.Event{status(a2a.StateCompleted)}
		if ended < len(list)-1 {
			receive(t, "run", g.started)
		}
	}
	f.waitAll(list)
	p.stop()
	const released = `SELECT count(*) FROM a2a.task_attempts
		WHERE outcome = 'released' AND error = 'the memory for tasks of runs is full'`
	if n := value[int](f, released); n != 6 {
		t.Errorf("tasks went back to the queue %d times, want 6: all but the first, once", n)
	}
	if n := value[int](f, "SELECT max(attempt) FROM a2a.task_attempts"); n != 1 {
		t.Errorf("a task ended in attempt %d, want 1", n)
	}
}

// One pool has a thousand agents at work that only wait.
func TestAThousandRunsAtOnce(t *testing.T) {
	t.Parallel()
	const runs = 1000 // by default: A2AD_WORKERS
	f := newFixture(t)
	g := newGate()
	g.started = make(chan executor.Run, runs)
	list := f.submitMany("a", runs)
	p := f.start(config(func(c *worker.Config) { c.Slots = runs }, agent("a", g)))
	for range runs {
		receive(t, "run", g.started)
	}
	if n := g.working.Load(); n != runs {
		t.Errorf("%d at work, want %d", n, runs)
	}
	go func() {
		for range runs {
			g.next <- []a2a.Event{status(a2a.StateCompleted)}
		}
	}()
	f.waitAll(list)
	p.stop()
}
