package main

import (
	"errors"
	"fmt"

	"github.com/a2ad/a2ad/internal/agents"
)

// AgentCmd is `a2ad agent`.
type AgentCmd struct {
	Check AgentCheckCmd `cmd:"" group:"commands" help:"Check agent files and show every fault."`
}

// AgentCheckCmd is `a2ad agent check`.
type AgentCheckCmd struct {
	Path string `arg:"" help:"Agent file, or directory of agent files."`
	Output
}

// Help is shown below the usage line.
func (*AgentCheckCmd) Help() string {
	return `Starts nothing. The exit code is 1 when there is a fault; warnings do not count.`
}

// checkedLine is one line of `a2ad agent check -o json`.
type checkedLine struct {
	Path  string `json:"path"`
	Line  int    `json:"line,omitempty"`
	Level string `json:"level"` // ok, warning or fault
	Agent string `json:"agent,omitempty"`
	Text  string `json:"text,omitempty"`
}

// Run checks.
func (c *AgentCheckCmd) Run(app *App) error {
	files, err := agents.Load(c.Path)
	var faults agents.Faults
	if err != nil && !errors.As(err, &faults) {
		return err
	}
	for _, f := range faults {
		if err := c.print(app, checkedLine{Path: f.Path, Line: f.Line, Level: "fault", Text: f.Text}); err != nil {
			return err
		}
	}
	for _, f := range files {
		for _, w := range f.Warnings {
			if err := c.print(app, checkedLine{Path: w.Path, Line: w.Line, Level: "warning", Agent: f.Agent.Name, Text: w.Text}); err != nil {
				return err
			}
		}
		if err := c.print(app, checkedLine{Path: f.Path, Level: "ok", Agent: f.Agent.Name}); err != nil {
			return err
		}
	}
	if len(faults) > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}

func (c *AgentCheckCmd) print(app *App, l checkedLine) error {
	if c.json() {
		return printJSON(app.Stdout, l)
	}
	if l.Level == "ok" {
		_, err := fmt.Fprintf(app.Stdout, "%s: ok, agent %s\n", l.Path, l.Agent)
		return err
	}
	at := l.Path
	if l.Line > 0 {
		at = fmt.Sprintf("%s:%d", l.Path, l.Line)
	}
	_, err := fmt.Fprintf(app.Stdout, "%s: %s: %s\n", at, l.Level, l.Text)
	return err
}
