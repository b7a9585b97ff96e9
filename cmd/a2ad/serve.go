package main

import (
	"context"
	"errors"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
)

// ServeCmd is `a2ad serve`.
type ServeCmd struct{ config.Config }

// Help is shown below the usage line.
func (*ServeCmd) Help() string {
	return `SIGHUP has it read the agent files again, without dropping anything that is under way.

` + moreSettings
}

// Run serves until the context ends.
func (c *ServeCmd) Run(ctx context.Context, app *App) error { return runServe(ctx, app, c.Config) }

// DevCmd is `a2ad dev`.
type DevCmd struct{ config.Config }

// Help is shown below the usage line.
func (*DevCmd) Help() string {
	return `Without A2AD_DATABASE_URL it starts a PostgreSQL of its own under --data-dir and keeps the data between runs. No authentication: it listens on loopback only. Not for production.

` + moreSettings
}

const moreSettings = `Flags win over A2AD_* variables, which win over defaults. "a2ad config -v" shows all settings, also those left out here.`

// Run serves until the context ends.
func (c *DevCmd) Run(ctx context.Context, app *App) error { return runDev(ctx, app, c.Config) }

const serveHint = `To try a2ad without any configuration run "a2ad dev".`

func (c *ServeCmd) faultHint() string { return serveHint }
func (c *DevCmd) devDefaults() bool   { return true }

// check also reads the agent files, so that their faults are told together with those of the
// settings.
func (c *ServeCmd) check() []config.Fault {
	faults := c.CheckServe()
	if c.Agents != "" {
		faults = append(faults, checkAgents(c.Config, nil)...)
	}
	return faults
}

func (c *DevCmd) check() []config.Fault {
	return append(c.Config.Check(), checkAgents(c.Config, agents.Builtin())...)
}

func checkAgents(cfg config.Config, builtin []agents.File) []config.Fault {
	_, err := loadAgents(cfg, builtin)
	var wrong agents.Faults
	var unknown *noSuchAgentError
	switch {
	case errors.As(err, &wrong):
		faults := make([]config.Fault, len(wrong))
		for i, f := range wrong {
			faults[i] = config.Fault{Name: "A2AD_AGENTS", Text: f.String()}
		}
		return faults
	case errors.As(err, &unknown):
		return []config.Fault{{Name: "A2AD_DEFAULT_AGENT", Text: unknown.text()}}
	}
	return nil
}
