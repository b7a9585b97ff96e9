package workerapi

import (
	"sync"
	"time"
)

// delayedWakeups wakes queues when the delay before another attempt is over. It owns its timers:
// after stop none of them fires. It is safe for concurrent use.
type delayedWakeups struct {
	hub Hub

	running sync.WaitGroup // timers that may still fire

	mu      sync.Mutex
	stopped bool                     // guarded by mu
	timers  map[*time.Timer]struct{} // guarded by mu
}

func newDelayedWakeups(hub Hub) *delayedWakeups {
	return &delayedWakeups{hub: hub, timers: make(map[*time.Timer]struct{})}
}

// after wakes a key once the delay has passed.
func (d *delayedWakeups) after(delay time.Duration, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return // the poll of another replica finds the task
	}
	d.running.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(delay, func() {
		defer d.running.Done()
		d.mu.Lock()
		delete(d.timers, timer)
		d.mu.Unlock()
		d.hub.Wake(key)
	})
	d.timers[timer] = struct{}{}
}

// stop stops all timers, and returns when the last wake-up has.
func (d *delayedWakeups) stop() {
	d.mu.Lock()
	d.stopped = true
	for timer := range d.timers {
		if timer.Stop() {
			d.running.Done()
		}
	}
	d.mu.Unlock()
	d.running.Wait()
}
