package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// scene is a case that is being played with the driver of one library.
type scene struct {
	testCase
	t      *testing.T
	driver driver
	server *server
	world  *world
	proxy  *proxy
	task   string
	frozen *process

	traffic traffic

	mu       sync.Mutex
	worker   *process           // guarded by mu
	name     string             // guarded by mu: of the worker
	started  []*process         // guarded by mu: all workers
	programs map[string]program // guarded by mu: by the name of the worker
	dead     []string           // guarded by mu: names of killed workers
}

func play(t *testing.T, c testCase, d driver, srv *server) *scene {
	t.Helper()
	s := &scene{testCase: c, t: t, driver: d, server: srv, programs: make(map[string]program)}
	s.world = newWorld(t, c.World, &s.traffic)
	s.proxy = newProxy(s)
	t.Cleanup(func() {
		for _, p := range s.started {
			p.kill()
		}
		if t.Failed() {
			t.Logf("%s\n%s\n%s", c.Why, s.world, s.proxy)
			if s.worker != nil {
				t.Logf("output of the worker:\n%s", s.worker.output)
			}
		}
	})
	got, err := s.server.client(c.Case).Send(bounded(t), client.SendParams{Message: say(c.Send), NoWait: true})
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	s.task = got.TaskID
	s.start()
	for i := range c.Play {
		s.act(&c.Play[i])
	}
	s.until("the task is "+c.Want.State, func() bool { return s.state() == c.Want.State })
	s.stop()
	for _, missing := range s.proxy.missing() {
		t.Errorf("fault did not happen: %s", missing)
	}
	s.check()
	s.compareFixture()
	return s
}

func say(text string) a2a.Message {
	return a2a.Message{Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}
}

// start starts a worker with the program of the case.
func (s *scene) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked()
}

func (s *scene) startLocked() {
	s.name = fmt.Sprintf("%s-%s-%d", s.driver.name, s.Case, len(s.started)+1)
	grace := 30.0
	if s.Grace != nil {
		grace = *s.Grace
	}
	job, err := json.Marshal(map[string]any{
		"url": s.proxy.url, "world": s.world.url, "worker": s.name, "grace": grace,
		"agents": []any{map[string]any{"name": s.Case, "handler": s.Handler, "concurrency": max(s.Concurrency, 1),
			"do": s.Do}},
	})
	if err != nil {
		s.t.Errorf("the job of the driver: %v", err)
	}
	file := filepath.Join(s.t.TempDir(), "job.json")
	if err := os.WriteFile(file, job, 0o600); err != nil {
		s.t.Errorf("the job of the driver: %v", err)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PYTHONUNBUFFERED=1"}
	command := s.driver.commands[len(s.started)%len(s.driver.commands)]
	s.worker = spawn(s.t, env, slices.Concat(command, []string{file})...)
	s.started = append(s.started, s.worker)
	s.programs[s.name] = s.Do
}

// claimed notes what a worker has claimed, for fixtures.
func (s *scene) claimed(request, answer []byte) {
	var v struct{ Worker string }
	if json.Unmarshal(request, &v) != nil {
		return
	}
	s.mu.Lock()
	do := s.programs[v.Worker]
	s.mu.Unlock()
	s.traffic.claimed(s.task, do, answer)
}

// stop tells the worker to stop once it has claimed, and waits for its exit.
func (s *scene) stop() {
	s.t.Helper()
	s.terminate()
	worker, _ := s.current()
	worker.awaitStopped(s.t)
}

func (s *scene) terminate() {
	s.t.Helper()
	s.until("the worker claims", func() bool {
		_, name := s.current()
		return s.proxy.hasClaimed(name)
	})
	worker, _ := s.current()
	worker.signal(s.t, syscall.SIGTERM)
}

// current returns the worker, which a fault replaces.
func (s *scene) current() (worker *process, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worker, s.name
}

// killWorker simulates a crash of the worker, and starts another one.
func (s *scene) killWorker() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worker.kill()
	s.dead = append(s.dead, s.name)
	s.startLocked()
}

// expire ends the leases of dead workers, so that no test waits for them.
func (s *scene) expire() {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if len(dead) > 0 {
		s.server.exec(`UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second'
			WHERE worker = ANY ($1) AND lease_until > clock_timestamp()`, dead)
	}
}

// until waits for a condition, and for the end of faults that have begun: the task may complete before a fault kills
// its worker. Meanwhile it expires the leases of dead workers.
func (s *scene) until(what string, holds func() bool) {
	s.t.Helper()
	until(s.t, what, func() bool {
		s.expire()
		s.checkRunning()
		return holds() && s.proxy.quiet()
	})
}

func (s *scene) checkRunning() {
	s.t.Helper()
	s.mu.Lock() // killWorker holds it until the next worker runs
	defer s.mu.Unlock()
	if !s.worker.running() {
		s.t.Fatalf("the worker exited unexpectedly, with %s:\n%s", s.worker.cmd.ProcessState, s.worker.output)
	}
}

// loseLease gives the task to another attempt while the worker sends a request.
func (s *scene) loseLease() {
	epoch := s.epoch()
	s.server.exec(`UPDATE a2a.task_leases SET lease_until = clock_timestamp() - interval '1 second'
		WHERE task_id::text = $1`, s.task)
	until(s.t, "another attempt", func() bool { return s.epoch() > epoch })
}

func (s *scene) epoch() string {
	return s.server.one(`SELECT to_char(max(token), '000000') FROM audit.attempt WHERE task_id::text = $1`, s.task)
}

func (s *scene) state() string {
	return stateName(s.server.one(`SELECT state FROM audit.task WHERE id::text = $1`, s.task))
}

func (s *scene) cancel() {
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	if _, err := s.server.client(s.Case).Cancel(ctx, s.task); err != nil {
		s.t.Errorf("cancel: %v", err)
	}
}

// freeze stops the worker, as if its machine paused. Its leases expire, and another worker starts.
func (s *scene) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = s.worker
	s.frozen.signal(s.t, syscall.SIGSTOP)
	s.dead = append(s.dead, s.name)
	s.startLocked()
}

// thaw lets the frozen worker continue, and stops the other one.
func (s *scene) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen.signal(s.t, syscall.SIGCONT)
	s.worker.stop(s.t)
	s.worker, s.name = s.frozen, s.dead[len(s.dead)-1]
}
