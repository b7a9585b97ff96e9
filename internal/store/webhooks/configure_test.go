package webhooks_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

// webhooksOf returns the webhooks of a task, as Ann sees them.
func webhooksOf(f *storetest.Fixture, task a2a.ID) []webhooks.Webhook {
	f.T.Helper()
	list, err := f.Webhooks.OfTask(f.T.Context(), storetest.Ann, task, "")
	if err != nil {
		f.T.Fatalf("list webhooks: %v", err)
	}
	return list
}

func TestWebhookIsSetReplacedAndLimited(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	f.TakeWakes()
	f.SetWebhook(task, "default")
	f.SetWebhook(task, "other")
	list := webhooksOf(f, task)
	if len(list) != 2 || list[0].ConfigID != "default" || list[1].ConfigID != "other" ||
		list[0].URL != storetest.WebhookOrigin+"/default" {
		t.Fatalf("webhooks %+v, want default and other", list)
	}
	storetest.Same(t, "schemes", []string{"Bearer"}, list[0].Schemes)
	again := storetest.NewWebhook("default")
	again.URL, again.Origin, again.Schemes = "https://b.example/x", "https://b.example:443", nil
	if err := f.Tasks.SetWebhook(t.Context(), storetest.Ann, storetest.Agent, task, again, 2); err != nil {
		t.Fatalf("replace at the limit: %v", err)
	}
	now := webhooksOf(f, task)
	if len(now) != 2 || now[0].Row != list[0].Row || now[0].URL != again.URL || len(now[0].Schemes) != 0 {
		t.Errorf("after the replacement: %+v", now)
	}
	third := storetest.NewWebhook("third")
	err := f.Tasks.SetWebhook(t.Context(), storetest.Ann, storetest.Agent, task, third, 2)
	if a2a.CodeOf(err) != a2a.CodeInvalidParams {
		t.Errorf("one above the limit: %v, want invalid params", err)
	}
	one, err := f.Webhooks.OfTask(t.Context(), storetest.Ann, task, "other")
	if err != nil || len(one) != 1 || one[0].ConfigID != "other" {
		t.Errorf("the one by its id: %+v, %v", one, err)
	}
	const token = "SELECT convert_from(token, 'UTF8') FROM a2a.push_configs WHERE id = $1"
	got, want := storetest.Value[string](f, token, now[0].Row), "token of "+now[0].Row.String()
	if got != want {
		t.Errorf("the token is %q, want %q", got, want)
	}
}

func TestWebhookOfAnotherCallersTaskIsNotFound(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	f.SetWebhook(task, "default")
	for what, set := range map[string]func() error{
		"another owner": func() error {
			return f.Tasks.SetWebhook(t.Context(), db.Caller{Tenant: "acme", Owner: "bob"}, storetest.Agent, task,
				storetest.NewWebhook("x"), 10)
		},
		"another tenant": func() error {
			return f.Tasks.SetWebhook(t.Context(), db.Caller{Tenant: "b", Owner: "ann"}, storetest.Agent, task,
				storetest.NewWebhook("x"), 10)
		},
		"another agent": func() error {
			return f.Tasks.SetWebhook(t.Context(), storetest.Ann, "other", task, storetest.NewWebhook("x"), 10)
		},
		"no task": func() error {
			return f.Tasks.SetWebhook(t.Context(), storetest.Ann, storetest.Agent, db.NewTaskID(),
				storetest.NewWebhook("x"), 10)
		},
	} {
		storetest.WantCode(t, set(), a2a.CodeTaskNotFound)
		if t.Failed() {
			t.Fatal(what)
		}
	}
	bob := db.Caller{Tenant: "acme", Owner: "bob"}
	if list, err := f.Webhooks.OfTask(t.Context(), bob, task, ""); err != nil || len(list) != 0 {
		t.Errorf("bob sees %+v, %v, want nothing", list, err)
	}
	if err := f.Webhooks.Delete(t.Context(), bob, task, "default"); err != nil || len(webhooksOf(f, task)) != 1 {
		t.Errorf("bob's delete: %v, and %d webhooks are left", err, len(webhooksOf(f, task)))
	}
}

func TestWebhookSetWithAMessage(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := storetest.Submission("hello")
	p := storetest.NewWebhook("default")
	in.Push, in.MaxPushes = &p, 10
	f.TakeWakes()
	task := f.Submit(in).Task
	storetest.Same(t, "with a new task", storetest.Progress{State: "active", From: 0, Cursor: 0, Head: 1, Due: true},
		f.Progress(task, "default"))
	if !slices.Contains(f.TakeWakes(), wake.Webhooks) {
		t.Error("the deliverers were not woken for the first event")
	}
	l := f.ClaimTask(task)
	f.Append(l, storetest.Status(a2a.StateInputRequired, "?"))
	storetest.Same(t, "after a question", storetest.Progress{State: "active", From: 0, Cursor: 0, Head: 3, Due: true},
		f.Progress(task, "default"))

	more := storetest.Submission("more")
	second := storetest.NewWebhook("second")
	more.Task, more.ContextID, more.Push, more.MaxPushes = task, "", &second, 10
	f.Submit(more)
	storetest.Same(t, "with a message to the task",
		storetest.Progress{State: "active", From: 3, Cursor: 3, Head: 4, Due: true}, f.Progress(task, "second"))
	storetest.Same(t, "the first webhook", storetest.Progress{State: "active", From: 0, Cursor: 0, Head: 4, Due: true},
		f.Progress(task, "default"))

	// A webhook that cannot be stored leaves no message.
	broken := storetest.Submission("broken")
	bad := storetest.NewWebhook("bad")
	bad.Seal = func(a2a.ID) ([]byte, []byte, error) { return nil, nil, errors.New("no key") }
	broken.Push = &bad
	before := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks")
	if _, err := f.Tasks.Submit(t.Context(), broken); err == nil {
		t.Error("a message whose webhook cannot be stored was accepted")
	}
	if after := storetest.Value[int](f, "SELECT count(*)::int FROM a2a.tasks"); after != before {
		t.Errorf("it left %d tasks", after-before)
	}
	f.Invariants()
}

func TestWebhookOfAnEndedTaskHasNothingToDeliver(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateCompleted))
	f.SetWebhook(l.TaskID, "default")
	storetest.Same(t, "progress", storetest.Progress{State: "done", From: 3, Cursor: 3, Head: 3},
		f.Progress(l.TaskID, "default"))
	if len(webhooksOf(f, l.TaskID)) != 1 || len(f.ClaimWebhooks(10)) != 0 {
		t.Error("the webhook is not there, or has something to deliver")
	}
}

// The answer to a request that began before the webhook was replaced says nothing about the new webhook.
func TestAnswerToAReplacedWebhookIsIgnored(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"delivered", "disabled"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			task := f.NewTaskWithWebhook("default")
			d := f.DueWebhook()
			f.SetWebhook(task, "default")
			storetest.Same(t, "while it is held", 0, len(f.ClaimWebhooks(10)))
			var err error
			if what == "delivered" {
				err = f.Webhooks.RecordDelivery(t.Context(), d, &webhooks.Try{Status: 200}, false)
			} else {
				_, err = f.Webhooks.RecordFailure(t.Context(), d, &webhooks.Try{Status: 410, Reason: "gone"},
					webhooks.Failure{Fate: "disabled"})
			}
			if !errors.Is(err, db.ErrLeaseLost) {
				t.Errorf("%v, want the lease lost", err)
			}
			storetest.Same(t, "progress", storetest.Progress{State: "active", From: 0, Cursor: 0, Head: 1, Due: true},
				f.Progress(task, "default"))
			storetest.Same(t, "claimed again", 1, len(f.ClaimWebhooks(10)))
		})
	}
}
