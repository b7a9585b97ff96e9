package main

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/doctor"
	"github.com/a2ad/a2ad/internal/term"
)

// DoctorCmd is `a2ad doctor`.
type DoctorCmd struct {
	config.Config
	Dev     bool `help:"Check the configuration of dev instead of that of serve."`
	Offline bool `help:"Do not look for a running server."`
	Quiet   bool `short:"q" help:"Show only warnings and faults."`
	Output
}

// Help is shown below the usage line.
func (*DoctorCmd) Help() string {
	return `Checks the settings, the agent files, the database with its roles and encrypted secrets, ` +
		`and a server that runs on this machine. ` +
		`It changes nothing, and says for each finding what to do. Give it the settings of the server.

Exit codes: 0 no problem found; 1 warnings; 2 faults.`
}

func (c *DoctorCmd) devDefaults() bool     { return c.Dev }
func (c *DoctorCmd) check() []config.Fault { return c.Config.Check() }
func (c *DoctorCmd) reportsFaults()        {}

// Exit codes of the doctor.
const (
	exitWarnings = 1
	exitFaults   = 2
)

// Run makes every check, also after one has failed.
func (c *DoctorCmd) Run(ctx context.Context, app *App) error {
	d := &doctor.Doctor{Config: c.Config, Dev: c.Dev, Environ: config.ReadEnviron(app.Environ)}
	d.Settings(app.faults)
	d.Agents()
	err := (&Database{c.Database}).withDatabase(ctx, app, func(ctx context.Context, url string) error {
		d.Database(ctx, url)
		return nil
	})
	if err != nil {
		d.NoDatabase(err)
	}
	if !c.Offline {
		d.Server(ctx)
	}
	if ctx.Err() != nil {
		return &exitError{code: exitInterrupted}
	}
	return c.print(app, d.Findings)
}

const (
	findingIndent = 23 // the column at which the text of a finding begins
	narrowIndent  = 4  // the same for what to do, where that is too long for its line
)

var levelColors = map[string]string{
	doctor.LevelOK: "32", doctor.LevelNote: "36", doctor.LevelWarning: "1;33", doctor.LevelFault: "1;31",
}

// print writes the findings and returns the exit code.
func (c *DoctorCmd) print(app *App, all doctor.Findings) error {
	counts := map[string]int{}
	for _, x := range all {
		counts[x.Level]++
		if c.Quiet && (x.Level == doctor.LevelOK || x.Level == doctor.LevelNote) {
			continue
		}
		if c.json() {
			if err := term.JSON(app.Stdout, x); err != nil {
				return err
			}
			continue
		}
		printFinding(app, x)
	}
	faults, warnings := counts[doctor.LevelFault], counts[doctor.LevelWarning]
	if !c.json() {
		sum := term.Count(faults, "fault") + ", " + term.Count(warnings, "warning")
		if _, err := fmt.Fprintln(app.Stdout, app.Paint().Bold(sum)); err != nil {
			return err
		}
	}
	switch {
	case faults > 0:
		return &exitError{code: exitFaults}
	case warnings > 0:
		return &exitError{code: exitWarnings}
	}
	return nil
}

func printFinding(app *App, x doctor.Finding) {
	paint := app.Paint()
	level := paint.SGR(levelColors[x.Level], x.Level) + strings.Repeat(" ", len(doctor.LevelWarning)-len(x.Level))
	text := term.Wrap(term.Cell(x.Text), findingIndent, app.Width())
	fmt.Fprintf(app.Stdout, "%s  %-12s  %s\n", level, x.Check, text)
	if x.Fix == "" {
		return
	}
	// What to do is not wrapped, because people copy it. If it is too long, each statement gets its own line, further
	// to the left.
	indent, fix := findingIndent, []string{term.Cell(x.Fix)}
	if width := app.Width(); width > 0 && indent+utf8.RuneCountInString(fix[0]) > width {
		indent, fix = narrowIndent, strings.SplitAfter(fix[0], "; ")
	}
	for _, line := range fix {
		fmt.Fprintf(app.Stdout, "%*s%s\n", indent, "", paint.Dim(strings.TrimSuffix(line, " ")))
	}
}
