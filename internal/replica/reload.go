package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/store/access"
)

// followFiles reads the agent files and the certificate again on each SIGHUP, until ctx ends. A server
// whose terminal was closed gets SIGHUP too, and stops.
func (r *Replica) followFiles(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.options.Reload.Hangups:
		}
		if r.options.Reload.Orphaned() {
			r.options.Reload.Stop()
			return nil
		}
		if r.listeners.cert != nil {
			if err := r.listeners.cert.Reload(); err != nil {
				r.log.ErrorContext(ctx, "the certificate of the listeners is used unchanged", "err", err)
			}
		}
		r.changeAgents(ctx)
	}
}

// changeAgents replaces the agents with those in the files: all of them, or none.
func (r *Replica) changeAgents(ctx context.Context) {
	next, err := r.readAgents(ctx)
	if err == nil {
		err = r.api.server.SetAgents(next.domain())
	}
	if err != nil {
		r.log.ErrorContext(ctx, "agent files not reloaded, the agents stay as they are", "err", err)
		return
	}
	r.work.pool.SetAgents(next.workers())
	r.work.remote.SetAgents(next.pulled())
	added, changed, removed := r.agents.set.compare(next)
	r.agents.replace(next)
	r.work.scheduler.Reload()
	detail := map[string]any{"added": added, "changed": changed, "removed": removed}
	if err := r.database.store.Access.Record(ctx,
		access.Action{Name: access.ActionConfigReload, Detail: detail}); err != nil {
		r.log.WarnContext(ctx, "record the reload of agent files", "err", err)
	}
	r.log.InfoContext(ctx, "agent files reloaded",
		"agents", len(next), "added", added, "changed", changed, "removed", removed)
}

// readAgents reads the files and logs what is wrong with them, line by line.
func (r *Replica) readAgents(ctx context.Context) (agentSet, error) {
	files, err := r.options.Reload.Load()
	var faults agents.Faults
	if errors.As(err, &faults) {
		for _, f := range faults {
			r.log.ErrorContext(ctx, "agent file", "file", f.Path, "line", f.Line, "err", f.Text)
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
			r.log.WarnContext(ctx, "agent file", "file", w.Path, "line", w.Line, "err", w.Text)
		}
	}
	return r.executors.build(r.agents.set, files)
}
