package notify

import (
	"hash/maphash"
	"sync"
)

const shardCount = 256 // a power of two

// seed is the same for all hubs, so that the zero Hub works.
var seed = maphash.MakeSeed()

// Hub wakes the waiters for a key in this process. The zero value is ready to use, and all methods are safe for
// concurrent use. It must not be copied.
type Hub struct {
	shards [shardCount]shard
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
		s := h.shard(key)
		s.mu.Lock()
		s.first[key].wakeList()
		s.mu.Unlock()
	}
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
