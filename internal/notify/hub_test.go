package notify

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// woken receives the token of a waiter, if it has one.
func woken(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

// keysHeld counts the keys that have an entry in the hub.
func keysHeld(h *Hub) int {
	n := 0
	for i := range h.shards {
		n += len(h.shards[i].first)
	}
	return n
}

func TestWakeReachesTheWaitersOfItsKey(t *testing.T) {
	t.Parallel()
	var h Hub
	a1, stopA1 := h.Wait("task:a")
	a2, stopA2 := h.Wait("task:a")
	b, stopB := h.Wait("task:b")
	defer stopA1()
	defer stopA2()
	defer stopB()

	h.Wake("task:a", "task:nobody")
	if !woken(a1) || !woken(a2) || woken(b) {
		t.Error("Wake of a: want both waiters of a and no other")
	}
	h.WakeAll()
	if !woken(a1) || !woken(a2) || !woken(b) {
		t.Error("WakeAll: want all three")
	}
}

func TestWakeAllSkipsWatchersOfOneKey(t *testing.T) {
	t.Parallel()
	var h Hub
	calls := 0
	stop := h.WatchKey("task:a", func() { calls++ })
	all, stopAll := h.Wait("tasks")
	defer stopAll()
	h.WakeAll()
	if calls != 0 || !woken(all) {
		t.Errorf("WakeAll made %d calls, want none", calls)
	}
	h.Wake("task:a")
	if calls != 1 || woken(all) {
		t.Errorf("Wake made %d calls, want 1", calls)
	}
	stop()
	if n := keysHeld(&h); n != 1 {
		t.Errorf("%d keys are left after stop, want 1", n)
	}
}

func TestWakesMergeToOneToken(t *testing.T) {
	t.Parallel()
	var h Hub
	wake, stop := h.Wait("k")
	defer stop()
	h.Wake("k", "k")
	h.Wake("k")
	h.WakeAll()
	if !woken(wake) || woken(wake) {
		t.Error("four wakes: want exactly one token")
	}
}

func TestStopIsIdempotentAndFinal(t *testing.T) {
	t.Parallel()
	var h Hub
	first, stopFirst := h.Wait("k")
	second, stopSecond := h.Wait("k")
	defer stopSecond()
	stopFirst()
	stopFirst() // must not remove the second waiter
	h.Wake("k")
	if woken(first) || !woken(second) {
		t.Error("after stop of the first waiter: want a token for the second only")
	}
}

func TestKeyWithoutWaitersKeepsNothing(t *testing.T) {
	t.Parallel()
	var h Hub
	for i := range 1000 {
		key := strconv.Itoa(i)
		h.Wake(key)
		_, stop := h.Wait(key)
		h.Wake(key)
		stop()
		h.Wake(key)
	}
	if n, w := keysHeld(&h), h.Waiters(); n != 0 || w != 0 {
		t.Errorf("%d keys and %d waiters are left, want none", n, w)
	}
}

// TestStopWaitsForAWakeInProgress: after stop returns, the caller may destroy what its wake
// function uses.
func TestStopWaitsForAWakeInProgress(t *testing.T) {
	t.Parallel()
	for name, wake := range map[string]func(*Hub){"wake": func(h *Hub) { h.Wake("a") }, "wake all": (*Hub).WakeAll} {
		var h Hub
		var wg sync.WaitGroup
		var stopped atomic.Bool
		in, out := make(chan struct{}), make(chan struct{})
		stop := h.Watch("a", func() {
			in <- struct{}{}
			<-out
			if stopped.Load() {
				t.Errorf("%s: stop has returned during a wake", name)
			}
		})
		wg.Go(func() { wake(&h) })
		<-in
		wg.Go(func() {
			stop()
			stopped.Store(true)
		})
		for range 1000 {
			runtime.Gosched() // a stop that does not wait returns now
		}
		close(out)
		wg.Wait()
		if n := h.Waiters(); n != 0 {
			t.Errorf("%s: %d waiters, want none", name, n)
		}
	}
}

// TestHubAgainstModel compares random sequences with a simple model.
func TestHubAgainstModel(t *testing.T) {
	t.Parallel()
	type waiting struct {
		key     string
		wake    <-chan struct{}
		stop    func()
		stopped bool
		token   bool
	}
	rapid.Check(t, func(t *rapid.T) {
		var h Hub
		var all []*waiting
		key := rapid.SampledFrom([]string{"", "a", "b", "task:0190", All})
		alive := func(w *waiting) bool { return !w.stopped }
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				w := &waiting{key: key.Draw(t, "key")}
				w.wake, w.stop = h.Wait(w.key)
				all = append(all, w)
			},
			"stop": func(t *rapid.T) {
				if len(all) > 0 {
					w := rapid.SampledFrom(all).Draw(t, "waiter")
					w.stop()
					w.stopped = true
				}
			},
			"wake": func(t *rapid.T) {
				keys := rapid.SliceOfN(key, 0, 3).Draw(t, "keys")
				h.Wake(keys...)
				for _, w := range all {
					for _, k := range keys {
						w.token = w.token || alive(w) && w.key == k
					}
				}
			},
			"wake all": func(*rapid.T) {
				h.WakeAll()
				for _, w := range all {
					w.token = w.token || alive(w)
				}
			},
			"": func(t *rapid.T) {
				n := 0
				for i, w := range all {
					if got := woken(w.wake); got != w.token {
						t.Fatalf("waiter %d of %q: token %t, want %t", i, w.key, got, w.token)
					}
					w.token = false
					if alive(w) {
						n++
					}
				}
				if got := h.Waiters(); got != n {
					t.Fatalf("Waiters = %d, want %d", got, n)
				}
			},
		})
	})
}

// TestNoWakeIsLost runs the loop of every waiter: wait, read, wait for the wake-up, read again. If
// a wake-up were lost, a reader would never see the last value.
func TestNoWakeIsLost(t *testing.T) {
	t.Parallel()
	const keys, readersPerKey, writes = 8, 8, 500
	var h Hub
	var values [keys]atomic.Int64
	var wg sync.WaitGroup
	for k := range keys {
		key := fmt.Sprintf("task:%d", k)
		for range readersPerKey {
			wg.Go(func() {
				for seen := int64(0); seen < writes; {
					wake, stop := h.Wait(key)
					for range 3 { // a new waiter from time to time
						if now := values[k].Load(); now > seen {
							seen = now
						} else {
							<-wake
						}
						if seen == writes {
							break
						}
					}
					stop()
					stop()
				}
			})
		}
		wg.Go(func() {
			for range writes {
				values[k].Add(1)
				h.Wake(key)
			}
		})
	}
	wg.Go(func() {
		for range 100 {
			h.WakeAll()
			h.Waiters()
		}
	})
	wg.Wait()
	if n := keysHeld(&h); n != 0 {
		t.Errorf("%d keys are left, want none", n)
	}
}

// BenchmarkWake wakes keys next to 10,000 idle waiters: a key without waiters, one whose waiter
// receives, and one whose waiter still has its token.
func BenchmarkWake(b *testing.B) {
	var h Hub
	for _, key := range taskKeys(10_000) {
		_, stop := h.Wait(key)
		defer stop()
	}
	key := "task:0190a1b2-c3d4-7e5f-8a9b-00000000dead"
	b.Run("nobody", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Wake(key)
		}
	})
	b.Run("nobody/parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				h.Wake(key)
			}
		})
	})
	wake, stop := h.Wait(key)
	defer stop()
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Wake(key)
			<-wake
		}
	})
	h.Wake(key)
	b.Run("one/token", func(b *testing.B) {
		for b.Loop() {
			h.Wake(key)
		}
	})
	b.Run("all 10,001", func(b *testing.B) {
		for b.Loop() {
			h.WakeAll()
		}
	})
}

func BenchmarkWaitAndStop(b *testing.B) {
	var h Hub
	b.ReportAllocs()
	for b.Loop() {
		_, stop := h.Wait("task:0190a1b2-c3d4-7e5f-8a9b-00000000dead")
		stop()
	}
}

func TestWatchClassGetsTheKeys(t *testing.T) {
	t.Parallel()
	var hub Hub
	var got []string
	stop := hub.WatchClass("task", func(key string) { got = append(got, key) })
	other := hub.WatchClass("job", func(key string) { t.Errorf("the watcher of jobs got %q", key) })
	hub.Wake("task:1", "task", "tasks:2", "ready:task:3")
	hub.WakeClass("task:4")
	other()
	hub.WakeAll()
	stop()
	stop()
	hub.Wake("task:5")
	if !slices.Equal(got, []string{"task:1", "task:4", ""}) {
		t.Errorf("the watcher got %q", got)
	}
}
