package tasks_test

import (
	"context"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// A repeated request finds what the first one has stored. Without a standby that has it, the answer would be lost with
// this server.
func TestRepeatsWaitForAStandby(t *testing.T) {
	slowtest.Only(t, slowtest.Crash)
	t.Parallel()
	short := func(c *store.Config) { c.StatementTimeout = 2 * time.Second }
	f := storetest.OpenOn(t, storetest.NewServer(t, nil), short)
	repeats := repeatable(f)
	errs := make(map[string]chan error, len(repeats))
	f.LoseStandbys()
	for name, again := range repeats {
		done := make(chan error, 1)
		errs[name] = done
		go func() { done <- again(t.Context()) }()
	}
	for name, done := range errs {
		if err := <-done; a2a.CodeOf(err) != a2a.CodeUnavailable {
			t.Errorf("%s is answered although no standby has it: %v", name, err)
		}
	}
	f.NeedNoStandbys()
	for name, again := range repeats {
		if err := again(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// repeatable makes requests, and returns the same ones. Each is answered with what it finds, and writes nothing.
func repeatable(f *storetest.Fixture) map[string]func(context.Context) error {
	f.T.Helper()
	send := storetest.Submission("hello")
	send.Key = "h:key"
	ended, reported := f.RunningTask(), f.RunningTask()
	end := tasks.Batch{Events: []a2a.Event{storetest.Status(a2a.StateCompleted, "done")}, ID: "b1"}
	for _, err := range []error{
		second(f.Tasks.Append(f.T.Context(), ended, end)),
		second(f.Tasks.Append(f.T.Context(), reported, tasks.Batch{ID: "b1"})),
	} {
		if err != nil {
			f.T.Fatal(err)
		}
	}
	job, err := f.Jobs.Start(f.T.Context(), jobs.NewJob{Action: jobs.Cancel})
	if err != nil {
		f.T.Fatal(err)
	}
	remote := func(l *tasks.Lease) tasks.RemoteLease {
		return tasks.RemoteLease{
			Task: l.TaskID, Epoch: l.Epoch, Batch: "b1",
			Agents: map[string]tasks.Terms{storetest.Agent: {TTL: time.Minute}},
		}
	}
	task := imported(a2a.StateCompleted)
	repeats := map[string]func(context.Context) error{
		"a send": func(ctx context.Context) error { return second(f.Tasks.Submit(ctx, send)) },
		"a batch of a run": func(ctx context.Context) error {
			return second(f.Tasks.RenewRemote(ctx, remote(reported)))
		},
		"a batch that ended a run": func(ctx context.Context) error {
			return second(f.Tasks.EndOfRun(ctx, remote(ended)))
		},
		"an import": func(ctx context.Context) error {
			return second(f.Store.Tasks.Import(ctx, "sqlite:tasks.db", []tasks.Import{task}))
		},
		"a pause": func(ctx context.Context) error {
			_, _, err := f.Tasks.BeginStop(ctx, tasks.StopAgent, "paused", false)
			return err
		},
		"the end of a pause": func(ctx context.Context) error {
			return second(f.Tasks.EndStop(ctx, tasks.StopAgent, "resumed"))
		},
		"the stop of a job":     func(ctx context.Context) error { return second(f.Jobs.Stop(ctx, job.ID)) },
		"the removal of a view": func(ctx context.Context) error { return second(f.Access.RemoveView(ctx, "gone")) },
	}
	for name, first := range repeats {
		if err := first(f.T.Context()); err != nil {
			f.T.Fatalf("%s: %v", name, err)
		}
	}
	return repeats
}

func second[T any](_ T, err error) error { return err }
