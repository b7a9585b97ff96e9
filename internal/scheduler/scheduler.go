// Package scheduler makes tasks at the times that agent files name.
//
// Every replica runs it, and the database decides which of them starts a tick. So ticks do not depend on a particular
// replica being alive. A replica sleeps until the next tick of its agents.
package scheduler

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store/schedules"
	"github.com/a2ad/a2ad/internal/wake"
)

// Hub wakes this process when something has changed.
type Hub interface {
	Watch(key string, wake func()) (stop func())
}

// Scheduler starts the ticks of the agents of this replica. Its Run method is one goroutine.
type Scheduler struct {
	Store  *schedules.Store
	Hub    Hub
	Agents func() []*a2a.Agent // of this replica, now
	Most   int                 // tasks that one owner may have in flight; 0: no limit
	Logger *slog.Logger

	longest time.Duration // between two reads while an agent has a schedule

	changed chan struct{} // capacity 1; the agent files were loaded again, or another replica has changed something
	files   chan struct{} // capacity 1; the agent files were loaded again

	loaded []string          // names of the agents that were loaded; owned by Run
	queued map[string]func() // by task: ends the subscription to its end; owned by Run
}

// Longest waits between two reads. A wake-up that is lost costs no more.
const (
	longest     = time.Minute
	longestIdle = 10 * time.Minute // no agent has a schedule
	failed      = 5 * time.Second  // the database did not answer
	taken       = time.Second      // another replica acts on a schedule that is due
)

// New returns a scheduler that lets each owner have most tasks in flight. It starts nothing.
func New(store *schedules.Store, hub Hub, agents func() []*a2a.Agent, most int, log *slog.Logger) *Scheduler {
	return &Scheduler{
		Store: store, Hub: hub, Agents: agents, Most: most, Logger: log, longest: longest,
		changed: make(chan struct{}, 1), files: make(chan struct{}, 1), queued: make(map[string]func()),
	}
}

// Reload says that the agents have changed. It does not block.
func (s *Scheduler) Reload() { signal(s.files) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run starts ticks until ctx is done.
func (s *Scheduler) Run(ctx context.Context) error {
	defer s.Hub.Watch(wake.Schedules, func() { signal(s.changed) })()
	defer func() {
		for _, stop := range s.queued {
			stop()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	load := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.files:
			load = true
		case <-s.changed:
		case <-timer.C:
		}
		if load {
			load = !s.load(ctx)
		}
		wait := s.round(ctx)
		if load {
			wait = min(wait, failed)
		}
		timer.Reset(wait)
	}
}

// load stores the schedules of the agent files, and reports whether that has succeeded.
func (s *Scheduler) load(ctx context.Context) bool {
	files := make(map[string][]a2a.Schedule)
	for _, gone := range s.loaded {
		files[gone] = nil
	}
	for _, a := range s.Agents() {
		files[a.Name] = a.Schedules
	}
	n, err := s.Store.Load(ctx, files)
	if err != nil {
		s.warn(ctx, "store the schedules of agent files", err)
		return false
	}
	s.loaded = s.names()
	if n > 0 {
		s.Logger.InfoContext(ctx, "schedules changed", "schedules", n)
	}
	return true
}

// names returns the names of the agents. It is never nil.
func (s *Scheduler) names() []string {
	names := []string{}
	for _, a := range s.Agents() {
		names = append(names, a.Name)
	}
	return names
}

// round acts on the schedules that are due, and returns how long to wait for the next round.
func (s *Scheduler) round(ctx context.Context) time.Duration {
	list, err := s.Store.List(ctx, s.names())
	if err != nil {
		s.warn(ctx, "read schedules", err)
		return failed
	}
	list = slices.DeleteFunc(list, func(it schedules.Schedule) bool { return !it.Active() })
	if len(list) == 0 {
		s.follow(nil)
		return backoff.Jitter(longestIdle, nil)
	}
	read := time.Now()
	if s.follow(list) {
		signal(s.changed) // the task may have ended before the subscription
	}
	wait := backoff.Jitter(s.longest, nil)
	for i := range list {
		it := &list[i]
		if it.Due() {
			wait = min(wait, s.act(ctx, it))
		} else if !it.NextAt.IsZero() {
			wait = min(wait, it.NextAt.Sub(it.Now)-time.Since(read))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return max(wait, time.Millisecond)
}

// act acts on one schedule, and returns when to read it again.
func (s *Scheduler) act(ctx context.Context, it *schedules.Schedule) time.Duration {
	ticks, err := s.Store.Act(ctx, it, s.Most)
	if err != nil {
		s.warn(ctx, "act on a schedule", err)
		return failed
	}
	missed := 0
	for _, t := range ticks {
		attrs := []any{"agent", it.Agent, "schedule", it.Name, "tick", t.Tick}
		switch {
		case t.Outcome == schedules.Started:
			s.Logger.InfoContext(ctx, "scheduled task", append(attrs, "task_id", t.Task.String())...)
		case t.Refused != "":
			s.Logger.WarnContext(ctx, "a tick of a schedule was refused", append(attrs, "reason", t.Refused)...)
		case t.Outcome == schedules.Missed:
			missed++
		default:
			s.Logger.InfoContext(ctx, "the last task of the schedule has not ended",
				append(attrs, "outcome", string(t.Outcome))...)
		}
	}
	if missed > 0 {
		s.Logger.WarnContext(ctx, "ticks of a schedule were missed",
			"agent", it.Agent, "schedule", it.Name, "ticks", missed)
	}
	switch {
	case len(ticks) > 0:
		return 0
	case it.NextAt.After(it.Now): // a queued tick waits
		return it.NextAt.Sub(it.Now)
	}
	return taken
}

// follow subscribes to the ends of the tasks that queued ticks wait for. It reports whether there is a new one.
func (s *Scheduler) follow(list []schedules.Schedule) (added bool) {
	wanted := make(map[string]bool)
	for i := range list {
		if list[i].QueuedTick.IsZero() {
			continue
		}
		key := wake.Task(list[i].LastTask)
		if wanted[key] = true; s.queued[key] == nil {
			s.queued[key] = s.Hub.Watch(key, func() { signal(s.changed) })
			added = true
		}
	}
	for key, stop := range s.queued {
		if !wanted[key] {
			stop()
			delete(s.queued, key)
		}
	}
	return added
}

func (s *Scheduler) warn(ctx context.Context, doing string, err error) {
	if ctx.Err() == nil {
		s.Logger.WarnContext(ctx, doing, "err", err)
	}
}
