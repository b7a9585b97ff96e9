package attempt

import (
	"sync"
	"time"
)

// Timers owns timers that call functions later, such as a wake-up when a retry is due. The zero value is ready.
// It is safe for concurrent use.
type Timers struct {
	mu      sync.Mutex
	pending map[*time.Timer]struct{} // guarded by mu
	stopped bool                     // guarded by mu
}

// After calls f after d, in a goroutine of its own, unless Stop comes first. f must not block.
func (t *Timers) After(d time.Duration, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	if t.pending == nil {
		t.pending = make(map[*time.Timer]struct{})
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		t.mu.Lock() // also waits until timer is set
		delete(t.pending, timer)
		stopped := t.stopped
		t.mu.Unlock()
		if !stopped {
			f()
		}
	})
	t.pending[timer] = struct{}{}
}

// Stop stops all timers. Later calls of After do nothing.
func (t *Timers) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	for timer := range t.pending {
		timer.Stop()
	}
	clear(t.pending)
}
