package tasks_test

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// What many runs append at once is put together by hash: row by row it would be quadratic.
func TestAppendJoinsGroupsByHash(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	plan := strings.Join(f.Explain("", "EventAppend"), "\n")
	if got := strings.Count(plan, "Hash Join"); got != 2 { // events, and messages, to their batches
		t.Errorf("%d hash joins in\n%s", got, plan)
	}
}
