package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/e2e/check"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// defaults are the settings that a test on this machine needs; all others keep their default.
func (c *cluster) defaults(name string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(),
		"A2AD_DATABASE_URL=" + c.url,
		"A2AD_AGENTS=" + c.agents, "A2AD_AUTH=none", "A2AD_LISTEN=127.0.0.1:0", "A2AD_ADMIN_LISTEN=127.0.0.1:0",
		"A2AD_REPLICA=" + name,
		"A2AD_KEYS=" + seal.Generate("k1"), "A2AD_PUSH_ALLOW_HTTP=on", "A2AD_PUSH_ALLOW_CIDRS=127.0.0.0/8",
	}
}

// A primary that loses power closes no connection, and its name moves: new connections work. With default settings
// everything works again, whichever connection waited for an answer; the times are logged. Runs in progress continue,
// and nothing acknowledged is lost.
func TestServiceRecoversFromSilentConnections(t *testing.T) {
	t.Parallel()
	for name, trap := range map[string]chaosTrap{ // of the statement that is in flight
		"a read":                    {suffix: "-api"},
		"a write":                   {suffix: "-worker"},
		"a write that takes effect": {suffix: "-worker", answered: true},
		"a claim":                   {suffix: "-claim"},
		// of an agent that runs one task at a time: others are claimed without a transaction
		"a claim that takes effect": {suffix: "-claim", commit: true, answered: true},
		"a renewal of leases":       {suffix: "-renew"}, // a cancel causes one at once
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSilence(t)
			events := s.longRun(12 * time.Second)
			ctx := s.probe()
			s.fall(ctx, trap)
			s.awaitBack()
			s.checkReadiness(trap.suffix == "-claim")
			got := <-events
			endsWith(t, got, a2a.StateCompleted)
			if diff := cmp.Diff(chunkTexts("b", 3), chunks(got, "b")); diff != "" {
				t.Errorf("chunks after the silence (-want +got):\n%s", diff)
			}
			if got := s.attempts(got[0].TaskID); len(got) != 1 || got[0] != "a completed" {
				t.Errorf("attempts of the run in progress: %v", got)
			}
			s.checkAcknowledged()
		})
	}
}

// silence is a replica behind a proxy that makes its connections fall silent, and clients that find out what works.
type silence struct {
	*cluster
	proxy *chaosProxy
	a     *replica
	sink  *hookSink
	stop  context.CancelFunc
	wg    sync.WaitGroup
	tries atomic.Int64

	mu    sync.Mutex
	fell  time.Time      // guarded by mu; zero: not yet
	begun map[string]int // guarded by mu; number of successes before the silence, by kind
	// guarded by mu; time from the silence to the first success of a kind that began after it
	back  map[string]time.Duration
	acked []check.Acknowledged // guarded by mu
	said  []readiness          // guarded by mu

	success change // of begun and back
}

// readiness is an answer of the replica about its readiness.
type readiness struct {
	at    time.Time
	ready bool
	text  string
}

func newSilence(t *testing.T) *silence {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	db := storetest.New(t)
	s := &silence{begun: make(map[string]int), back: make(map[string]time.Duration)}
	proxy, proxied := newChaosProxy(t, db.URL) // ends after the cluster
	s.cluster, s.proxy = clusterOn(t, db), proxy
	s.agent("narrow", scriptAgent("narrow", "limits: {concurrency: 1}\n"))
	s.url, s.cutOK = proxied, true // a stream whose log cannot be read ends, and is resumed
	s.sink = newHookSink(t, nil)
	s.a = s.add(spawn(t, "a", s.defaults("a")))
	return s
}

// longRun starts a long run, and follows it through the silence.
func (s *silence) longRun(d time.Duration) (events <-chan []client.Event) {
	s.t.Helper()
	pause := fmt.Sprintf(`{"op":"sleep","ms":%d}`, d.Milliseconds())
	task := submit(s.t, s.client(s.a, "script"),
		play(`{"op":"chunk","id":"a","n":3},`+pause+`,{"op":"chunk","id":"b","n":3}`))
	done := make(chan []client.Event, 1)
	s.wg.Go(func() {
		cl := s.client(s.a, "script")
		var list []client.Event
		for last := ""; len(list) == 0 || !list[len(list)-1].Final; {
			more, err := collect(cl.Resubscribe(bounded(s.t), task, client.StreamOptions{LastEventID: last}), nil)
			list = append(list, more...)
			if len(list) > 0 {
				last = list[len(list)-1].ID
			}
			if s.t.Context().Err() != nil {
				s.t.Errorf("the stream through the silence: %v", err)
				break
			}
		}
		done <- list
	})
	return done
}

func (s *silence) acknowledged(a check.Acknowledged) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = append(s.acked, a)
}

// probe starts one client of each kind, and a load balancer that asks for readiness. It returns when each has
// succeeded once. The context is that of the clients.
func (s *silence) probe() context.Context {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	s.stop = stop
	s.t.Cleanup(func() { stop(); s.wg.Wait() })
	s.clients(ctx)
	s.wg.Go(func() {
		for ctx.Err() == nil {
			at := time.Now()
			status, text := s.a.health("/readyz")
			s.mu.Lock()
			s.said = append(s.said, readiness{at, status == http.StatusOK, text})
			s.mu.Unlock()
			pause(ctx, 100*time.Millisecond)
		}
	})
	untilChange(s.t, "everything works", s.success.next, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.begun) == len(silenceKinds)
	})
	return ctx
}

// clients starts a client of each kind. Each attempt is a new piece of work: what was in flight when the connections
// fell silent may have to wait until its lease expires. When ctx ends, attempts in progress are completed: a request
// that its client gives up may take effect later.
func (s *silence) clients(ctx context.Context) {
	for kind, try := range silenceKinds {
		s.wg.Go(func() {
			for ctx.Err() == nil {
				begin := time.Now()
				one, cancel := context.WithTimeout(s.t.Context(), patience)
				if err := try(s, one, fmt.Sprintf("%s-%d", kind, s.tries.Add(1))); err == nil {
					s.worked(kind, begin)
				}
				cancel()
				pause(ctx, 50*time.Millisecond)
			}
		})
	}
}

// narrow is an agent that runs one task at a time. A claim whose answer fell silent may occupy the one that was used
// until then, for the length of a lease.
func (s *silence) narrow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fell.IsZero() {
		return "single"
	}
	return "narrow"
}

func (s *silence) worked(kind string, begin time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun[kind]++
	if _, already := s.back[kind]; !already && !s.fell.IsZero() && begin.After(s.fell) {
		s.back[kind] = time.Since(s.fell)
	}
	s.success.happened()
}

// fall makes all connections fall silent at the next request of one that the trap catches.
func (s *silence) fall(ctx context.Context, trap chaosTrap) {
	s.t.Helper()
	s.a.log.expectErrors()
	trap.sprung = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fell = time.Now()
	}
	sprung := s.proxy.set(trap)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-sprung:
	case <-timer.C:
		s.t.Fatalf("no %s connection sent a request", trap.suffix)
	}
	s.clients(ctx) // the earlier ones may wait for what was in flight
}

// awaitBack returns when every kind has succeeded with work that began after the silence.
func (s *silence) awaitBack() {
	s.t.Helper()
	defer s.explain()
	untilChange(s.t, "everything works again", s.success.next, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.back) == len(silenceKinds)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, took := range s.back {
		logTook(s.t, kind, took)
	}
}

// explain says what works, and what is unfinished, if the test has failed.
func (s *silence) explain() {
	if !s.t.Failed() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Logf("works since the silence: %v", s.back)
	for _, task := range column[string](s.cluster, `
		SELECT concat_ws(' ', t.agent, t.state, 'since', t.created_at::time(3), a.claimed_at::time(3), a.outcome)
		FROM audit.task t LEFT JOIN audit.attempt a ON a.task_id = t.id
		WHERE t.state IN ('SUBMITTED', 'WORKING') ORDER BY t.created_at`) {
		s.t.Logf("unfinished: %s", task)
	}
	for _, hook := range column[string](s.cluster, `
		SELECT concat_ws(' ', task_id, array_agg(seq ORDER BY seq), max(tries))
		FROM audit.delivery WHERE state = 'pending' GROUP BY task_id ORDER BY task_id`) {
		s.t.Logf("undelivered: %s", hook)
	}
}

// checkReadiness checks that the replica was not ready while claims got no answer, and is ready now.
func (s *silence) checkReadiness(unready bool) {
	s.t.Helper()
	until(s.t, "the replica is ready",
		func() bool { status, _ := s.a.health("/readyz"); return status == http.StatusOK })
	s.mu.Lock()
	defer s.mu.Unlock()
	no := 0
	for _, r := range s.said {
		if r.ready || r.at.Before(s.fell) {
			continue
		}
		if no++; no == 1 {
			s.t.Logf("not ready after %s: %s", r.at.Sub(s.fell).Round(time.Millisecond),
				strings.ReplaceAll(r.text, "\n", "; "))
		}
	}
	if unready && no == 0 {
		s.t.Errorf("it was ready all the time, and claims got no answer for %s", s.back["claim"])
	}
}

// checkAcknowledged stops the clients, and checks that the database has everything acknowledged to them, once.
func (s *silence) checkAcknowledged() {
	s.t.Helper()
	s.stop()
	s.wg.Wait()
	untilFor(s.t, 3*patience, "what was claimed in the silence is rescued", func() bool {
		n, err := query[int](s.cluster,
			`SELECT (SELECT count(*) FROM audit.task WHERE state IN ('SUBMITTED', 'WORKING')) + (SELECT count(*)
				FROM audit.delivery WHERE state = 'pending')`)
		return err == nil && n == 0
	})
	s.t.Logf("%d acknowledgements", len(s.acked))
	for _, a := range s.acked {
		if n := one[int](s.cluster, `SELECT count(*) FROM audit.message WHERE idem_key = $1`, a.Key); n != 1 {
			s.t.Errorf("%s was acknowledged as task %s and exists %d times", a.Key, a.Task, n)
		}
		if n := one[int](s.cluster, `SELECT count(*) FROM audit.message WHERE idem_key = $1 AND task_id::text = $2`,
			a.Key, a.Task); n != 1 {
			s.t.Errorf("%s was acknowledged as task %s, which does not have it", a.Key, a.Task)
		}
	}
}
