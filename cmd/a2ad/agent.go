package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/term"
)

// AgentCmd is `a2ad agent`.
type AgentCmd struct {
	Ls     AgentLsCmd     `cmd:"" group:"commands" help:"List agents and what they do now."`
	Pause  AgentPauseCmd  `cmd:"" group:"commands" help:"Let no worker claim the tasks of agents."`
	Resume AgentResumeCmd `cmd:"" group:"commands" help:"Let workers claim the tasks of paused agents again."`
	Check  AgentCheckCmd  `cmd:"" group:"commands" help:"Check agent files and list all faults."`
	Schema AgentSchemaCmd `cmd:"" group:"commands" help:"Print the JSON Schema of agent files, for editors."`
}

// AgentSchemaCmd is `a2ad agent schema`.
type AgentSchemaCmd struct{}

// Help is shown below the usage line.
func (*AgentSchemaCmd) Help() string {
	return `Save it to a file, and name that file in the first line of an agent file:

  # yaml-language-server: $schema=agent.schema.json`
}

// Run prints.
func (*AgentSchemaCmd) Run(app *App) error {
	_, err := app.Stdout.Write(agents.FormSchema)
	return err
}

// AgentCheckCmd is `a2ad agent check`.
type AgentCheckCmd struct {
	Paths []string `arg:"" name:"path" help:"Agent files and directories of agent files, whose names must differ."`
	Output
}

// Help is shown below the usage line.
func (*AgentCheckCmd) Help() string {
	return `Starts nothing. The exit code is 1 if there is a fault. ` +
		`A program, a variable or a key file that is missing on this machine is only a warning, ` +
		`because the server may run on another one.`
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
	files := agents.Check(c.Paths...)
	faults, warnings := 0, 0
	for _, f := range files {
		var lines []checkedLine
		for _, fault := range f.Faults {
			lines = append(lines, checkedLine{
				Path: fault.Path, Line: fault.Line, Level: "fault", Agent: f.Agent.Name, Text: fault.Text,
			})
		}
		if len(f.Faults) == 0 {
			f.Warnings = append(f.Warnings, agents.Missing(f, config.ReadEnviron(app.Environ).Lookup)...)
		}
		for _, w := range f.Warnings {
			lines = append(lines, checkedLine{
				Path: w.Path, Line: w.Line, Level: "warning", Agent: f.Agent.Name, Text: w.Text,
			})
		}
		if len(f.Faults) == 0 {
			lines = append(lines, checkedLine{Path: f.Path, Level: "ok", Agent: f.Agent.Name})
		}
		faults, warnings = faults+len(f.Faults), warnings+len(f.Warnings)
		if err := c.print(app, lines); err != nil {
			return err
		}
	}
	if !c.json() && faults+warnings > 0 {
		sum := term.Count(faults, "fault") + ", " + term.Count(warnings, "warning")
		fmt.Fprintf(app.Stdout, "%s in %s\n", app.Paint().Bold(sum), term.Count(len(files), "file"))
	}
	if faults > 0 {
		return &exitError{code: exitFailure}
	}
	return nil
}

// print shows the findings of one file. A person also sees the lines of the file that they are about.
func (c *AgentCheckCmd) print(app *App, lines []checkedLine) error {
	p := app.Paint()
	var source []string
	for _, l := range lines {
		switch {
		case c.json():
			if err := term.JSON(app.Stdout, l); err != nil {
				return err
			}
			continue
		case l.Level == "ok":
			fmt.Fprintf(app.Stdout, "%s: %s, agent %s\n", l.Path, p.SGR("32", "ok"), l.Agent)
			continue
		}
		at, colour := l.Path, map[string]string{"fault": "1;31", "warning": "1;33"}[l.Level]
		if l.Line > 0 {
			at = fmt.Sprintf("%s:%d", l.Path, l.Line)
		}
		fmt.Fprintf(app.Stdout, "%s: %s: %s\n", p.Bold(at), p.SGR(colour, l.Level), term.Blank(l.Text))
		if !app.Terminal || l.Line == 0 {
			continue
		}
		if source == nil {
			source = append([]string{""}, sourceLines(l.Path)...)
		}
		if l.Line < len(source) {
			fmt.Fprintln(app.Stdout, p.Dim(fmt.Sprintf("%5d │ %s", l.Line, source[l.Line])))
		}
	}
	return nil
}

// sourceLines returns the lines of a file that was just read, made safe for a terminal.
func sourceLines(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.ToValidUTF8(string(data), "\uFFFD"), "\n")
	for i, l := range lines {
		lines[i] = term.Blank(l)
		if r := []rune(l); len(r) > 160 {
			lines[i] = term.Blank(string(r[:160])) + "…"
		}
	}
	return lines
}
