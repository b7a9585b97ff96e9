package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/scaffold"
	"github.com/a2ad/a2ad/internal/term"
)

// NewCmd is `a2ad new`.
type NewCmd struct {
	Agent NewAgentCmd `cmd:"" group:"commands" help:"Make the project of a new agent: agent, test and README."`
}

// NewAgentCmd is `a2ad new agent`.
type NewAgentCmd struct {
	Name  string `arg:"" help:"Name of the agent."`
	Lang  string `required:"" enum:"${languages}" placeholder:"LANGUAGE" help:"@lang"`
	Dir   string `placeholder:"DIR" help:"Directory of the project (default: the name of the agent)."`
	Clone string `placeholder:"DIR" help:"@clone"`
}

// Help is shown below the usage line.
func (*NewAgentCmd) Help() string {
	return `The project contains a durable agent that records a step, streams, and asks a question; ` +
		`its agent file; a test that needs no server; and a README with the commands. ` +
		`In the language shell, the agent is a program that the server starts. ` +
		`In the others it is a worker, made with the library for that language.

If one of the files exists, nothing is written.`
}

// checkName returns the error for a wrong command line if the server would refuse the name.
func (c *NewAgentCmd) checkName() error {
	var err error
	switch {
	case agents.ReservedName(c.Name):
		err = fmt.Errorf("the name %q is used by the server itself; choose another", c.Name)
	case !agents.ValidName(c.Name):
		err = fmt.Errorf("%q is not a name of an agent: use at most 64 letters, digits, - and _, "+
			"and start with a letter or digit", c.Name)
	default:
		return nil
	}
	return &exitError{exitUsage, err}
}

// Run writes the files and prints what to do next.
func (c *NewAgentCmd) Run(app *App) error {
	if err := c.checkName(); err != nil {
		return err
	}
	p := scaffold.Project{Name: c.Name, Language: c.Lang, Dir: c.Dir, Clone: c.Clone, Program: app.program()}
	if p.Dir == "" {
		p.Dir = c.Name
	}
	if err := findClone(&p); err != nil {
		return err
	}
	names, err := scaffold.Write(p)
	if err != nil {
		return fmt.Errorf("make the project: %w", err)
	}
	for _, name := range names {
		if _, err := fmt.Fprintln(app.Stdout, term.OneLine(filepath.Join(p.Dir, name))); err != nil {
			return err
		}
	}
	app.Note("to continue, follow " + term.OneLine(filepath.Join(p.Dir, "README.md")))
	return nil
}

var errNoClone = errors.New("the libraries are not released yet: pass --clone DIR, " +
	"the directory of a clone of https://github.com/a2ad/a2ad")

// findClone sets the clone that has the library, if the language has one: that of --clone, or else the one that
// contains this program, or else the one that contains the working directory.
func findClone(p *scaffold.Project) error {
	if !scaffold.NeedsLibrary(p.Language) {
		return nil
	}
	if p.Clone != "" {
		if !scaffold.HasLibrary(p.Clone, p.Language) {
			return fmt.Errorf("--clone: there is no library for %s below %s", p.Language, p.Clone)
		}
		return nil
	}
	var from []string
	if program, err := os.Executable(); err == nil {
		if program, err = filepath.EvalSymlinks(program); err == nil {
			from = append(from, filepath.Dir(program))
		}
	}
	if dir, err := os.Getwd(); err == nil {
		from = append(from, dir)
	}
	for _, dir := range from {
		for parent := ""; dir != parent; parent, dir = dir, filepath.Dir(dir) {
			if scaffold.HasLibrary(dir, p.Language) {
				p.Clone = dir
				return nil
			}
		}
	}
	return errNoClone
}
