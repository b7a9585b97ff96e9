package replica

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/worker"
)

func TestBusyShareIsThatOfThePeriod(t *testing.T) {
	t.Parallel()
	load := func(slots int, used time.Duration) worker.Load { return worker.Load{Slots: slots, Used: used} }
	for name, tc := range map[string]struct {
		before, now worker.Load
		period      time.Duration
		want        float64
	}{
		"half":                {load(4, time.Minute), load(4, time.Minute+20*time.Second), 10 * time.Second, 0.5},
		"idle":                {load(4, time.Minute), load(4, time.Minute), 10 * time.Second, 0},
		"full":                {load(2, 0), load(2, 20*time.Second), 10 * time.Second, 1},
		"measured inexactly":  {load(2, 0), load(2, 21*time.Second), 10 * time.Second, 1},
		"no slots":            {load(0, 0), load(0, 0), 10 * time.Second, 0},
		"the first heartbeat": {load(2, 0), load(2, 0), 0, 0},
	} {
		if got := busyShare(tc.before, tc.now, tc.period); got != tc.want {
			t.Errorf("%s: share %v, want %v", name, got, tc.want)
		}
	}
}
