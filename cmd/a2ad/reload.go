package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/script"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/worker"
)

// crew is the agents of a replica with what does their work.
type crew []member

type member struct {
	agents.File
	executor executor.Executor // nil: workers far away claim its tasks
	secrets  [sha256.Size]byte // of the files that the executor has read
}

func (c crew) workers() []worker.Agent {
	list := make([]worker.Agent, len(c))
	for i := range c {
		list[i] = worker.Agent{Agent: &c[i].Agent, Executor: c[i].executor}
	}
	return list
}

func (c crew) agents() []*a2a.Agent {
	list := make([]*a2a.Agent, len(c))
	for i := range c {
		list[i] = &c[i].Agent
	}
	return list
}

// pulled returns the agents whose tasks workers far away claim.
func (c crew) pulled() []*a2a.Agent {
	var list []*a2a.Agent
	for i := range c {
		if _, ok := c[i].File.Executor.(agents.Pull); ok {
			list = append(list, &c[i].Agent)
		}
	}
	return list
}

func (c crew) find(name string) *member {
	for i := range c {
		if c[i].Agent.Name == name {
			return &c[i]
		}
	}
	return nil
}

// hire makes the executors of agents. One whose description is as before is the same as before, with its
// connections and whatever else it keeps.
func (r *replica) hire(app *App, files []agents.File) (crew, error) {
	next := make(crew, len(files))
	for i, f := range files {
		m := member{File: f, secrets: digest(f.Executor)}
		old := r.crew.find(f.Agent.Name)
		if old != nil && old.secrets == m.secrets && reflect.DeepEqual(old.File.Executor, f.Executor) {
			m.executor = old.executor
		} else {
			var err error
			if m.executor, err = newExecutor(app, r.cfg, r.logger, f.Executor); err != nil {
				return nil, fmt.Errorf("agent %s: %w", f.Agent.Name, err)
			}
		}
		if p, ok := m.executor.(*script.Executor); ok {
			m.Agent.RepliesTo = p.Replies
		}
		next[i] = m
	}
	return next, nil
}

// digest tells whether the keys and certificates of an executor are others than before.
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
			continue // newExecutor tells
		}
		n, err := io.Copy(h, f)
		f.Close()
		fmt.Fprintln(h, n, err)
	}
	h.Sum(sum[:0])
	return sum
}

// reload reads the agent files again when the process gets a SIGHUP.
type reload struct {
	app      *App
	load     func() ([]agents.File, error)
	hangups  <-chan os.Signal
	stop     context.CancelFunc // ends the server
	orphaned func() bool        // the terminal that the server was started on is gone
	close    func()
}

// newReload takes SIGHUP from now on: before, it ends the process.
func (app *App) newReload(stop context.CancelFunc) *reload {
	attached := app.Terminal && hasTerminal()
	r := &reload{app: app, stop: stop, orphaned: func() bool { return attached && !hasTerminal() }}
	r.hangups, r.close = app.hangups()
	return r
}

// hasTerminal reports whether the process belongs to a terminal that is still there.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	tty.Close()
	return true
}

// followFiles reloads on each signal until ctx is done. A server on a terminal that was closed gets the
// signal too, and stops.
func (r *replica) followFiles(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.reload.hangups:
		}
		if r.reload.orphaned() {
			r.reload.stop()
			return nil
		}
		if r.cert != nil {
			if err := r.cert.Reload(); err != nil {
				r.logger.ErrorContext(ctx, "the certificate of the listeners is used as it was", "err", err)
			}
		}
		r.changeAgents(ctx)
	}
}

// changeAgents puts the agents of the files in the place of those that are there, all or none.
func (r *replica) changeAgents(ctx context.Context) {
	next, err := r.readCrew(ctx)
	if err == nil {
		err = r.server.SetAgents(next.agents())
	}
	if err != nil {
		r.logger.ErrorContext(ctx, "agent files not reloaded, the agents stay as they are", "err", err)
		return
	}
	r.pool.SetAgents(next.workers())
	r.workers.SetAgents(next.pulled())
	added, changed, removed := r.crew.compare(next)
	r.employ(next)
	detail := map[string]any{"added": added, "changed": changed, "removed": removed}
	if err := r.store.Record(ctx, store.Action{Name: store.ActionConfigReload, Detail: detail}); err != nil {
		r.logger.WarnContext(ctx, "record the reload of agent files", "err", err)
	}
	r.logger.InfoContext(ctx, "agent files reloaded", "agents", len(next), "added", added, "changed", changed, "removed", removed)
}

// readCrew reads the files. What is wrong with them goes to the log line by line.
func (r *replica) readCrew(ctx context.Context) (crew, error) {
	files, err := r.reload.load()
	var faults agents.Faults
	if errors.As(err, &faults) {
		for _, f := range faults {
			r.logger.ErrorContext(ctx, "agent file", "file", f.Path, "line", f.Line, "err", f.Text)
		}
		err = fmt.Errorf("%d faults", len(faults))
		if len(faults) == 1 {
			err = errors.New("1 fault")
		}
	}
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		for _, w := range f.Warnings {
			r.logger.WarnContext(ctx, "agent file", "file", w.Path, "line", w.Line, "err", w.Text)
		}
	}
	return r.hire(r.reload.app, files)
}

func (r *replica) employ(c crew) {
	list := c.agents()
	r.crew = c
	r.served.Store(&list)
}

// compare returns the names of agents that are new, others than before, and gone.
func (c crew) compare(next crew) (added, changed, removed []string) {
	for i := range next {
		name := next[i].Agent.Name
		switch old := c.find(name); {
		case old == nil:
			added = append(added, name)
		case !old.same(&next[i]):
			changed = append(changed, name)
		}
	}
	for i := range c {
		if name := c[i].Agent.Name; next.find(name) == nil {
			removed = append(removed, name)
		}
	}
	return added, changed, removed
}

func (m *member) same(other *member) bool {
	a, b := m.Agent, other.Agent
	a.Inputs, b.Inputs = nil, nil       // made of the schemas in the card
	a.RepliesTo, b.RepliesTo = nil, nil // of the executor
	return m.secrets == other.secrets && reflect.DeepEqual(a, b) && reflect.DeepEqual(m.File.Executor, other.File.Executor)
}
