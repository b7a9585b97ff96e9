package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/rpc"
)

// TestDatabaseIsReadSeldomForMetrics: at most every 15 s, and reads take at most a hundredth of the
// time.
func TestDatabaseIsReadSeldomForMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads, takes := 0, time.Duration(0)
		var fails error
		c := &cached[int]{log: slog.New(slog.DiscardHandler), read: func(context.Context) (int, error) {
			reads++
			time.Sleep(takes)
			return reads, fails
		}}
		want := func(after time.Duration, value int, ok bool) {
			t.Helper()
			time.Sleep(after)
			if v, is := c.get(); v != value && is || is != ok {
				t.Errorf("get = %d, %t, want %d, %t", v, is, value, ok)
			}
		}
		want(0, 1, true)
		want(14*time.Second, 1, true)
		takes = time.Second
		want(time.Second, 2, true)
		want(99*time.Second, 2, true)
		takes = 0
		want(time.Second, 3, true)
		fails = errors.New("no database")
		want(15*time.Second, 0, false)
		want(time.Second, 0, false)
		if reads != 4 || c.failures() != 1 {
			t.Errorf("%d reads, %d failures, want 4 and 1", reads, c.failures())
		}
		fails = nil
		want(15*time.Second, 5, true)
	})
}

// TestSeriesAreBoundedWhateverTheLabels: memory stays bounded even if a label contained text of
// clients.
func TestSeriesAreBoundedWhateverTheLabels(t *testing.T) {
	t.Parallel()
	m := New(Build{})
	for i := range 2 * maxSeen {
		m.Watch().Request(rpc.Request{Route: fmt.Sprint("/", i), Method: "none", Version: "none", Code: "200"})
		m.Lenient(fmt.Sprint("L-", i))
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); n > maxSeen+1 {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
	}
}
