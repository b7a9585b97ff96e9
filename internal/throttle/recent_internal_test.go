package throttle

import "testing"

func TestRecentDropsTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	r := newRecent[int, string](2)
	one := func(v string) func() string { return func() string { return v } }
	r.getOrAdd(1, one("a"))
	r.getOrAdd(2, one("b"))
	if got := r.getOrAdd(1, one("new")); got != "a" {
		t.Errorf("key 1 is %q, want a", got)
	}
	r.getOrAdd(3, one("c"))
	if _, ok := r.get(2); ok {
		t.Error("the least recently used key 2 was kept")
	}
	if got, ok := r.get(1); !ok || got != "a" {
		t.Errorf("key 1 is %q, %v", got, ok)
	}
	r.remove(1)
	if _, ok := r.get(1); ok {
		t.Error("key 1 exists after remove")
	}
}
