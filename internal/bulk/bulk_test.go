package bulk_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/bulk"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// cluster is servers that run bulk jobs on one database. A wake-up reaches all of them.
type cluster struct {
	*storetest.Fixture
	hub notify.Hub
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	c.Fixture = storetest.Open(t, c.config)
	return c
}

func (c *cluster) config(cfg *store.Config) {
	cfg.Wake = func(keys ...string) { c.hub.Wake(keys...) }
}

// run runs jobs on a server until stop, or until the end of the test.
func (c *cluster) run(s *store.Store, worker string, change ...func(*bulk.Config)) (stop func()) {
	c.T.Helper()
	cfg := bulk.Config{
		Store: s.Jobs, Hub: &c.hub, Worker: worker, Poll: time.Hour,
		Logger: slog.New(slog.NewTextHandler(c.T.Output(), nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	ctx, cancel := context.WithCancel(c.T.Context())
	var wg sync.WaitGroup
	wg.Go(func() { bulk.New(cfg).Run(ctx) }) //nolint:errcheck // it only returns nil
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	c.T.Cleanup(stop)
	return stop
}

// start starts a job, and returns a function that waits for its end.
func (c *cluster) start(in jobs.NewJob) (a2a.ID, func() jobs.Job) {
	c.T.Helper()
	j, err := c.Jobs.Start(c.T.Context(), in)
	if err != nil {
		c.T.Fatal(err)
	}
	woken, stop := c.hub.Wait(wake.Job(j.ID))
	return j.ID, func() jobs.Job {
		c.T.Helper()
		defer stop()
		for {
			now, err := c.Jobs.Find(c.T.Context(), j.ID.String())
			if err != nil {
				c.T.Fatal(err)
			}
			if now.State != jobs.Running {
				return now
			}
			select {
			case <-woken:
			case <-time.After(10 * time.Minute):
				c.T.Fatalf("the job does not end: %+v", now)
			}
		}
	}
}

func (c *cluster) failed(n int) {
	c.T.Helper()
	c.SubmitMany(n)
	for left := n; left > 0; {
		leases := c.Claim(100)
		for i := range leases {
			c.Append(&leases[i], storetest.Status(a2a.StateFailed, "upstream is gone"))
		}
		left -= len(leases)
	}
}

// wantRetriedOnce fails the test unless each of n tasks has one retry.
func (c *cluster) wantRetriedOnce(n int) {
	c.T.Helper()
	const retries = `(SELECT m.body->'metadata'->>'a2ad/retryOf' AS of, count(*) AS n
		FROM a2a.messages m WHERE m.seq = 1 AND m.body->'metadata'->>'a2ad/retryOf' IS NOT NULL GROUP BY 1) r`
	if got := storetest.Value[int](c.Fixture, "SELECT count(*)::int FROM "+retries+" WHERE n = 1"); got != n {
		c.T.Errorf("%d tasks were retried once, want %d", got, n)
	}
	if got := storetest.Value[int](c.Fixture, "SELECT count(*)::int FROM "+retries+" WHERE n > 1"); got != 0 {
		c.T.Errorf("%d tasks were retried more than once", got)
	}
}

// A server begins with a job as soon as it is started, and not at its next poll.
func TestJobBeginsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.NewTask()
	c.run(c.Store, "r1")
	_, end := c.start(jobs.NewJob{Action: jobs.Cancel})
	if got := end(); got.State != jobs.Done || got.Done != 1 || got.Worker != "r1" {
		t.Errorf("the job is %+v", got)
	}
}

// Several jobs share their servers: turns are short, and servers come and go.
func TestJobsOfServersThatComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const n = 300
	c.failed(n)
	short := func(cfg *bulk.Config) { cfg.Turn = time.Millisecond }
	_, first := c.start(jobs.NewJob{Action: jobs.Retry})
	_, second := c.start(jobs.NewJob{Action: jobs.Retry})
	for i := range 4 {
		name := "r" + strconv.Itoa(i+2)
		stop := c.run(c.Replica(name, c.config), name, short)
		if i%2 == 0 {
			stop() // it gives its lease back
		}
	}
	a, b := first(), second()
	if a.State != jobs.Done || b.State != jobs.Done || a.Failed+b.Failed > 0 || a.Done+b.Done != n {
		t.Errorf("the jobs are %+v and %+v", a, b)
	}
	c.wantRetriedOnce(n)
	c.Invariants()
}

// A server whose connections break continues with its job.
func TestJobContinuesAfterLostConnections(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const n = 60
	c.failed(n)
	s, proxy := c.BehindProxy(t)
	seen := 0
	fired := proxy.Arm(storetest.Fault{Repeat: true, Answered: true, Match: func(request []byte) bool {
		if !storetest.IsCommit(request) {
			return false
		}
		seen++
		return seen%20 == 0 // several times, each between other steps of the job
	}})
	c.run(s, "r1", func(cfg *bulk.Config) { cfg.Poll = 10 * time.Millisecond })
	id, end := c.start(jobs.NewJob{Action: jobs.Retry})
	storetest.WantFired(t, fired)
	if got := c.endOf(id, end); got.State != jobs.Done || got.Done != n {
		t.Errorf("the job is %+v", got)
	}
	c.wantRetriedOnce(n)
	c.Invariants()
}

// endOf waits for the end of a job. Meanwhile it ends leases that the server could not give back.
func (c *cluster) endOf(id a2a.ID, end func() jobs.Job) jobs.Job {
	c.T.Helper()
	done := make(chan jobs.Job, 1)
	go func() { done <- end() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case j := <-done:
			return j
		case <-tick.C:
			c.Exec("UPDATE a2a.jobs SET lease_until = NULL WHERE lease_until < clock_timestamp() + interval '29 s'")
			c.hub.Wake(wake.Job(id)) // the wake-up of its end may be lost with the answer
		}
	}
}

// A job ends as failed if it cannot be searched for its tasks, and as done if nothing matches.
func TestJobThatCannotSearch(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.run(c.Store, "r1")
	for _, tc := range []struct {
		filter jobs.Filter
		want   string
	}{
		{jobs.Filter{State: []string{"of a later version"}}, `state: "of a later version" is no state of a task`},
		{jobs.Filter{Agent: []string{"a", "\x00"}}, "agent: must be UTF-8 without NUL characters"},
		{jobs.Filter{ID: "x"}, "no task id begins like this"},
	} {
		_, end := c.start(jobs.NewJob{Action: jobs.Cancel, Filter: tc.filter})
		if got := end(); got.State != jobs.Failed || got.Error != tc.want {
			t.Errorf("the job is %s with %q, want failed with %q", got.State, got.Error, tc.want)
		}
	}
	_, end := c.start(jobs.NewJob{Action: jobs.Cancel, Filter: jobs.Filter{State: []string{"completed"}}})
	if got := end(); got.State != jobs.Done || got.Matched != 0 {
		t.Errorf("the job is %+v", got)
	}
}

// A task whose action fails is named with the reason, and the job goes on with the others.
func TestJobGoesOnAfterATaskThatFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	in := storetest.Submission("x")
	hook := storetest.NewWebhook("h")
	in.Push = &hook
	bad := c.ClaimTask(c.Submit(in).Task)
	c.Append(bad, storetest.Status(a2a.StateFailed))
	c.failed(2)
	for _, tc := range []struct {
		err   error
		tries int
	}{{seal.ErrUnknownKey, 1}, {errors.New("a fault of this program"), 3}} {
		tries := 0
		stop := c.run(c.Store, "r1", func(cfg *bulk.Config) {
			cfg.MoveSecrets = func(_, _ a2a.ID, _ webhooks.Secrets) (webhooks.Secrets, error) {
				tries++
				return webhooks.Secrets{}, tc.err
			}
		})
		id, end := c.start(jobs.NewJob{Action: jobs.Retry, Webhooks: true})
		got := end()
		stop()
		if got.State != jobs.Done || got.Failed != 1 || tries != tc.tries {
			t.Errorf("%v: after %d tries the job is %+v", tc.err, tries, got)
		}
		list, err := c.Jobs.Tasks(t.Context(), jobs.TaskFilter{Job: id, Refused: true, Limit: 10})
		if err != nil || len(list) != 1 || list[0].ID != bad.TaskID || list[0].Detail == "" {
			t.Errorf("%v: the failed tasks are %+v, %v", tc.err, list, err)
		}
	}
	c.wantRetriedOnce(2)
}

// A worker that runs its own jobs alone leaves the jobs of others, and its own go to a server when it stops.
func TestOwnJobGoesToAServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.NewTask()
	_, end := c.start(jobs.NewJob{Action: jobs.Cancel, Holder: "command"})
	lock := c.Lock("SELECT FROM a2a.tasks FOR UPDATE")
	stop := c.run(c.Store, "command", func(cfg *bulk.Config) { cfg.Own = true })
	c.WaitBlocked(1)
	c.run(c.Replica("r2", c.config), "r2")
	stop()
	lock()
	if got := end(); got.State != jobs.Done || got.Worker != "r2" || got.Done != 1 {
		t.Errorf("the job is %+v", got)
	}
}
