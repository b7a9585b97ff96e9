package tasks_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestSnapshotIsOnlyForTheCaller(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.FullTask()
	for _, c := range []db.Caller{{Tenant: "acme", Owner: "bob"}, {Tenant: "other", Owner: "ann", Shared: true}, {}} {
		_, err := f.Tasks.Snapshot(t.Context(), c, task, tasks.Want{Artifacts: true})
		storetest.WantCode(t, err, a2a.CodeTaskNotFound)
	}
	whole, err := f.Tasks.SnapshotOfAny(t.Context(), task, tasks.Want{Artifacts: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []db.Caller{storetest.Ann, {Tenant: "acme", Owner: "bob", Shared: true}} {
		got, err := f.Tasks.Snapshot(t.Context(), c, task, tasks.Want{Artifacts: true})
		if err != nil {
			t.Fatal(err)
		}
		storetest.Same(t, "task", whole, got)
	}
}

// With sharing, the members of a tenant find, continue and cancel each other's tasks. The owner of a task stays the
// same.
func TestSharedTasksAreForTheWholeTenant(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	bob := db.Caller{Tenant: "acme", Owner: "bob", Shared: true}
	eve := db.Caller{Tenant: "other", Owner: "eve", Shared: true}
	task := f.NewTask()
	f.SetWebhook(task, "hook")
	for c, want := range map[db.Caller]int{bob: 1, eve: 0, {Tenant: "acme", Owner: "bob"}: 0} {
		found, total, err := f.Tasks.Page(t.Context(), c, tasks.Filter{Agent: storetest.Agent, Limit: 10})
		if err != nil || len(found) != want || total.N != want {
			t.Errorf("%+v finds %d of %d tasks, %v; want %d", c, len(found), total.N, err, want)
		}
		hooks, err := f.Webhooks.OfTask(t.Context(), c, task, "")
		if err != nil || len(hooks) != want {
			t.Errorf("%+v finds %d webhooks, %v; want %d", c, len(hooks), err, want)
		}
	}
	_, err := f.Tasks.Cancel(t.Context(), eve, "", task)
	storetest.WantCode(t, err, a2a.CodeTaskNotFound)
	hook := storetest.NewWebhook("bob's")
	storetest.WantCode(t, f.Tasks.SetWebhook(t.Context(), eve, storetest.Agent, task, hook, 2), a2a.CodeTaskNotFound)
	for range 2 { // the second one replaces the first
		if err := f.Tasks.SetWebhook(t.Context(), bob, storetest.Agent, task, hook, 2); err != nil {
			t.Error(err)
		}
	}
	if hooks, err := f.Webhooks.OfTask(t.Context(), storetest.Ann, task, ""); err != nil || len(hooks) != 2 {
		t.Errorf("webhooks of the task, to its owner: %+v, %v", hooks, err)
	}
	if err := f.Webhooks.Delete(t.Context(), bob, task, "hook"); err != nil {
		t.Error(err)
	}
	if hooks, err := f.Webhooks.OfTask(t.Context(), storetest.Ann, task, ""); err != nil || len(hooks) != 1 {
		t.Errorf("webhooks after another member deleted one: %+v, %v", hooks, err)
	}
	if _, err := f.Tasks.Submit(t.Context(), tasks.Submission{
		Caller: bob, Agent: storetest.Agent, Task: task,
		Message: a2a.Message{ID: "m2", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: "y"}}},
	}); err != nil {
		t.Error(err)
	}
	if _, err := f.Tasks.Cancel(t.Context(), bob, "", task); err != nil {
		t.Error(err)
	}
	if o, err := f.Operate.Owner(t.Context(), task); err != nil || o != storetest.Ann {
		t.Errorf("the task is %+v's, %v", o, err)
	}
}
