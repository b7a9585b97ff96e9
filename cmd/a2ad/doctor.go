package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/push"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/term"
)

// DoctorCmd is `a2ad doctor`.
type DoctorCmd struct {
	config.Config
	Dev     bool `help:"Check the configuration of dev instead of that of serve."`
	Offline bool `help:"Do not look for a running server."`
	Quiet   bool `short:"q" help:"Show warnings and faults alone."`
	Output
}

// Help is shown below the usage line.
func (*DoctorCmd) Help() string {
	return `Checks the settings, the database and its roles, the way to it, the key ring, the agent files and, from here, the listeners of a server; changes nothing; says for each finding what to do. Give it the settings of the server.

Exit code 0: all is well; 1: there are warnings; 2: there are faults.`
}

func (c *DoctorCmd) devDefaults() bool     { return c.Dev }
func (c *DoctorCmd) check() []config.Fault { return c.Config.Check() }
func (c *DoctorCmd) reportsFaults()        {}

// Levels of findings. A note does not count.
const (
	levelOK      = "ok"
	levelNote    = "note"
	levelWarning = "warning"
	levelFault   = "fault"
)

// Exit codes of the doctor.
const (
	exitWarnings = 1
	exitFaults   = 2
)

// finding is one line of `a2ad doctor -o json`.
type finding struct {
	Check string `json:"check"` // what was looked at; does not change silently
	Level string `json:"level"` // ok, note, warning or fault
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"` // what to change, and how
}

// findings are collected in the order of the checks.
type findings []finding

func (f *findings) add(level, check, fix, format string, args ...any) {
	*f = append(*f, finding{Check: check, Level: level, Text: fmt.Sprintf(format, args...), Fix: fix})
}

func (f *findings) ok(check, format string, args ...any) { f.add(levelOK, check, "", format, args...) }

func (f *findings) note(check, fix, format string, args ...any) {
	f.add(levelNote, check, fix, format, args...)
}

func (f *findings) warn(check, fix, format string, args ...any) {
	f.add(levelWarning, check, fix, format, args...)
}

func (f *findings) fault(check, fix, format string, args ...any) {
	f.add(levelFault, check, fix, format, args...)
}

// sofar returns how many findings there are, for okUnless.
func (f *findings) sofar() int { return len(*f) }

// okUnless adds a good word if nothing was found since.
func (f *findings) okUnless(since int, check, format string, args ...any) {
	if len(*f) == since {
		f.ok(check, format, args...)
	}
}

// Run checks everything, whatever it finds on the way.
func (c *DoctorCmd) Run(ctx context.Context, app *App) error {
	var f findings
	for _, x := range app.faults {
		f.fault("settings", "", "%s", x)
	}
	f.okUnless(0, "settings", "the settings are valid")
	c.checkAgents(app, &f)
	err := (&Database{c.Database}).withDatabase(ctx, app, func(ctx context.Context, url string) error {
		c.checkDatabase(ctx, app, url, &f)
		return nil
	})
	if err != nil {
		f.fault("database", "", "%s", err)
	}
	if !c.Offline {
		c.checkServer(ctx, &f)
	}
	if ctx.Err() != nil {
		return &exitError{code: exitInterrupted}
	}
	return c.show(app, f)
}

// doctorIndent is where the text of a finding begins.
const doctorIndent = 23

func (c *DoctorCmd) show(app *App, all findings) error {
	p, counts := app.Paint(), map[string]int{}
	colour := map[string]string{levelOK: "32", levelNote: "36", levelWarning: "1;33", levelFault: "1;31"}
	for _, x := range all {
		counts[x.Level]++
		if c.Quiet && (x.Level == levelOK || x.Level == levelNote) {
			continue
		}
		if c.json() {
			if err := term.JSON(app.Stdout, x); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(app.Stdout, "%s%s  %-12s  %s\n", p.SGR(colour[x.Level], x.Level), strings.Repeat(" ", len(levelWarning)-len(x.Level)), x.Check, term.Wrap(term.Cell(x.Text), doctorIndent, app.Width()))
		if x.Fix != "" {
			// Not wrapped: it is copied.
			fmt.Fprintf(app.Stdout, "%*s%s\n", doctorIndent, "", p.Dim(term.Cell(x.Fix)))
		}
	}
	if !c.json() {
		if _, err := fmt.Fprintln(app.Stdout, p.Bold(term.Count(counts[levelFault], "fault")+", "+term.Count(counts[levelWarning], "warning"))); err != nil {
			return err
		}
	}
	switch {
	case counts[levelFault] > 0:
		return &exitError{code: exitFaults}
	case counts[levelWarning] > 0:
		return &exitError{code: exitWarnings}
	}
	return nil
}

func (c *DoctorCmd) checkAgents(app *App, f *findings) {
	if c.Agents == "" {
		if !c.Dev {
			f.note("agents", "Set A2AD_AGENTS to what serve is given.", "A2AD_AGENTS is not set: no agent files were checked")
		}
		return
	}
	begin := f.sofar()
	files := agents.Check(c.Agents)
	for _, file := range files {
		for _, x := range file.Faults {
			f.fault("agents", "Mend the file; \"a2ad agent check\" shows the lines.", "%s", x)
		}
		warnings := file.Warnings
		if len(file.Faults) == 0 {
			warnings = append(warnings, app.missing(file)...)
		}
		for _, x := range warnings {
			f.warn("agents", "", "%s", x)
		}
	}
	f.okUnless(begin, "agents", "%s without a fault", term.Count(len(files), "agent file"))
}

func (c *DoctorCmd) checkDatabase(ctx context.Context, app *App, url string, f *findings) {
	in, err := store.Inspect(ctx, url)
	if err != nil {
		f.fault("database", "See that PostgreSQL runs, that it can be reached from here, and that A2AD_DATABASE_URL names host, port, user, password and database.", "%s", err)
		return
	}
	c.judge(in, f)
	if in.Schema != store.SchemaVersion() || len(in.CannotBe) > 0 || in.Pooler.Lends {
		return
	}
	if err := c.checkSealed(ctx, app, url, f); err != nil {
		f.warn("keys", "", "what is sealed could not be read: %s", err)
	}
}

// ring returns the keys of the server; those of dev, for its own database, are in its directory.
func (c *DoctorCmd) ring() (seal.Ring, error) {
	if c.DatabaseURL.IsSet() && !c.Dev || !c.Keys.Empty() {
		return c.Keys, nil
	}
	if _, err := os.Stat(filepath.Join(c.DataDir, "keys")); errors.Is(err, fs.ErrNotExist) {
		return c.Keys, nil
	}
	return devKeys(c.DataDir)
}

func (c *DoctorCmd) checkSealed(ctx context.Context, app *App, url string, f *findings) error {
	ring, err := c.ring()
	if err != nil {
		return err
	}
	op, err := app.openOperator(ctx, url)
	if err != nil {
		return err
	}
	defer op.Close()
	sealed, err := op.SealedWith(ctx)
	if err != nil {
		return err
	}
	c.judgeSealed(ring, sealed, f)
	return nil
}

func (c *DoctorCmd) judgeSealed(ring seal.Ring, sealed []store.Sealed, f *findings) {
	const put = "Put the key back into A2AD_KEYS, behind the others, then run \"a2ad keys rewrap\"."
	begin, secrets := f.sofar(), int64(0)
	for _, s := range sealed {
		secrets += s.Secrets
		what := term.Count(int(s.Secrets), "secret")
		switch err := push.Opens(ring, s); {
		case ring.Empty():
			f.fault("keys", "Set A2AD_KEYS as on the servers.", "%s sealed with key %s, and A2AD_KEYS is not set", what, s.KeyID)
		case errors.Is(err, seal.ErrUnknownKey):
			f.fault("keys", put, "%s sealed with key %s, which A2AD_KEYS does not have", what, s.KeyID)
		case err != nil:
			f.fault("keys", "The key under this id is another one than the one that sealed: restore it.", "%s sealed with key %s do not open: %s", what, s.KeyID, err)
		case s.KeyID != ring.IDs()[0]:
			f.note("keys", "\"a2ad keys rewrap\", then take the old key out.", "%s sealed with the older key %s", what, s.KeyID)
		}
	}
	switch {
	case ring.Empty() && len(sealed) == 0:
		f.note("keys", "A2AD_KEYS=id:base64-of-32-bytes, alike on all servers.", "A2AD_KEYS is not set: webhooks with a token or credentials are refused")
	default:
		f.okUnless(begin, "keys", "A2AD_KEYS opens all that is sealed (%d)", secrets)
	}
}
