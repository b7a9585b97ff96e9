// Package stops tells the parts of a replica which agents and workers operators have stopped.
//
// Claims ask the database themselves, so nothing depends on how fast this package learns of a change. It keeps tasks
// from being started without a claim, and workers that are to claim nothing from being asked.
package stops

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/wake"
)

// readEvery is how often the stops are read without a wake-up.
const readEvery = 15 * time.Second

// Hub delivers wake-ups.
type Hub interface {
	Wait(key string) (wake <-chan struct{}, stop func())
}

// View is what is known of the stops. Use New. Its methods are safe for concurrent use; Run works once.
type View struct {
	store *tasks.Store
	hub   Hub
	log   *slog.Logger

	mu      sync.Mutex
	read    bool          // guarded by mu; the stops have been read once
	stopped map[stop]bool // guarded by mu
	changed []func()      // guarded by mu; called after a change
}

type stop struct {
	kind tasks.Stoppable
	name string
}

// New returns a View that knows nothing until Run.
func New(s *tasks.Store, hub Hub, log *slog.Logger) *View {
	return &View{store: s, hub: hub, log: log}
}

// Drained reports whether a worker is known to be stopped.
func (v *View) Drained(worker string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.stopped[stop{tasks.StopWorker, worker}]
}

// MayStart reports whether a worker may start tasks of an agent without a claim. Until the stops have been read, it may
// not.
func (v *View) MayStart(agent, worker string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.read && !v.stopped[stop{tasks.StopAgent, agent}] && !v.stopped[stop{tasks.StopWorker, worker}]
}

// OnChange makes the view call f after each change. f must not block. Use it before Run.
func (v *View) OnChange(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changed = append(v.changed, f)
}

// Run follows the stops until ctx is done.
func (v *View) Run(ctx context.Context) error {
	woken, stop := v.hub.Wait(wake.Stops)
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-woken:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		v.update(ctx)
		timer.Reset(backoff.Jitter(readEvery, nil))
	}
}

func (v *View) update(ctx context.Context) {
	list, err := v.store.Stops(ctx)
	if err != nil {
		if ctx.Err() == nil {
			v.log.WarnContext(ctx, "read what operators have stopped", "err", err)
		}
		return
	}
	now := make(map[stop]bool, len(list))
	for _, s := range list {
		now[stop{s.Kind, s.Name}] = true
	}
	for _, f := range v.set(now) {
		f()
	}
}

// set replaces what is known, and returns what is to be called.
func (v *View) set(now map[stop]bool) []func() {
	v.mu.Lock()
	defer v.mu.Unlock()
	same := v.read && len(now) == len(v.stopped)
	for s := range now {
		same = same && v.stopped[s]
	}
	v.read, v.stopped = true, now
	if same {
		return nil
	}
	return v.changed
}
