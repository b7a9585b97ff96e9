package main

import (
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/term"
)

// ConfigCmd is `a2ad config`.
type ConfigCmd struct {
	config.Config
	Dev     bool `help:"Show the configuration of dev instead of that of serve."`
	Verbose bool `short:"v" help:"Show what each setting means."`
	Output
}

// Help is shown below the usage line.
func (*ConfigCmd) Help() string {
	return `Takes the same flags as serve. It masks secrets. It lists all faults on stderr and then exits with code 2.`
}

func (c *ConfigCmd) devDefaults() bool { return c.Dev }

func (c *ConfigCmd) reportsFaults() {}

func (c *ConfigCmd) check() []config.Fault {
	if c.Dev {
		return c.Check()
	}
	return c.CheckServe()
}

// Run prints the settings in their groups.
func (c *ConfigCmd) Run(app *App) error {
	if err := c.print(app); err != nil {
		return err
	}
	if len(app.faults) > 0 {
		return &exitError{exitUsage, &config.FaultsError{Faults: app.faults}}
	}
	return nil
}

func (c *ConfigCmd) print(app *App) error {
	if !c.json() {
		return config.WriteTable(app.Stdout, app.settings, c.Verbose)
	}
	for _, v := range app.settings {
		if err := term.JSON(app.Stdout, v.Line()); err != nil {
			return err
		}
	}
	return nil
}
