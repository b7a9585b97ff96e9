package main

import (
	"context"
	"errors"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/metrics"
	"github.com/a2ad/a2ad/internal/replica"
)

// ServeCmd is `a2ad serve`.
type ServeCmd struct{ config.Config }

// Help is shown below the usage line.
func (*ServeCmd) Help() string {
	return `On SIGHUP it reads the agent files again, without interrupting anything.

Flags win over A2AD_* variables, which win over defaults. "a2ad config -v" shows all settings, ` +
		`including those that are not listed here.`
}

func (c *ServeCmd) faultHint() string {
	return `To try a2ad without any configuration, run "a2ad dev".`
}

// check also reads the agent files, so that their faults are reported together with those of the
// settings.
func (c *ServeCmd) check() []config.Fault {
	faults := c.CheckServe()
	if c.Agents != "" {
		faults = append(faults, replica.CheckAgents(&c.Config, nil)...)
	}
	return faults
}

// Run serves until the context ends.
func (c *ServeCmd) Run(ctx context.Context, app *App) error {
	untilSignal := ctx
	ctx, stop := outlive(untilSignal, c.DrainDelay)
	defer stop()
	o, closeOptions, err := app.replicaOptions(&c.Config, nil, stop)
	defer closeOptions()
	if err != nil {
		return err
	}
	o.Doctor = app.checkInstallation(false)
	r, err := replica.Open(ctx, o)
	if err != nil {
		return err
	}
	switch err := r.Connect(ctx, untilSignal); {
	case errors.Is(err, replica.ErrStopped):
		return nil
	case err != nil:
		return err
	}
	return r.Run(ctx, untilSignal)
}

// replicaOptions reads the agent files and prints their warnings. Until closed is called, SIGHUP does not end the
// process. stop ends the server.
func (app *App) replicaOptions(
	cfg *config.Config, builtin []agents.File, stop context.CancelFunc,
) (o replica.Options, closed func(), err error) {
	attached := app.Terminal && hasTerminal()
	hangups, closed := app.hangups()
	load := func() ([]agents.File, error) { return replica.LoadAgents(cfg, builtin) }
	files, err := load()
	if err != nil {
		return o, closed, err
	}
	for _, f := range files {
		for _, warning := range f.Warnings {
			app.Note("a2ad: warning: " + warning.String())
		}
	}
	v := readVersion()
	return replica.Options{
		Config: *cfg, Agents: files, Environ: app.Environ, Log: replica.NewLogger(cfg.Logs, app.Stderr),
		Build: metrics.Build{Version: v.Version, Commit: v.Commit, Go: v.Go},
		Reload: replica.Reload{
			Load: load, Hangups: hangups, Stop: stop,
			Orphaned: func() bool { return attached && !hasTerminal() },
		},
	}, closed, nil
}
