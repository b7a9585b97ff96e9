package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/e2e/check"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// chaos is one seed: replicas, clients and faults.
type chaos struct {
	*cluster
	seed     uint64
	draw     *rand.Rand // source of the faults
	srv      *devpg.Server
	proxy    *chaosProxy
	world    *chaosWorld
	slots    []*chaosSlot
	wg       sync.WaitGroup // clients, and faults of replicas that heal later
	stopping atomic.Bool    // replicas may end from now on

	stopOperator func() // returns when the operator has ended

	mu     sync.Mutex
	acks   []check.Acknowledged // guarded by mu
	stucks []string             // guarded by mu
	exits  []string             // guarded by mu
	notes  []string             // guarded by mu; problems of the soak itself
	done   map[string]int       // guarded by mu; number of faults by name

	kept change // of acks and of the lists of texts
}

func (c *chaos) acknowledged(a check.Acknowledged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acks = append(c.acks, a)
	c.kept.happened()
}

func (c *chaos) stuck(format string, args ...any)  { c.keep(&c.stucks, format, args...) }
func (c *chaos) exited(format string, args ...any) { c.keep(&c.exits, format, args...) }
func (c *chaos) note(format string, args ...any)   { c.keep(&c.notes, format, args...) }

func (c *chaos) keep(list *[]string, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*list = append(*list, oneLine(fmt.Sprintf(format, args...)))
	c.kept.happened()
}

// newChaos starts PostgreSQL, the agent, the webhook receiver and three replicas.
func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	host, port, err := net.SplitHostPort(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	c := &chaos{
		seed: seed, draw: rand.New(rand.NewPCG(seed, 0)), world: newChaosWorld(t), done: make(map[string]int),
		srv: storetest.NewServer(t, map[string]string{"listen_addresses": host, "port": port}),
	}
	db := storetest.NewOn(t, c.srv)
	proxy, proxied := newChaosProxy(t, db.URL)
	c.proxy = proxy
	c.cluster = &cluster{
		t: t, url: proxied, db: db.Pool(t), agents: t.TempDir(), log: &check.Log{},
		http:  &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		retry: backoff.Policy{Base: 20 * time.Millisecond, Max: 200 * time.Millisecond},
	}
	t.Cleanup(c.http.CloseIdleConnections)
	if _, err := c.db.Exec(t.Context(), chaosClock); err != nil {
		t.Fatalf("make a clock that jumps: %v", err)
	}
	c.agent("script", "default: true\n"+scriptAgent("script", chaosLimits))
	c.agent("counts", c.world.agentFile("counts", "/run", chaosLimits))
	c.agent("fragile", c.world.agentFile("fragile", "/fragile", parkingLimits))
	c.agent("sleeps", c.world.agentFile("sleeps", "/sleeps", parkingLimits))
	c.agent("calls", c.world.agentFile("calls", "/calls", parkingLimits))
	env := append(hooking(seal.Generate("k1")), "A2AD_PUSH_RETRY=0"+strings.Repeat(",200ms", 60),
		"A2AD_PUSH_TIMEOUT=3s", "A2AD_BLOCKING_MAX_WAIT=10s")
	env = append(env, shortTimings...)
	for i := range 3 {
		s := &chaosSlot{c: c, name: string(rune('a' + i)), listen: freePort(t)}
		s.env = c.env(s.name, append(slices.Clone(env), "A2AD_LISTEN="+s.listen)...)
		c.slots = append(c.slots, s)
		s.spawn()
		s.at().awaitReady()
	}
	c.startOperator()
	return c
}

// chaosSlot is one address at which replicas run one after the other.
type chaosSlot struct {
	c            *chaos
	name, listen string
	env          []string
	busy         sync.Mutex // held during a fault of this slot

	mu    sync.Mutex
	r     *replica      // guarded by mu
	meant *atomic.Bool  // guarded by mu; a fault ends r
	back  chan struct{} // guarded by mu; closed when the next replica runs
}

func (s *chaosSlot) at() *replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r
}

// spawn starts a replica, and another one when it ends.
func (s *chaosSlot) spawn() {
	r := spawn(s.c.t, s.name, s.env)
	r.base = "http://" + s.listen
	r.log.expectErrors()
	meant, back := &atomic.Bool{}, make(chan struct{})
	s.mu.Lock()
	s.r, s.meant, s.back = r, meant, back
	s.mu.Unlock()
	go func() {
		<-r.exited
		if !meant.Load() && !s.c.stopping.Load() {
			s.c.exited("replica %s ended by itself with %v; its log ends: %s", s.name, r.err,
				lastLines(r.log.tail(), 3))
		}
		if !s.c.stopping.Load() {
			s.spawn()
		}
		close(back)
	}()
}

func lastLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// end ends the replica as a fault, unless another fault is in progress.
func (s *chaosSlot) end(stop func(*replica)) bool {
	if !s.busy.TryLock() {
		return false
	}
	s.mu.Lock()
	r, back := s.r, s.back
	s.meant.Store(true)
	s.mu.Unlock()
	stop(r)
	s.c.wg.Go(func() {
		defer s.busy.Unlock()
		timer := time.NewTimer(2 * patience)
		defer timer.Stop()
		select {
		case <-back:
		case <-timer.C:
			s.c.stuck("replica %s does not end", s.name)
			_ = r.cmd.Process.Kill()
			<-back
		}
	})
	return true
}

// pause stops the replica with SIGSTOP for a while.
func (s *chaosSlot) pause(c *chaos, d time.Duration) bool {
	if !s.busy.TryLock() {
		return false
	}
	r := s.at()
	if r.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		s.busy.Unlock()
		return false
	}
	c.wg.Go(func() {
		defer s.busy.Unlock()
		c.rest(d)
		_ = r.cmd.Process.Signal(syscall.SIGCONT) // it cannot have ended
	})
	return true
}

// play injects faults for the given time, heals everything and waits until all work is done.
func (c *chaos) play(duration time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c.clients(ctx, 10)
	end := time.Now().Add(duration)
	order := c.draw.Perm(len(chaosFaults)) // each kind once before any repeats
	for i := 0; time.Now().Before(end); i++ {
		if i%len(order) == 0 {
			order = c.draw.Perm(len(chaosFaults))
		}
		f := chaosFaults[order[i%len(order)]]
		if f.do(c) {
			c.mu.Lock()
			c.done[f.name]++
			c.mu.Unlock()
		}
		c.rest(c.between(100*time.Millisecond, 1500*time.Millisecond))
	}
	c.awaitDatabase()
	c.setClock(0)
	stop()
	c.wg.Wait()
}

// atRest waits until no work is left, at most for limit; the checkers find what remains.
func (c *chaos) atRest(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); c.rest(200 * time.Millisecond) {
		n, err := query[int](c.cluster, `SELECT (SELECT count(*) FROM audit.task
			WHERE state IN ('SUBMITTED', 'WORKING'))
			+ (SELECT count(*) FROM audit.delivery WHERE state = 'pending') + (SELECT count(*) FROM a2a.task_cancels)
			+ (SELECT count(*) FROM a2a.task_orphans)`)
		if err == nil && n == 0 {
			return
		}
	}
	left, err := query[string](c.cluster, `SELECT concat_ws('; ', clock_timestamp()::text,
		(SELECT jsonb_agg(to_jsonb(p) - 'token' - 'credentials') FROM a2a.push_configs p WHERE p.id IN
			(SELECT w.id FROM a2a.push_configs w JOIN audit.delivery d ON d.task_id = w.task_id
			AND d.config_id = w.config_id WHERE d.state = 'pending'))::text,
		(SELECT jsonb_agg(p) FROM a2a.push_parked p)::text, (SELECT jsonb_agg(d) FROM a2a.push_destinations d)::text,
		(SELECT jsonb_agg(t) FROM a2a.tasks t WHERE t.state < 100)::text, (SELECT jsonb_agg(k)
		FROM a2a.task_cancels k)::text, (SELECT jsonb_agg(w) FROM a2a.task_waits w)::text,
		(SELECT jsonb_agg(o) FROM a2a.task_orphans o)::text)`)
	c.note("not at rest after %s: %s %v", limit, left, err)
}

// stopAll shuts the replicas down.
func (c *chaos) stopAll() {
	c.stopOperator()
	c.stopping.Store(true)
	for _, s := range c.slots {
		r := s.at()
		_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	for _, s := range c.slots {
		r := s.at()
		timer := time.NewTimer(patience)
		select {
		case <-r.exited:
		case <-timer.C:
			c.stuck("replica %s does not end", s.name)
		}
		timer.Stop()
		r.end()
		s.mu.Lock()
		back := s.back
		s.mu.Unlock()
		<-back
	}
}
