// Package replica puts the parts of a running server together: listeners, agents, credentials,
// database, work, delivery and API. `a2ad serve` and `a2ad dev` run one.
//
// Open listens. Connect waits for the database and makes the parts that need it. Run serves until its
// context ends and every part has stopped. Each part has a file and a state of its own.
package replica

import (
	"context"
	"log/slog"
	"os"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/metrics"
)

// Options is what a replica gets from its process.
type Options struct {
	Config  config.Config
	Agents  []agents.File
	Build   metrics.Build
	Environ []string // for the commands of agents, and for the export of traces; without secrets
	Log     *slog.Logger
	Reload  Reload
	// Doctor checks the installation for operators, with the configuration of the replica; nil: nothing does.
	Doctor func(ctx context.Context, cfg *config.Config, offline bool) []admin.Finding
	// Expected names settings that the command chose by itself. The log has no warning about what they permit.
	Expected map[string]bool
}

// Reload says how a replica reads its agent files again.
type Reload struct {
	Load     func() ([]agents.File, error)
	Hangups  <-chan os.Signal
	Orphaned func() bool        // the terminal that started the server is closed
	Stop     context.CancelFunc // ends the server
}

// Replica is one running server.
type Replica struct {
	cfg     config.Config
	log     *slog.Logger
	name    string
	options Options

	listeners   *listeners
	budget      *budget.Budget
	observed    *observed
	executors   *executors
	agents      roster
	failures    *auth.Failures
	database    *database
	credentials *credentials
	delivery    *delivery
	work        *work
	api         *api
}

// Open listens. It starts nothing and does not ask the database: see Connect.
func Open(ctx context.Context, o Options) (_ *Replica, err error) {
	r := &Replica{cfg: o.Config, log: o.Log, name: o.Config.ReplicaName(), options: o, observed: &observed{}}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.listeners, err = openListeners(&r.cfg); err != nil {
		return nil, err
	}
	r.budget = openBudget(&r.cfg, r.log)
	if r.observed, err = openObserved(ctx, r); err != nil {
		return nil, err
	}
	if err = r.listeners.openTLS(&r.cfg, r.log); err != nil {
		return nil, err
	}
	r.failures = &auth.Failures{Record: r.recordFailure}
	r.executors = &executors{cfg: &r.cfg, log: r.log, environ: o.Environ, userAgent: r.userAgent()}
	first, err := r.executors.build(nil, o.Agents)
	if err != nil {
		return nil, err
	}
	r.agents.replace(first)
	return r, nil
}

func (r *Replica) userAgent() string { return "a2ad/" + r.options.Build.Version }

// where says in the log which replica this is and where it listens.
func (r *Replica) where() []any {
	return append([]any{"replica", r.name}, r.listeners.attrs()...)
}

func (r *Replica) close() {
	if r.listeners != nil {
		r.listeners.close()
	}
	if r.database != nil {
		r.database.store.Close()
	}
	r.observed.close(r.log)
}
