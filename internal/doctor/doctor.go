// Package doctor checks an installation: the settings, the agent files, the database, its roles and
// encrypted secrets, and a running server as clients and operators reach it.
//
// Each check adds findings that say what is wrong and what to change. Nothing is changed here.
package doctor

import (
	"context"
	"fmt"

	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/pgcheck"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

// Levels of findings. A note is not a problem.
const (
	LevelOK      = "ok"
	LevelNote    = "note"
	LevelWarning = "warning"
	LevelFault   = "fault"
)

// Finding is the result of one check. Its JSON does not change silently.
type Finding struct {
	Check string `json:"check"`
	Level string `json:"level"` // ok, note, warning or fault
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"` // what to change, and how
}

// Findings are in the order of the checks.
type Findings []Finding

func (f *Findings) add(level, check, fix, format string, args ...any) {
	*f = append(*f, Finding{Check: check, Level: level, Text: fmt.Sprintf(format, args...), Fix: fix})
}

func (f *Findings) ok(check, format string, args ...any) { f.add(LevelOK, check, "", format, args...) }

func (f *Findings) note(check, fix, format string, args ...any) {
	f.add(LevelNote, check, fix, format, args...)
}

func (f *Findings) warn(check, fix, format string, args ...any) {
	f.add(LevelWarning, check, fix, format, args...)
}

func (f *Findings) fault(check, fix, format string, args ...any) {
	f.add(LevelFault, check, fix, format, args...)
}

// okUnless adds a good finding if there are still only before of them.
func (f *Findings) okUnless(before int, check, format string, args ...any) {
	if len(*f) == before {
		f.ok(check, format, args...)
	}
}

// Doctor checks the installation that a configuration describes.
type Doctor struct {
	Config  config.Config
	Dev     bool           // the configuration is that of dev
	Environ config.Environ // what agents may ask for

	// Container tells that the server has a network of its own: who may reach its ports is decided outside of it.
	Container bool

	Findings Findings
}

// Settings reports the faults of the configuration.
func (d *Doctor) Settings(faults []config.Fault) {
	for _, x := range faults {
		d.Findings.fault("settings", "", "%s", x)
	}
	if len(faults) == 0 {
		d.Findings.ok("settings", "the settings are valid")
	}
}

// Agents checks the agent files.
func (d *Doctor) Agents() {
	f := &d.Findings
	if d.Config.Agents == "" {
		if !d.Dev {
			f.note("agents", "Set A2AD_AGENTS as for serve.", "A2AD_AGENTS is not set: no agent files were checked")
		}
		return
	}
	before := len(*f)
	files := agents.Check(d.Config.Agents)
	for _, file := range files {
		for _, x := range file.Faults {
			f.fault("agents", "Fix the file; \"a2ad agent check\" shows the lines.", "%s", x)
		}
		warnings := file.Warnings
		if len(file.Faults) == 0 {
			warnings = append(warnings, agents.Missing(file, d.Environ.Lookup)...)
		}
		for _, x := range warnings {
			f.warn("agents", "", "%s", x)
		}
	}
	f.okUnless(before, "agents", "%s without a fault", term.Count(len(files), "agent file"))
}

// NoDatabase reports that there is no database to check.
func (d *Doctor) NoDatabase(err error) { d.Findings.fault("database", "", "%s", err) }

// Database checks the database at url.
func (d *Doctor) Database(ctx context.Context, url string) {
	in, err := pgcheck.Inspect(ctx, url)
	if err != nil {
		d.Findings.fault("database", "Check that PostgreSQL runs, that this machine can reach it, and that "+
			"A2AD_DATABASE_URL has the right host, port, user, password and database.", "%s", err)
		return
	}
	d.inspect(in)
	if in.Schema != operate.SchemaVersion() || len(in.CannotBe) > 0 || in.Pooler.Lends {
		return
	}
	s, err := store.Open(ctx, store.Config{Config: db.Config{URL: url, Replica: "operator", PoolSize: 4}})
	if err != nil {
		d.Findings.warn("stored", "", "what is stored could not be read: %s", err)
		return
	}
	defer s.Close()
	if err := d.secrets(ctx, s); err != nil {
		d.Findings.warn("keys", "", "the encrypted secrets could not be read: %s", err)
	}
	d.outages(ctx, s)
	d.stops(ctx, s)
	d.servers(ctx, s)
}

// inspect judges what PostgreSQL says about itself.
func (d *Doctor) inspect(in *pgcheck.Inspection) {
	f := &d.Findings
	if in.Version < 150000 {
		f.fault("version", "Move the data to PostgreSQL 15 or newer.", "PostgreSQL %s is too old", in.VersionText)
		return
	}
	f.ok("database", "PostgreSQL %s, database %s, login %s, round trip %s",
		in.VersionText, in.Database, in.Login, term.Duration(in.RoundTrip))
	for _, check := range []func(*pgcheck.Inspection, *Findings){
		checkWritable, checkDurability, checkArchiver, checkReplication, checkVacuum, checkTimeouts, checkText,
		checkClock, checkSchema, checkRoles, checkRights, checkPooler, checkSessions, checkDeadRows,
	} {
		check(in, f)
	}
	d.checkLogin(in)
	d.checkConnections(in)
	for _, err := range in.Unread {
		f.warn("unread", "", "could not be checked: %s", err)
	}
}
