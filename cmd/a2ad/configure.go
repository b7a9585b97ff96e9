package main

import (
	"fmt"

	"github.com/a2ad/a2ad/internal/config"
)

// What a command says about its settings. It implements those of these interfaces that it needs.
type (
	devDefaulted interface{ devDefaults() bool } // whether the defaults are those of dev
	checked      interface{ check() []config.Fault }
	hinting      interface{ faultHint() string } // what to add below a list of faults
	reporting    interface{ reportsFaults() }    // shows the faults itself
	strict       interface{ RefusesUnknown() bool }
)

// configure fills the settings of a command and checks all of them before it reports a fault.
func configure(app *App, cmd any, flags config.Flags, env config.Environ) error {
	env, err := applyContext(cmd, flags, env)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	d, ok := cmd.(devDefaulted)
	values, faults := config.Load(config.SettingsOf(cmd, ok && d.devDefaults()), flags, env)
	if c, ok := cmd.(checked); ok {
		for _, f := range c.check() {
			faults = append(faults, config.Locate(f, values))
		}
	}
	faults = append(faults, reportUnknown(app, cmd, env)...)
	app.settings, app.faults = values, faults
	if _, ok := cmd.(reporting); ok || len(faults) == 0 {
		return nil
	}
	e := &config.FaultsError{Faults: faults}
	if h, ok := cmd.(hinting); ok {
		e.Hint = h.faultHint()
	}
	return &exitError{exitUsage, e}
}

// reportUnknown returns the A2AD_ variables that are not settings as faults of a strict command, or
// else prints warnings about them.
func reportUnknown(app *App, cmd any, env config.Environ) (faults []config.Fault) {
	s, ok := cmd.(strict)
	refuse := ok && s.RefusesUnknown()
	for _, name := range env.Unknown() {
		if refuse {
			faults = append(faults, config.Fault{Name: name, Text: "unknown setting" + config.Suggest(name)})
			continue
		}
		fmt.Fprintf(app.Stderr, "a2ad: warning: unknown setting %s is ignored%s\n", name, config.Suggest(name))
	}
	return faults
}
