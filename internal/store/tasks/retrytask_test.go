package tasks_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestRetryMakesANewTaskOfTheFirstInput(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t, func(c *store.Config) { c.Actor = "operator ann@desk" })
	old := f.NewTask()
	if _, err := f.Tasks.RetryTask(t.Context(), old); !errors.Is(err, tasks.ErrNothingToRetry) {
		t.Errorf("RetryTask of a task that has not ended: %v, want ErrNothingToRetry", err)
	}
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, old); err != nil {
		t.Fatal(err)
	}
	again, err := f.Tasks.RetryTask(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	before, err := f.Tasks.Snapshot(t.Context(), storetest.Ann, old, tasks.Want{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := f.Tasks.Snapshot(t.Context(), storetest.Ann, again.Task, tasks.Want{}) // the owner is the same
	if err != nil {
		t.Fatal(err)
	}
	if before.Status.State != a2a.StateCanceled || after.Status.State != a2a.StateSubmitted ||
		after.ContextID != before.ContextID || after.Agent != before.Agent {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	was, is := before.History[0], after.History[0]
	if is.ID == was.ID || !slices.Equal(is.ReferenceTaskIDs, []string{old.String()}) {
		t.Errorf("the new message is %s and refers to %v", is.ID, is.ReferenceTaskIDs)
	}
	storetest.Same(t, "parts", was.Parts, is.Parts)
	found, err := f.Access.Actions(t.Context(), access.ActionFilter{Task: old, Name: access.ActionTaskRetry, Limit: 5})
	if err != nil || len(found) != 1 || string(found[0].Detail) != `{"new":"`+again.Task.String()+`"}` ||
		found[0].Actor != "operator ann@desk" {
		t.Errorf("actions %+v, %v", found, err)
	}
	if _, err := f.Tasks.RetryTask(t.Context(), db.NewTaskID()); !errors.Is(err, a2a.ErrTaskNotFound) {
		t.Errorf("RetryTask of an unknown task: %v, want ErrTaskNotFound", err)
	}
	f.Invariants()
}
