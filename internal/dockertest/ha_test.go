package dockertest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	sendsWithin = 3 * time.Second           // once a standby follows a new leader, a send is accepted
	tasksWithin = leaseTTL + 5*time.Second  // from then on no task waits longer
	noOutage    = tasksWithin + sendsWithin // sends go on within this time if the leader stays
)

// ha is the installation of deploy/compose/ha.yml.
type ha struct {
	*stack
	password string // of the superuser
	hooks    *sink
}

// TestHighAvailability follows docs/tutorials/high-availability.md. On what is then running, each part fails under
// load.
func TestHighAvailability(t *testing.T) {
	s := &stack{t: t, files: haFiles}
	t.Cleanup(func() {
		if t.Failed() {
			for _, service := range append([]string{"etcd-1", "a2ad-1", "a2ad-2", "a2ad-3"}, nodes...) {
				logs, _ := s.try("docker", "compose", "logs", "--no-log-prefix", "--tail", "25", service)
				t.Logf("%s:\n%s", service, logs)
			}
		}
		_, _ = s.try("docker", "compose", "down", "--volumes")
	})
	if !t.Run("tutorial", func(t *testing.T) { tutorial(&stack{t: t, files: haFiles}) }) {
		return
	}
	s.compose("up", "--detach", "--wait") // the tutorial has removed it
	h := &ha{stack: s, hooks: newSink(t, s.gateway())}
	h.password = strings.TrimSpace(s.compose("exec", "-T", nodes[0], "cat", "/run/secrets/postgres/superuser"))
	s.createKey("tasks:read,tasks:write,push:write")
	for _, f := range []fault{
		{name: "leader killed", elects: true, do: (*ha).killLeader},
		{name: "leader paused", elects: true, do: (*ha).pauseLeader},
		{name: "leader off the network", elects: true, do: (*ha).disconnectLeader},
		{name: "leader cut off from the other nodes and etcd", elects: true, do: (*ha).isolateLeader},
		{name: "switchover", elects: true, do: (*ha).switchOver},
		{name: "standby killed", do: (*ha).killStandby},
		{name: "both standbys paused", stops: true, do: (*ha).pauseStandbys},
		{name: "replica off the network", do: (*ha).disconnectReplica},
		{name: "etcd member off the network", do: (*ha).disconnectEtcd},
	} {
		t.Run(f.name, func(t *testing.T) {
			inner := *h
			inner.stack = &stack{t: t, files: s.files, key: s.key}
			inner.fail(f)
		})
	}
	t.Run("invariants", func(t *testing.T) {
		inner := *h
		inner.stack = &stack{t: t, files: s.files, key: s.key}
		inner.atRest(inner.leaderDatabase())
		inner.hooks.check(t)
		if out := inner.a2ad("doctor"); !strings.Contains(out, "0 faults, 0 warnings") {
			t.Errorf("doctor says\n%s", out)
		}
	})
}

// fault is something that happens to the installation under load.
type fault struct {
	name   string
	elects bool // another node becomes the leader
	stops  bool // no send may be accepted until it is healed
	do     func(h *ha, leader string) (heal func())
}

// fail runs a fault under load, and compares what clients see with what is promised.
func (h *ha) fail(f fault) {
	h.t.Helper()
	leader := h.awaitWhole()
	addresses := h.addresses()
	l := h.startLoad()
	defer l.end()
	l.more(h.stack, 100)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	elected := make(chan election, 1)
	fell := time.Now()
	go func() { elected <- awaitElection(ctx, addresses, leader) }()
	heal := f.do(h, leader)
	healed := false
	defer func() {
		if !healed {
			heal()
		}
	}()
	led := fell
	if f.elects {
		e := <-elected
		if e.leader == "" {
			h.t.Fatalf("no other node became the leader within %s", electionLimit)
		}
		h.awaitStandby(addresses[e.leader])
		led = time.Now()
		h.t.Logf("%s, then %s, is the leader: after %s. A standby follows it %s later", leader, e.leader,
			rounded(e.at.Sub(fell)), rounded(led.Sub(e.at)))
	}
	if f.stops {
		h.nothingAccepted(l)
		heal()
		healed = true
		led = time.Now()
	}
	h.until("a send is accepted", func() bool { return !l.acceptedAfter(led).IsZero() })
	first := l.acceptedAfter(led)
	l.more(h.stack, 100)
	if !healed {
		heal()
		healed = true
	}
	cancel()
	if after := h.awaitWhole(); !f.elects && after != leader {
		h.t.Errorf("the leader is %s, want %s still", after, leader)
	}
	l.end()
	h.judge(f, l, fell, led, first)
}

// longestWait is how long a task waited for a claim at most: since there was a leader, since its creation, or since the
// last event of the worker that was lost.
const longestWait = `
	SELECT coalesce(extract(epoch FROM max(a.claimed_at - greatest($1, k.created_at, (
	  SELECT max(e.committed_at) FROM audit.event e
	  WHERE e.task_id = a.task_id AND e.source = 'worker' AND e.token < a.token)))), 0)::float8
	FROM audit.attempt a JOIN audit.task k ON k.id = a.task_id
	WHERE a.claimed_at > $1`

// judge compares what clients saw with the database, and the times with what is promised.
func (h *ha) judge(f fault, l *haLoad, fell, led, first time.Time) {
	h.t.Helper()
	conn := h.leaderDatabase()
	h.atRest(conn)
	l.compare(h.t, conn, h.hooks)
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	var waited float64
	err := conn.QueryRow(ctx, longestWait, led).Scan(&waited)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Logf("%s: leader with a standby after %s; first accepted send %s later; longest wait of a task from then on "+
		"%.2fs; %s", f.name, rounded(led.Sub(fell)), rounded(first.Sub(led)), waited, l)
	limit := sendsWithin
	if !f.elects && !f.stops {
		limit = noOutage
	}
	if d := first.Sub(led); d > limit {
		h.t.Errorf("the first send was accepted %s after a standby followed the leader, want at most %s", d, limit)
	}
	if waited > tasksWithin.Seconds() {
		h.t.Errorf("a task waited %.1fs, want at most %s", waited, tasksWithin)
	}
}

// leaderDatabase connects to the leader.
func (h *ha) leaderDatabase() *pgx.Conn {
	h.t.Helper()
	var hosts []string
	for _, ip := range h.addresses() {
		hosts = append(hosts, ip+":5432")
	}
	return h.connect(fmt.Sprintf("postgres://postgres:%s@%s/a2ad?target_session_attrs=read-write", h.password,
		strings.Join(hosts, ",")))
}

// nothingAccepted checks that no send is accepted while no standby can store it.
func (h *ha) nothingAccepted(l *haLoad) {
	h.t.Helper()
	settle, later := time.Now().Add(time.Second), time.Now().Add(12*time.Second)
	h.until("the sends that were in progress are over", func() bool { return time.Now().After(settle) })
	h.until("sends are waiting", func() bool { return time.Now().After(later) })
	if at := l.acceptedAfter(settle); !at.IsZero() {
		h.t.Errorf("a send was accepted %s after the last standby had stopped", at.Sub(settle)+time.Second)
	}
}

func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
