package workerapi

import (
	"testing"
	"testing/synctest"
	"time"
)

// wakeHub reports the keys that are woken.
type wakeHub chan string

func (wakeHub) Watch(string, func()) func() { return func() {} }

func (h wakeHub) Wake(keys ...string) { h <- keys[0] }

func TestDelayedWakeups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		woken := make(wakeHub, 10)
		d := newDelayedWakeups(woken)
		d.after(2*time.Second, "b")
		d.after(time.Second, "a")
		d.after(time.Hour, "c")
		for _, want := range []string{"a", "b"} {
			if got := <-woken; got != want {
				t.Errorf("got a wake-up of %s, want %s", got, want)
			}
		}
		d.stop()
		d.after(time.Second, "d")
		time.Sleep(2 * time.Hour)
		if len(woken) > 0 {
			t.Errorf("%s was woken after stop", <-woken)
		}
	})
}
