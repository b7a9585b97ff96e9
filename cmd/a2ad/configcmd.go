package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/a2ad/a2ad/internal/term"
)

// ConfigCmd is `a2ad config`.
type ConfigCmd struct {
	Config
	Dev     bool `help:"Show the configuration of dev instead of that of serve."`
	Verbose bool `short:"v" help:"Show what each setting means."`
	Output
}

// Help is shown below the usage line.
func (*ConfigCmd) Help() string {
	return `Takes the same flags as serve. Faults go to stderr, all at once, and make the exit code 2. Secrets are masked.`
}

func (c *ConfigCmd) devDefaults() bool { return c.Dev }

func (c *ConfigCmd) reportsFaults() {}

func (c *ConfigCmd) check() []fault {
	if c.Dev {
		return c.Config.check()
	}
	return c.checkServe()
}

// Run prints the settings in their groups.
func (c *ConfigCmd) Run(app *App) error {
	write := c.table
	if c.json() {
		write = configJSON
	}
	if err := write(app); err != nil {
		return err
	}
	if len(app.faults) > 0 {
		return &exitError{exitUsage, &faultsError{faults: app.faults}}
	}
	return nil
}

func (c *ConfigCmd) table(app *App) error {
	w := tabwriter.NewWriter(app.Stdout, 0, 8, 2, ' ', 0)
	group := ""
	for _, v := range app.settings {
		if v.Group != group {
			if group != "" {
				fmt.Fprintln(w)
			}
			group = v.Group
			fmt.Fprintln(w, groupTitle(group))
		}
		shown, source := v.shown(), v.Source
		if shown == "" {
			shown = "-"
		}
		if source == "" && v.Auto != "" {
			source = "default: " + v.Auto
		}
		fmt.Fprintf(w, "  %s\t%s\t%s", v.Name, shown, source)
		if c.Verbose {
			fmt.Fprintf(w, "\t%s", strings.TrimSuffix(v.Help, "."))
		}
		if v.Bad {
			fmt.Fprint(w, " [faulty]")
		}
		if v.Unused != "" {
			if !c.Verbose {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprintf(w, " [not used yet: %s]", v.Unused)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func groupTitle(key string) string {
	for _, g := range settingGroups {
		if g.Key == key {
			return strings.TrimSuffix(g.Title, ":")
		}
	}
	return key
}

// configLine is one setting of `a2ad config -o json`.
type configLine struct {
	Name    string  `json:"name"`
	Value   *string `json:"value"`
	Source  string  `json:"source"`
	Default string  `json:"default,omitempty"`
	Meaning string  `json:"meaning"`
	Unused  string  `json:"notUsedYet,omitempty"`
}

func configJSON(app *App) error {
	for _, v := range app.settings {
		line := configLine{Name: v.Name, Source: v.Source, Default: v.Default, Meaning: v.Help, Unused: v.Unused}
		if v.Source == "" {
			line.Source = "default"
		}
		if shown := v.shown(); shown != "" {
			line.Value = &shown
		}
		if err := term.JSON(app.Stdout, line); err != nil {
			return err
		}
	}
	return nil
}
