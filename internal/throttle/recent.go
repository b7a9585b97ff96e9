package throttle

import (
	"container/list"
	"sync"
)

// recent is a map that keeps the most recently used keys. It is safe for concurrent use.
type recent[K comparable, V any] struct {
	size int

	mu    sync.Mutex
	items map[K]*list.Element // guarded by mu
	order *list.List          // guarded by mu; of entry, the newest first
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newRecent[K comparable, V any](size int) *recent[K, V] {
	return &recent[K, V]{size: size, items: make(map[K]*list.Element), order: list.New()}
}

// getOrAdd returns the value of a key, and adds the result of fresh if there is none.
func (r *recent[K, V]) getOrAdd(key K, fresh func() V) V {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.items[key]; ok {
		r.order.MoveToFront(e)
		return e.Value.(*entry[K, V]).value
	}
	if len(r.items) >= r.size {
		oldest := r.order.Back()
		delete(r.items, oldest.Value.(*entry[K, V]).key)
		r.order.Remove(oldest)
	}
	v := fresh()
	r.items[key] = r.order.PushFront(&entry[K, V]{key, v})
	return v
}

// get returns the value of a key if there is one. It does not count as a use of the key.
func (r *recent[K, V]) get(key K) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.items[key]
	if !ok {
		return v, false
	}
	return e.Value.(*entry[K, V]).value, true
}

func (r *recent[K, V]) remove(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.items[key]; ok {
		delete(r.items, key)
		r.order.Remove(e)
	}
}
