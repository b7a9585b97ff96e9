package admin_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/bulk"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/wake"
)

// runJob runs the jobs of the fixture until this one has ended.
func (f *fixture) runJob(id string) admin.JobDetail {
	f.T.Helper()
	var hub notify.Hub
	s := f.Replica("r9", func(c *store.Config) { c.Wake = func(keys ...string) { hub.Wake(keys...) } })
	job, err := a2a.ParseID(id)
	if err != nil {
		f.T.Fatal(err)
	}
	woken, stop := hub.Wait(wake.Job(job))
	defer stop()
	ctx, cancel := context.WithCancel(f.T.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := bulk.New(bulk.Config{
			Store: s.Jobs, Hub: &hub, Worker: "r9", Logger: slog.New(slog.DiscardHandler),
		})
		r.Run(ctx) //nolint:errcheck // it only returns nil
	}()
	defer func() { cancel(); <-done }()
	for {
		got := read[admin.JobDetail](f, f.get("both", "/jobs/"+id))
		if got.State != "running" {
			return got
		}
		<-woken
	}
}

func TestJobFromItsDryRunToItsEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("acme", "ann", "words", "x")
	f.submit("acme", "ann", "words", "y")
	other := f.submit("acme", "ann", "other", "z")
	const filter = `"filter":{"agent":["words"],"state":["TASK_STATE_SUBMITTED"]}`
	dry := read[admin.StartedJob](f, f.post("both", "/jobs", `{"action":"cancel",`+filter+`,"dryRun":true}`))
	if dry.Job != nil || dry.Count == nil || dry.Count.Tasks != 2 || dry.Count.AtLeast ||
		dry.Count.Groups[0] != (admin.JobGroup{Agent: "words", State: "submitted", Tasks: 2}) {
		t.Fatalf("the dry run answers %+v", dry)
	}
	if list := read[admin.JobList](f, f.get("both", "/jobs")); len(list.Jobs) > 0 || len(f.Actions()) > 0 {
		t.Errorf("the dry run has left %+v and %v", list.Jobs, f.Actions())
	}
	started := read[admin.StartedJob](f, f.post("both", "/jobs", `{"action":"cancel",`+filter+`,"reason":"too many"}`))
	if started.Job == nil || started.Job.State != "running" || started.Job.Filter.State[0] != "submitted" {
		t.Fatalf("the answer is %+v", started)
	}
	got := f.runJob(started.Job.ID)
	if got.State != "done" || got.Matched != 2 || got.Done != 2 || got.EndedAt == nil || got.Reason != "too many" ||
		got.Actor != "key k1" {
		t.Errorf("the job is %+v", got)
	}
	list := read[admin.JobTaskList](f, f.get("reader", "/jobs/"+got.ID+"/tasks?limit=1"))
	next := read[admin.JobTaskList](f, f.get("reader", "/jobs/"+got.ID+"/tasks?before=2"))
	if len(list.Tasks) != 1 || list.Tasks[0].Number != 2 || len(next.Tasks) != 1 || next.Tasks[0].Number != 1 {
		t.Errorf("the tasks are %+v and %+v", list, next)
	}
	if state := f.Snapshot(other).Status.State; state != a2a.StateSubmitted {
		t.Errorf("a task that does not match is %s", state)
	}
	if got := f.post("both", "/jobs/"+got.ID+"/stop", `{}`); got.status != http.StatusConflict ||
		got.reason() != "NOT_RUNNING" {
		t.Errorf("a stop of a job that has ended: %d %s", got.status, got.body)
	}
}

func TestJobIsStopped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	job := read[admin.StartedJob](f, f.post("both", "/jobs", `{"action":"cancel","filter":{}}`)).Job
	read[admin.StoppedJob](f, f.post("both", "/jobs/"+job.ID[:30]+"/stop", `{"reason":"a mistake"}`))
	if list := read[admin.JobList](f, f.get("both", "/jobs?state=stopped")); len(list.Jobs) != 1 {
		t.Errorf("the stopped jobs are %+v", list.Jobs)
	}
	actions := strings.Join(f.Actions(), "\n")
	if !strings.Contains(actions, "key k1 job.stop") || !strings.Contains(actions, "a mistake") {
		t.Errorf("the audit log has %s", actions)
	}
}

// A job of credentials for certain agents acts on the tasks of these agents alone.
func TestJobHasTheLimitsOfItsCredentials(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *admin.Config) {
		c.SignIn = func(*http.Request) (p auth.Principal, err error) {
			p = callers["both"]
			p.Agents = []string{"other"}
			return p, nil
		}
	})
	f.submit("acme", "ann", "words", "x")
	f.submit("acme", "ann", "other", "y")
	job := read[admin.StartedJob](f, f.post("", "/jobs", `{"action":"cancel","filter":{}}`)).Job
	if len(job.Filter.Agent) != 1 || job.Filter.Agent[0] != "other" {
		t.Errorf("the filter is %+v", job.Filter)
	}
	for _, body := range []string{`{"action":"cancel","filter":{"agent":["words"]}}`} {
		if got := f.post("", "/jobs", body); got.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	if got := f.post("", "/jobs/"+job.ID+"/stop", `{}`); got.status != http.StatusForbidden {
		t.Errorf("a stop: %d %s", got.status, got.body)
	}
}

func TestJobRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for body, field := range map[string]string{
		`{"action":"destroy","filter":{}}`:                                             "action",
		`{"action":"cancel"}`:                                                          "filter",
		`{"action":"cancel","filter":{"limit":5}}`:                                     "limit",
		`{"action":"cancel","filter":{"state":["asleep"]}}`:                            "state",
		`{"action":"cancel","filter":{"outcome":"odd"}}`:                               "outcome",
		`{"action":"cancel","filter":{"id":"xyz"}}`:                                    "id",
		`{"action":"cancel","filter":{"ids":["xyz"]}}`:                                 "ids",
		`{"action":"cancel","filter":{"text":"\u0000"}}`:                               "text",
		`{"action":"cancel","filter":{"tenant":null}}`:                                 "tenant",
		`{"action":"cancel","filter":{},"reason":"` + strings.Repeat("x", 1001) + `"}`: "reason",
	} {
		got := f.post("both", "/jobs", body)
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, `"field":"`+field) {
			t.Errorf("%.80s: %d %s", body, got.status, got.body)
		}
	}
	for _, id := range []string{"0193", "x", "01938c1e-5b7a-7c3e-9d7a-1f2b3c4d5e6f"} {
		if got := f.get("both", "/jobs/"+id); got.status != http.StatusNotFound || got.reason() != "JOB_NOT_FOUND" {
			t.Errorf("%s: %d %s", id, got.status, got.body)
		}
	}
}
