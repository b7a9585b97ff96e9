package dockertest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// nodes are the PostgreSQL nodes of deploy/compose/ha.yml.
var nodes = []string{"postgres-1", "postgres-2", "postgres-3"}

const (
	electionLimit = 2 * time.Minute
	shared        = "a2ad-ha_default" // the network of all containers but etcd
	etcdOnly      = "a2ad-ha_etcd"
)

// patroni calls the nodes' Patroni. A node that is paused or cut off does not answer.
var patroni = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// addresses returns the address of each node.
func (h *ha) addresses() map[string]string {
	h.t.Helper()
	all := make(map[string]string)
	for _, n := range nodes {
		all[n] = h.address(n)
	}
	return all
}

// gateway returns the address of this machine in the network of the containers.
func (s *stack) gateway() string {
	s.t.Helper()
	const format = "{{(index .IPAM.Config 0).Gateway}}"
	return strings.TrimSpace(s.run("docker", "network", "inspect", "--format", format, shared))
}

// isLeader asks a node whether it is the leader.
func isLeader(ctx context.Context, ip string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ip+":8008/primary", nil)
	if err != nil {
		return false
	}
	resp, err := patroni.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // nothing was read
	return resp.StatusCode == http.StatusOK
}

// election says which node has become the leader, and when.
type election struct {
	leader string
	at     time.Time
}

// awaitElection waits until another node than the old leader is the leader. It returns nothing if that takes longer
// than electionLimit, or if ctx ends.
func awaitElection(ctx context.Context, addresses map[string]string, old string) election {
	ctx, cancel := context.WithTimeout(ctx, electionLimit)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	won := make(chan election, len(addresses))
	for name, ip := range addresses {
		if name == old {
			continue
		}
		wg.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				if isLeader(ctx, ip) {
					won <- election{name, time.Now()}
					return
				}
				<-tick.C
			}
		})
	}
	select {
	case e := <-won:
		return e
	case <-ctx.Done():
		return election{}
	}
}

// awaitStandby waits until a synchronous standby follows a new leader, which cannot acknowledge a commit before.
func (h *ha) awaitStandby(ip string) {
	h.t.Helper()
	conn := h.connect("postgres://postgres:" + h.password + "@" + ip + "/a2ad")
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for follows := false; !follows; <-tick.C {
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication
			WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum'))`).Scan(&follows)
		if err != nil {
			h.t.Fatalf("no standby follows the new leader: %v", err)
		}
	}
}

// awaitWhole waits until there are a leader and two standbys that are up to date and synchronous. It returns the
// leader.
func (h *ha) awaitWhole() (leader string) {
	h.t.Helper()
	ip := h.addresses()
	h.until("there are a leader and two synchronous standbys", func() bool {
		leader = ""
		for _, n := range nodes {
			if isLeader(context.Background(), ip[n]) {
				leader = n
			}
		}
		return leader != "" && whole(ip[leader])
	})
	return leader
}

// whole reports whether a node sees three members, each in its role and state.
func whole(ip string) bool {
	resp, err := patroni.Get("http://" + ip + ":8008/cluster")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var got struct {
		Members []struct{ Role, State string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return false
	}
	standbys := 0
	for _, m := range got.Members {
		if m.Role == "quorum_standby" && m.State == "streaming" {
			standbys++
		}
	}
	return len(got.Members) == 3 && standbys == 2
}

func standbysOf(leader string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == leader })
}

func (h *ha) killLeader(leader string) (heal func()) {
	h.compose("kill", "--signal", "KILL", leader)
	return func() { h.compose("start", leader) }
}

func (h *ha) pauseLeader(leader string) (heal func()) {
	h.compose("pause", leader)
	return func() { h.compose("unpause", leader) }
}

// disconnect takes a container off a network. Packets to it get no answer.
func (h *ha) disconnect(service, network string) (heal func()) {
	id := h.container(service)
	h.run("docker", "network", "disconnect", "--force", network, id)
	return func() { h.run("docker", "network", "connect", "--alias", service, network, id) }
}

func (h *ha) disconnectLeader(leader string) (heal func()) {
	joinEtcd, join := h.disconnect(leader, etcdOnly), h.disconnect(leader, shared)
	return func() { join(); joinEtcd() }
}

// isolateLeader cuts the leader off from etcd and from the other nodes, but not from the replicas of a2ad. They still
// call it until it has noticed that it is no longer the leader.
func (h *ha) isolateLeader(leader string) (heal func()) {
	join := h.disconnect(leader, etcdOnly)
	pid := strings.TrimSpace(h.run("docker", "inspect", "--format", "{{.State.Pid}}", h.container(leader)))
	filter := func(action string) {
		for _, other := range standbysOf(leader) {
			ip := h.address(other)
			for _, rule := range [][]string{{"INPUT", "--source", ip}, {"OUTPUT", "--destination", ip}} {
				args := []string{"--net", "--target", pid, "iptables", "--jump", "DROP", action}
				h.run("nsenter", append(args, rule...)...)
			}
		}
	}
	filter("--append")
	return func() {
		filter("--delete")
		join()
	}
}

func (h *ha) switchOver(leader string) (heal func()) {
	to := standbysOf(leader)[0]
	h.compose("exec", "-T", leader, "patronictl", "switchover", "--leader", leader, "--candidate", to, "--force")
	return func() {}
}

func (h *ha) killStandby(leader string) (heal func()) {
	standby := standbysOf(leader)[0]
	h.compose("kill", "--signal", "KILL", standby)
	return func() { h.compose("start", standby) }
}

func (h *ha) pauseStandbys(leader string) (heal func()) {
	standbys := standbysOf(leader)
	h.compose(append([]string{"pause"}, standbys...)...)
	return func() { h.compose(append([]string{"unpause"}, standbys...)...) }
}

func (h *ha) disconnectReplica(string) (heal func()) {
	join := h.disconnect("a2ad-2", shared)
	cut := time.Now()
	h.until("the leases of the replica end", func() bool { return time.Since(cut) > leaseTTL+2*time.Second })
	return func() {
		join()
		h.healthy("a2ad-2")
	}
}

func (h *ha) disconnectEtcd(string) (heal func()) {
	join := h.disconnect("etcd-1", etcdOnly)
	cut := time.Now()
	h.until("the nodes do without the member", func() bool { return time.Since(cut) > 40*time.Second })
	return func() {
		join()
		h.healthy("etcd-1")
	}
}
