package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// moved marks secrets with the row that they were moved to.
func moved(_, to a2a.ID, s webhooks.Secrets) (webhooks.Secrets, error) {
	if s.Token != nil {
		s.Token = []byte("for " + to.String())
	}
	return s, nil
}

func TestRetryMakesANewTaskOfTheFirstInput(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t, func(c *store.Config) { c.Actor = "operator ann@desk" })
	old := f.NewTask()
	if _, err := f.Tasks.RetryTask(t.Context(), old, moved); !errors.Is(err, tasks.ErrNothingToRetry) {
		t.Errorf("RetryTask of a task that has not ended: %v, want ErrNothingToRetry", err)
	}
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, old); err != nil {
		t.Fatal(err)
	}
	again, err := f.Tasks.RetryTask(t.Context(), old, moved)
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
	if want := `{"a2ad/retryOf":"` + old.String() + `"}`; string(is.Metadata) != want {
		t.Errorf("the metadata of the new message is %s, want %s", is.Metadata, want)
	}
	found, err := f.Access.Actions(t.Context(), access.ActionFilter{Task: old, Name: access.ActionTaskRetry, Limit: 5})
	if err != nil || len(found) != 1 || string(found[0].Detail) != `{"new":"`+again.Task.String()+`"}` ||
		found[0].Actor != "operator ann@desk" {
		t.Errorf("actions %+v, %v", found, err)
	}
	if _, err := f.Tasks.RetryTask(t.Context(), db.NewTaskID(), moved); !errors.Is(err, a2a.ErrTaskNotFound) {
		t.Errorf("RetryTask of an unknown task: %v, want ErrTaskNotFound", err)
	}
	f.Invariants()
}

// failedWithWebhooks makes a task that has failed, with a webhook that has a secret, one whose receiver asked to stop,
// and one that was deleted.
func failedWithWebhooks(f *storetest.Fixture) a2a.ID {
	f.T.Helper()
	in := storetest.Submission("x")
	in.Push = webhook("secret")
	in.Push.Schemes = []string{"Bearer"}
	in.Push.Seal = func(row a2a.ID) (token, credentials []byte, err error) {
		return []byte("of " + row.String()), nil, nil
	}
	l := f.ClaimTask(f.Submit(in).Task)
	f.Exec(`INSERT INTO a2a.push_configs (id, task_id, config_id, tenant, owner, agent, url, origin, schemes,
		  wire_version, from_seq, cursor_seq, head_seq, state, deleted_at)
		SELECT gen_random_uuid(), task_id, x.id, tenant, owner, agent, url, origin, '{}', 3, 0, 0, head_seq, x.state,
		  x.at
		FROM a2a.push_configs,
		  (VALUES ('stopped', 'disabled', NULL), ('deleted', 'active', now())) AS x(id, state, at)`)
	f.Append(l, storetest.Status(a2a.StateFailed))
	return l.TaskID
}

// A retry sends the first message of the client, which need not be the first of the task.
func TestImportedTaskIsRetried(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := imported(a2a.StateFailed)
	in.Task.History = in.Task.History[1:] // begins with a message of the agent
	silent := imported(a2a.StateFailed)
	silent.Task.History = silent.Task.History[1:2]
	importAll(f, in, silent)
	again, err := f.Store.Tasks.RetryTask(t.Context(), in.Task.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "parts", in.Task.History[1].Parts, f.Snapshot(again.Task).History[0].Parts)
	if _, err := f.Store.Tasks.RetryTask(t.Context(), silent.Task.ID, nil); !errors.Is(err, tasks.ErrNothingToSend) {
		t.Errorf("%v, want ErrNothingToSend", err)
	}
	f.Invariants()
}

func TestRetryTakesTheWebhooksAlong(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	old := failedWithWebhooks(f)
	f.TakeWakes()
	again, err := f.Tasks.RetryTask(t.Context(), old, moved)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.TakeWakes(); !slices.Contains(got, wake.Webhooks) {
		t.Errorf("woke %v, want the deliverers, too", got)
	}
	const copied = `
		SELECT count(*)::int
		FROM a2a.push_configs p JOIN a2a.push_configs o ON o.task_id = $2 AND o.config_id = 'secret'
		WHERE p.task_id = $1 AND p.config_id = 'secret' AND p.url = o.url AND p.schemes = o.schemes
		  AND p.tenant = 'acme' AND p.owner = 'ann' AND p.cursor_seq = 0 AND p.head_seq = 1 AND p.state = 'active'
		  AND convert_from(p.token, 'UTF8') = 'for ' || p.id`
	if n := storetest.Value[int](f, copied, again.Task, old); n != 1 {
		t.Errorf("%d webhooks were copied with a secret of their own row, want 1", n)
	}
	const count = "SELECT count(*)::int FROM a2a.push_configs WHERE task_id = $1"
	if n := storetest.Value[int](f, count, again.Task); n != 1 {
		t.Errorf("the new task has %d webhooks, want only the one that is in force", n)
	}
	list, err := f.Webhooks.Claim(t.Context(), 10, 10, storetest.TTL)
	if err != nil || !slices.ContainsFunc(list, func(d webhooks.Delivery) bool { return d.Task == again.Task }) {
		t.Errorf("%d deliveries, %v, want one for the new task", len(list), err)
	}
	without, err := f.Tasks.RetryTask(t.Context(), old, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := storetest.Value[int](f, count, without.Task); n != 0 {
		t.Errorf("the task without webhooks has %d", n)
	}
	f.Append(f.ClaimTask(again.Task), storetest.Status(a2a.StateCompleted))
	f.Invariants()
}

// A retry whose webhooks cannot be copied makes no task.
func TestRetryThatCannotMoveSecretsMakesNoTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	old := failedWithWebhooks(f)
	wrong := errors.New("no key")
	_, err := f.Tasks.RetryTask(t.Context(), old, func(_, _ a2a.ID, s webhooks.Secrets) (webhooks.Secrets, error) {
		return s, wrong
	})
	if !errors.Is(err, wrong) {
		t.Errorf("RetryTask = %v, want the error of the secrets", err)
	}
	if n := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks"); n != 1 {
		t.Errorf("there are %d tasks, want only the old one", n)
	}
	f.Invariants()
}

// The metadata of the first message keeps its bytes, and a retry of a retry names the task that it was made from.
func TestRetryNamesTheOldTaskInTheMetadata(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ before, after string }{
		{"", `{"a2ad/retryOf":"%s"}`},
		{`{}`, `{"a2ad/retryOf":"%s"}`},
		{`{ "a": 1.0 }`, `{ "a": 1.0 ,"a2ad/retryOf":"%s"}`},
		{`{"a2ad/retryOf":"x","b":[]}`, `{"b":[],"a2ad/retryOf":"%s"}`},
	} {
		f := storetest.Open(t)
		in := storetest.Submission("x")
		in.Message.Metadata = a2a.Raw(tt.before)
		old := f.Submit(in).Task
		if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, old); err != nil {
			t.Fatal(err)
		}
		again, err := f.Tasks.RetryTask(t.Context(), old, moved)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(f.Snapshot(again.Task).History[0].Metadata), fmt.Sprintf(tt.after, old); got != want {
			t.Errorf("%s became %s, want %s", tt.before, got, want)
		}
	}
}
