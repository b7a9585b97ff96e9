package replica

import (
	"testing"
	"time"
)

// TestRunsEndBeforeTheDrainDoes: the rest of the drain time is for releasing the tasks of the ended
// runs. An operator who only waits for the drain time would kill the replica before that.
func TestRunsEndBeforeTheDrainDoes(t *testing.T) {
	t.Parallel()
	for _, drain := range []time.Duration{time.Millisecond, time.Second, 4 * time.Second, 30 * time.Second, time.Hour} {
		if grace := runGrace(drain); grace < drain/2 || grace > drain-min(drain/5, time.Second) {
			t.Errorf("of a drain of %s runs have %s", drain, grace)
		}
	}
	if grace := runGrace(0); grace != 0 {
		t.Errorf("without a drain runs have %s", grace)
	}
}
