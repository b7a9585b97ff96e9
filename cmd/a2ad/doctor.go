package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/doctor"
	"github.com/a2ad/a2ad/internal/term"
)

// DoctorCmd is `a2ad doctor`.
type DoctorCmd struct {
	config.Config
	config.Operator
	Dev     bool          `help:"Check the configuration of dev instead of that of serve."`
	Offline bool          `help:"Do not look for a running server."`
	APIKey  config.Secret `type:"setting" name:"api-key" kong:"-" secret:"yes"`
	Quiet   bool          `short:"q" help:"Show only warnings and faults."`
	Output
}

// Help is shown below the usage line.
func (*DoctorCmd) Help() string {
	return `Checks the settings, the agent files, the database with its roles and encrypted secrets, ` +
		`and a server that runs on this machine. ` +
		`It changes nothing, and says for each finding what to do. Give it the settings of the server. ` +
		`With --server, that server checks its own installation instead.

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
	if c.Operator.Server != "" {
		return c.ask(ctx, app)
	}
	d := &doctor.Doctor{Config: c.Config, Dev: c.Dev, Environ: config.ReadEnviron(app.Environ),
		Container: inContainer()}
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

// ask lets a server check its own installation.
func (c *DoctorCmd) ask(ctx context.Context, app *App) error {
	var report admin.DoctorReport
	api := admin.NewClient(string(c.Operator.Server), c.APIKey.Reveal(), http.DefaultTransport)
	if err := api.Get(ctx, "/doctor", admin.DoctorQuery{Offline: c.Offline}, &report); err != nil {
		return &exitError{exitFaults, err}
	}
	return c.print(app, listOf(report.Findings, func(x admin.Finding) doctor.Finding { return doctor.Finding(x) }))
}

// checkInstallation makes the checks of a server that runs in this process.
func (app *App) checkInstallation(dev bool) func(context.Context, *config.Config, bool) []admin.Finding {
	return func(ctx context.Context, cfg *config.Config, offline bool) []admin.Finding {
		d := &doctor.Doctor{
			Config: *cfg, Dev: dev, Environ: config.ReadEnviron(app.Environ), Container: inContainer(),
		}
		d.Settings(nil)
		d.Agents()
		d.Database(ctx, cfg.DatabaseURL.Reveal())
		if !offline {
			d.Server(ctx)
		}
		return listOf(d.Findings, func(x doctor.Finding) admin.Finding { return admin.Finding(x) })
	}
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
	// The level is a word of the server, which may be newer than this command.
	pad := strings.Repeat(" ", max(0, len(doctor.LevelWarning)-len(x.Level)))
	level := paint.SGR(levelColors[x.Level], term.Cell(x.Level)) + pad
	text := term.Wrap(term.Cell(x.Text), findingIndent, app.Width())
	fmt.Fprintf(app.Stdout, "%s  %-12s  %s\n", level, term.Cell(x.Check), text)
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
