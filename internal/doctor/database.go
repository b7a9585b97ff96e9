package doctor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/pgcheck"
	"github.com/a2ad/a2ad/internal/term"
)

func checkWritable(in *pgcheck.Inspection, f *Findings) {
	if in.Standing.Standby {
		f.warn("standby", "Commands that only read work here. For serve, name the primary in A2AD_DATABASE_URL "+
			"(target_session_attrs=read-write finds it among several hosts).",
			"this server is a standby and accepts no changes: %s", in.Standing.Lag())
	}
	if s := in.Settings["default_transaction_read_only"]; s.Value == "on" {
		f.fault("read-only", reset("default_transaction_read_only", in),
			"transactions are read-only (set in: %s)", s.Source)
	}
	if v := in.Settings["default_transaction_isolation"].Value; v != "read committed" {
		f.fault("isolation", reset("default_transaction_isolation", in),
			"the default isolation level is %q; a2ad needs read committed", v)
	}
	if in.Settings["row_security"].Value == "off" {
		f.fault("row security", reset("row_security", in), "row_security is off: every read for a caller fails")
	}
}

// reset says how to undo a setting, depending on where it is set.
func reset(name string, in *pgcheck.Inspection) string {
	switch source := in.Settings[name].Source; source {
	case "database":
		return fmt.Sprintf("ALTER DATABASE %q RESET %s", in.Database, name)
	case "user":
		return fmt.Sprintf("ALTER ROLE %q RESET %s", in.Login, name)
	case "database user":
		return fmt.Sprintf("ALTER ROLE %q IN DATABASE %q RESET %s", in.Login, in.Database, name)
	case "client":
		return "Remove " + name + " from A2AD_DATABASE_URL and PGOPTIONS."
	case "command line":
		return "Remove " + name + " from the command line of PostgreSQL, and restart it."
	default:
		return fmt.Sprintf("ALTER SYSTEM RESET %s; SELECT pg_reload_conf(), or edit postgresql.conf (it is set in: %s)",
			name, source)
	}
}

func checkArchiver(in *pgcheck.Inspection, f *Findings) {
	if a := in.Archiver; a.Failing {
		f.warn("archive", "Read the log of PostgreSQL: it shows what archive_command does.",
			"no WAL has been archived for %s (%s fails, %d failures so far): "+
				"the disk fills up, and a restore ends there",
			term.Duration(a.Quiet), a.WAL, a.Failures)
	}
}

func checkDurability(in *pgcheck.Inspection, f *Findings) {
	before := len(*f)
	for _, name := range []string{"fsync", "full_page_writes"} {
		if v := in.Settings[name].Value; v != "on" {
			f.fault("durability", reset(name, in), "%s is %s: a crash of the machine may destroy the database", name, v)
		}
	}
	standbys := in.Settings["synchronous_standby_names"].Value
	switch v := in.Settings["synchronous_commit"].Value; {
	case v == "off":
		f.fault("durability", reset("synchronous_commit", in),
			"synchronous_commit is off: a crash loses commits that were acknowledged")
	case v == "local" && standbys != "":
		f.warn("durability", reset("synchronous_commit", in), "synchronous_commit is local although there are "+
			"synchronous standbys: a failover loses commits that were acknowledged")
	case standbys == "":
		f.ok("durability", "commits are on disk before they are acknowledged; "+
			"without a synchronous standby, a failover may lose the newest ones")
	default:
		f.okUnless(before, "durability",
			"commits are on disk and on synchronous standbys (%s) before they are acknowledged", standbys)
	}
}

// From how many bytes of WAL on a standby is reported, and a replication slot. The alerts A2adStandbyLags and
// A2adSlotKeepsWAL have the same numbers.
const (
	farBehind = 1_000_000_000
	manyKept  = 10_000_000_000
)

func checkReplication(in *pgcheck.Inspection, f *Findings) {
	before, r := len(*f), &in.Replication
	if missing := r.SyncMissing(); missing > 0 {
		f.fault("standbys", "Start them, or change synchronous_standby_names: docs/how-to/fail-over.md.",
			"%d of the %s that commits wait for are missing: writes hang", missing,
			term.Count(r.SyncWanted, "synchronous standby"))
	}
	for _, s := range r.Standbys {
		if s.Bytes > farBehind {
			f.warn("standbys", "Find out whether it is slow or a query keeps it from replaying: pg_stat_replication, "+
				"and pg_stat_activity of the standby.", "the standby %q lags by %s of WAL", s.Name, term.Size(s.Bytes))
		}
	}
	for _, s := range r.Slots {
		if s.Bytes > manyKept {
			f.warn("slots", fmt.Sprintf("Start its user again, or SELECT pg_drop_replication_slot('%s').", s.Name),
				"the replication slot %q keeps %s of WAL: the disk fills up", s.Name, term.Size(s.Bytes))
		}
	}
	if r.Hidden > 0 {
		f.note("standbys", fmt.Sprintf("GRANT pg_read_all_stats TO %q", in.Login),
			"the login may not see by how much the standbys lag")
	}
	if len(r.Standbys) > 0 {
		f.okUnless(before, "standbys", "%s, and none lags by more than %s of WAL",
			term.Count(len(r.Standbys), "connected standby"), term.Size(farBehind))
	}
}

func checkVacuum(in *pgcheck.Inspection, f *Findings) {
	before := len(*f)
	for _, name := range []string{"autovacuum", "track_counts"} {
		if in.Settings[name].Value != "on" {
			f.fault("autovacuum", reset(name, in),
				"%s is off: dead rows pile up, and claims become slow within minutes", name)
		}
	}
	for _, t := range in.Tables {
		if t.Unvacuumed {
			f.fault("autovacuum", fmt.Sprintf("ALTER TABLE %s.%s RESET (autovacuum_enabled)", t.Schema, t.Name),
				"autovacuum is off for %s.%s", t.Schema, t.Name)
		}
	}
	if in.XIDAge > 1_000_000_000 {
		f.warn("autovacuum", "Find what keeps it (see \"dead rows\"), then run VACUUM (FREEZE) as a superuser.",
			"the oldest transaction id is %d transactions old; at two billion, the server stops", in.XIDAge)
	}
	f.okUnless(before, "autovacuum", "autovacuum is on")
}

func checkTimeouts(in *pgcheck.Inspection, f *Findings) {
	before := len(*f)
	if n := settingNumber(in, "idle_session_timeout"); n > 0 {
		f.warn("timeouts", reset("idle_session_timeout", in), "idle_session_timeout is %d ms: PostgreSQL closes idle "+
			"connections of the pool and the listening connection", n)
	}
	if n := settingNumber(in, "transaction_timeout"); n > 0 && n < 60_000 {
		f.warn("timeouts", reset("transaction_timeout", in),
			"transaction_timeout is %d ms: retention, purges and migrations may need longer", n)
	}
	if settingNumber(in, "idle_in_transaction_session_timeout") == 0 {
		f.note("timeouts", "ALTER SYSTEM SET idle_in_transaction_session_timeout = '5min'; SELECT pg_reload_conf()",
			"idle_in_transaction_session_timeout is 0: a2ad sets its own, "+
				"but a forgotten psql session keeps dead rows for ever")
	}
	f.okUnless(before, "timeouts", "no timeout of the server is in the way")
}

// settingNumber returns a setting of PostgreSQL, or 0 if the version does not have it.
func settingNumber(in *pgcheck.Inspection, name string) int {
	n, err := strconv.Atoi(in.Settings[name].Value)
	if err != nil {
		return 0
	}
	return n
}

func checkText(in *pgcheck.Inspection, f *Findings) {
	before := len(*f)
	if in.Encoding != "UTF8" {
		f.fault("encoding", "Make a database with ENCODING 'UTF8' and move the data there.",
			"the database has encoding %s: it cannot store all text that clients send", in.Encoding)
	}
	if c := in.Collation; c.Made != c.Actual && c.Made != "" && c.Actual != "" {
		f.warn("collation",
			fmt.Sprintf("REINDEX DATABASE %q; ALTER DATABASE %q REFRESH COLLATION VERSION", in.Database, in.Database),
			"the database was made with version %s of collation %s, and the library now has %s: "+
				"indexes on text may miss rows", c.Made, c.Name, c.Actual)
	}
	f.okUnless(before, "encoding", "encoding UTF8, collation %s", in.Collation.Name)
}

func checkClock(in *pgcheck.Inspection, f *Findings) {
	const fix = "Let both machines follow NTP."
	ahead, direction := in.ClockAhead.Abs(), "fast"
	if in.ClockAhead < 0 {
		direction = "slow"
	}
	switch skew := ahead - in.RoundTrip; {
	case skew > time.Minute:
		f.fault("clock", fix, "compared with this machine, the clock of the database is %s %s: "+
			"retention, signed webhooks and JWTs use the wrong time", term.Duration(ahead), direction)
	case skew > time.Second:
		f.warn("clock", fix, "compared with this machine, the clock of the database is %s %s",
			term.Duration(ahead), direction)
	default:
		f.ok("clock", "the clocks of the database and of this machine agree")
	}
}
