package tasks_test

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// A flush of many appends joins its rows by hash. Nested loops would be quadratic.
func TestAppendJoinsGroupsByHash(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	plan := strings.Join(f.Explain("", "EventAppend"), "\n")
	if got := strings.Count(plan, "Hash Join"); got != 2 { // events to their batches, and messages to theirs
		t.Errorf("%d hash joins, want 2, in\n%s", got, plan)
	}
}
