package worker_test

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/maintenance"
)

// program is a run of an agent that records what it does, as a library would.
type program struct {
	run   executor.Run
	yield func(a2a.Event, error) bool
	known map[string]a2a.StepRecord
}

// programs makes an executor of a program.
func programs(do func(p *program)) executor.Executor {
	return agentFunc(func(_ context.Context, run executor.Run, yield func(a2a.Event, error) bool) {
		p := &program{run: run, yield: yield, known: make(map[string]a2a.StepRecord)}
		for _, s := range run.Steps {
			p.known[s.Key] = s
		}
		do(p)
	})
}

// step returns the recorded result of a step, or does it and records that. ok is false if the run has ended.
func (p *program) step(key string, work func() string) (result string, ok bool) {
	if s, done := p.known[key]; done {
		return string(s.Result), true
	}
	result = strconv.Quote(work())
	return result, p.yield(&a2a.Step{Key: key, Name: "work", Result: a2a.Raw(result)}, nil)
}

// wait reports whether a wait is over; otherwise it begins it, and the run must end.
func (p *program) wait(w a2a.Wait) (result string, over bool) {
	if s, known := p.known[w.Key]; known && s.Ended {
		return string(s.Result), true
	}
	p.yield(&w, nil)
	return "", false
}

func (p *program) complete(text string) { p.yield(status(a2a.StateCompleted, text), nil) }

// waits ends waits until the test ends, as a replica does.
func (f *fixture) waits() {
	f.t.Helper()
	w := &maintenance.Waits{Store: f.Tasks, Wait: f.hub.Wait, Every: time.Hour, Logger: config(nil).Logger}
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			f.t.Errorf("Run = %v", err)
		}
	})
	f.t.Cleanup(func() { cancel(); wg.Wait() })
}
