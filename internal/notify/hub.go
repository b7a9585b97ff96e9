package notify

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
)

const shardCount = 256 // a power of two

// seed is the same for all hubs, so that the zero Hub works.
var seed = maphash.MakeSeed()

// Hub wakes the waiters for a key in this process. The zero value is ready to use, and all methods are safe for
// concurrent use. It must not be copied.
type Hub struct {
	shards  [shardCount]shard
	classes atomic.Int64 // waiters of WaitClass and WatchClass

	mu     sync.RWMutex
	byName map[*classWatcher]struct{} // guarded by mu
}

// classWatcher is one WatchClass.
type classWatcher struct {
	class string
	wake  func(key string)
}

// shard has the waiters of the keys that hash to it.
type shard struct {
	mu    sync.Mutex
	first map[string]*waiter // guarded by mu; the head of each key's list
	_     [48]byte           // one cache line per shard, so that shards do not slow each other down
}

// waiter is one Wait or Watch, linked with the others of its key.
type waiter struct {
	wake       func() // called with the shard's lock held
	shard      *shard
	key        string
	keyOnly    bool    // WakeAll skips it
	prev, next *waiter // guarded by shard.mu
	stopped    bool    // guarded by shard.mu
}

func (h *Hub) shard(key string) *shard {
	return &h.shards[maphash.String(seed, key)%shardCount]
}

// Wait registers a waiter for key. From now on each Wake of the key puts a token in wake, which has room for one and is
// never closed. Call stop when done; further calls do nothing.
func (h *Hub) Wait(key string) (wake <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	return c, h.Watch(key, func() {
		select {
		case c <- struct{}{}:
		default: // its token was not received yet
		}
	})
}

// Watch calls wake at each Wake of the key, from now on until stop returns. wake must not block and must not use the
// Hub. Further calls of stop do nothing.
func (h *Hub) Watch(key string, wake func()) (stop func()) { return h.watch(key, wake, false) }

// WatchKey is Watch for one of very many keys: WakeAll does not call wake. A caller also watches one key with Watch,
// and reads the news of all its keys together when that is woken.
func (h *Hub) WatchKey(key string, wake func()) (stop func()) { return h.watch(key, wake, true) }

// WaitClass is Wait for all keys of a class: those that begin with it and a colon, as "task:…" do.
func (h *Hub) WaitClass(class string) (wake <-chan struct{}, stop func()) {
	wake, unwatch := h.Wait(class + ":")
	h.classes.Add(1)
	return wake, sync.OnceFunc(func() {
		unwatch()
		h.classes.Add(-1)
	})
}

// WatchClass calls wake with each key of a class that is woken, from now on until stop returns. WakeAll calls it with
// "": any key of the class may have been woken. wake must not block and must not use the Hub.
func (h *Hub) WatchClass(class string, wake func(key string)) (stop func()) {
	w := &classWatcher{class, wake}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byName == nil {
		h.byName = make(map[*classWatcher]struct{})
	}
	h.byName[w] = struct{}{}
	h.classes.Add(1)
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.byName, w)
		h.classes.Add(-1)
	})
}

// WakeClass wakes the waiters of the class of a key, for a key that need not be woken itself.
func (h *Hub) WakeClass(key string) {
	if h.classes.Load() == 0 {
		return
	}
	class, _, ok := strings.Cut(key, ":")
	if !ok {
		return
	}
	h.wake(class + ":")
	h.watchers(class, key)
}

// watchers calls those of WatchClass. An empty class is all of them.
func (h *Hub) watchers(class, key string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for w := range h.byName {
		if class == "" || w.class == class {
			w.wake(key)
		}
	}
}

func (h *Hub) watch(key string, wake func(), keyOnly bool) (stop func()) {
	s := h.shard(key)
	w := &waiter{wake: wake, shard: s, key: key, keyOnly: keyOnly}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = make(map[string]*waiter)
	}
	w.next = s.first[key]
	if w.next != nil {
		w.next.prev = w
	}
	s.first[key] = w
	return w.stop
}

func (w *waiter) stop() {
	s := w.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.stopped {
		return
	}
	w.stopped = true
	if w.next != nil {
		w.next.prev = w.prev
	}
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case w.next != nil:
		s.first[w.key] = w.next
	default:
		delete(s.first, w.key)
	}
	w.prev, w.next = nil, nil
}

// Wake wakes every waiter of the keys. It never blocks.
func (h *Hub) Wake(keys ...string) {
	for _, key := range keys {
		h.wake(key)
		h.WakeClass(key)
	}
}

func (h *Hub) wake(key string) {
	s := h.shard(key)
	s.mu.Lock()
	s.first[key].wakeList()
	s.mu.Unlock()
}

// WakeAll wakes every waiter except the ones of WatchKey. It never blocks.
func (h *Hub) WakeAll() {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		for _, w := range s.first {
			for ; w != nil; w = w.next {
				if !w.keyOnly {
					w.wake()
				}
			}
		}
		s.mu.Unlock()
	}
	h.watchers("", "")
}

// wakeList wakes w and the waiters after it; w may be nil. The caller has locked the shard.
func (w *waiter) wakeList() {
	for ; w != nil; w = w.next {
		w.wake()
	}
}

// Waiters returns how many waiters are registered.
func (h *Hub) Waiters() int {
	n := 0
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		for _, w := range s.first {
			for ; w != nil; w = w.next {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}
