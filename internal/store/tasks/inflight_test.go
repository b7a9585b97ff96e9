package tasks_test

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// The count reads only unfinished tasks, however many others the owner has.
func TestTasksInFlightCountsUnfinishedTasksOfTheOwner(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.SubmitMany(5)
	other := storetest.Ann
	other.Owner = "bob"
	count := func(c db.Caller, most, want int) {
		t.Helper()
		if n, err := f.Tasks.TasksInFlight(t.Context(), c, most); err != nil || n != want {
			t.Errorf("%d of at most %d, %v, want %d", n, most, err, want)
		}
	}
	count(storetest.Ann, 100, 5)
	count(storetest.Ann, 3, 3)
	count(other, 100, 0)
	f.Claim(2)
	count(storetest.Ann, 100, 5)
	done := f.NewTask()
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, "", done); err != nil {
		t.Fatal(err)
	}
	count(storetest.Ann, 100, 5)

	plan := strings.Join(f.Explain("", "TaskCountInFlightForCaller"), "\n")
	if !strings.Contains(plan, "tasks_running") {
		t.Errorf("tasks_running is not used in\n%s", plan)
	}
}
