package main

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/scaffold"
	"github.com/a2ad/a2ad/internal/term"
)

// NewCmd is `a2ad new`.
type NewCmd struct {
	Agent NewAgentCmd `cmd:"" group:"commands" help:"Make the files of a new agent: code, agent file, test and README."`
}

// NewAgentCmd is `a2ad new agent`.
type NewAgentCmd struct {
	Name  string `arg:"" help:"The name of the agent: letters, digits, - and _."`
	Lang  string `required:"" enum:"python,typescript,go,shell" placeholder:"LANG" help:"@lang"`
	Dir   string `placeholder:"DIR" help:"Where to put the files (default: a directory with the name)."`
	Clone string `placeholder:"DIR" help:"@clone"`
}

// Help is shown below the usage line.
func (*NewAgentCmd) Help() string {
	return `The directory must be missing or empty. The agent greets, asks a question, and survives crashes. ` +
		`In python, typescript and go it is a worker that uses the library of that language; ` +
		`in shell it is a command that the server starts.`
}

// Run makes the files.
func (c *NewAgentCmd) Run(app *App) error {
	switch {
	case agents.ReservedName(c.Name):
		return &exitError{exitUsage, fmt.Errorf("the server itself uses the name %q; choose another", c.Name)}
	case !agents.ValidName(c.Name):
		return &exitError{exitUsage, fmt.Errorf("%q cannot be the name of an agent: "+
			"use at most 64 letters, digits, - and _, and start with a letter or digit", c.Name)}
	}
	p := scaffold.Project{Name: c.Name, Lang: c.Lang, A2AD: callFromAnywhere(app.program())}
	if p.NeedsClone() {
		var err error
		if p.Clone, err = c.clone(app); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	dir := cmp.Or(c.Dir, c.Name)
	names, err := p.Write(dir)
	if err != nil {
		return fmt.Errorf("make the agent %s: %w", c.Name, err)
	}
	for _, name := range names {
		fmt.Fprintln(app.Stdout, term.Printable(filepath.Join(dir, name)))
	}
	fmt.Fprintf(app.Stdout, "\nNext, in %s:\n\n", term.Printable(dir))
	for _, s := range p.Steps() {
		fmt.Fprintf(app.Stdout, "  %s\n      %s\n", app.Paint().Bold(term.Printable(s.Command)), s.Does)
	}
	return nil
}

// clone returns the clone of the repository that the project gets its library from. `make build` puts the program into
// bin/ of a clone.
func (c *NewAgentCmd) clone(app *App) (string, error) {
	if c.Clone != "" {
		dir, err := filepath.Abs(c.Clone)
		if err == nil && !scaffold.IsClone(dir) {
			err = fmt.Errorf("%s is not a clone of a2ad's repository: it has no sdk/go/go.mod", c.Clone)
		}
		return dir, err
	}
	if program, err := exec.LookPath(app.program()); err == nil {
		if program, err = filepath.Abs(program); err == nil {
			if dir := filepath.Dir(filepath.Dir(program)); scaffold.IsClone(dir) {
				return dir, nil
			}
		}
	}
	return "", errors.New("the libraries are not released yet: " +
		"clone https://github.com/a2ad/a2ad, and name the directory with --clone")
}

// callFromAnywhere makes a relative path to the program absolute, because the commands are for another directory.
func callFromAnywhere(program string) string {
	if filepath.Base(program) == program {
		return program
	}
	if absolute, err := filepath.Abs(program); err == nil {
		return absolute
	}
	return program
}
