package replica

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"reflect"
	"sync/atomic"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/worker"
)

// agent is an agent file with the executor that does its work.
type agent struct {
	agents.File
	executor executor.Executor // nil: remote workers claim its tasks
	secrets  [sha256.Size]byte // digest of the key files that the executor has read
}

// agentSet is the agents of a replica. It does not change.
type agentSet []agent

// roster has the current agents.
type roster struct {
	set    agentSet                     // changed only by the part that reloads
	served atomic.Pointer[[]*a2a.Agent] // the same, for parts that read while it changes
	pulled atomic.Pointer[[]*a2a.Agent] // of these, those whose tasks remote workers claim
}

func (r *roster) replace(next agentSet) {
	list, pulled := next.domain(), next.pulled()
	r.set = next
	r.served.Store(&list)
	r.pulled.Store(&pulled)
}

// names returns the names of the agents. It may be called while they change.
func (r *roster) names() (names []string) {
	for _, a := range *r.served.Load() {
		names = append(names, a.Name)
	}
	return names
}

func (s agentSet) workers() []worker.Agent {
	list := make([]worker.Agent, len(s))
	for i := range s {
		_, command := s[i].File.Executor.(agents.Exec)
		list[i] = worker.Agent{Agent: &s[i].Agent, Executor: s[i].executor, Command: command}
	}
	return list
}

func (s agentSet) domain() []*a2a.Agent {
	list := make([]*a2a.Agent, len(s))
	for i := range s {
		list[i] = &s[i].Agent
	}
	return list
}

// pulled returns the agents whose tasks remote workers claim.
func (s agentSet) pulled() []*a2a.Agent {
	var list []*a2a.Agent
	for i := range s {
		if _, ok := s[i].File.Executor.(agents.Pull); ok {
			list = append(list, &s[i].Agent)
		}
	}
	return list
}

func (s agentSet) find(name string) *agent {
	for i := range s {
		if s[i].Agent.Name == name {
			return &s[i]
		}
	}
	return nil
}

// compare returns the names of agents that are new, different and gone in next.
func (s agentSet) compare(next agentSet) (added, changed, removed []string) {
	for i := range next {
		name := next[i].Agent.Name
		switch old := s.find(name); {
		case old == nil:
			added = append(added, name)
		case !old.same(&next[i]):
			changed = append(changed, name)
		}
	}
	for i := range s {
		if name := s[i].Agent.Name; next.find(name) == nil {
			removed = append(removed, name)
		}
	}
	return added, changed, removed
}

func (a *agent) same(other *agent) bool {
	one, two := a.Agent, other.Agent
	one.Inputs, two.Inputs = nil, nil       // made from the schemas in the card
	one.RepliesTo, two.RepliesTo = nil, nil // a function of the executor
	return a.secrets == other.secrets && reflect.DeepEqual(one, two) &&
		reflect.DeepEqual(a.File.Executor, other.File.Executor)
}

// digest changes when the key and certificate files of an executor change.
func digest(spec agents.Spec) (sum [sha256.Size]byte) {
	var keys agents.TLS
	switch spec := spec.(type) {
	case agents.HTTP:
		keys = spec.TLS
	case agents.A2A:
		keys = spec.TLS
	}
	h := sha256.New()
	for _, path := range []string{keys.CA, keys.Cert, keys.Key} {
		if path == "" {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			continue // making the executor reports it
		}
		n, err := io.Copy(h, f)
		f.Close()
		fmt.Fprintln(h, n, err)
	}
	h.Sum(sum[:0])
	return sum
}
