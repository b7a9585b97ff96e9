package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/term"
)

// judge says what is right and wrong with a database.
func (c *DoctorCmd) judge(in *store.Inspection, f *findings) {
	if in.Version < 150000 {
		f.fault("version", "Move the data to PostgreSQL 15 or newer.", "PostgreSQL %s is too old", in.VersionText)
		return
	}
	f.ok("database", "PostgreSQL %s, database %s, login %s, %s away", in.VersionText, in.Database, in.Login, term.Duration(in.RoundTrip))
	for _, look := range []func(*store.Inspection, *findings){
		judgeWritable, judgeDurability, judgeArchiver, judgeVacuum, judgeTimeouts, judgeText, judgeClock, judgeSchema, judgeRoles, judgeRights,
		judgePooler, judgeSessions, judgeBloat,
	} {
		look(in, f)
	}
	c.judgeLogin(in, f)
	c.judgeConnections(in, f)
	for _, err := range in.Unread {
		f.warn("unread", "", "could not be checked: %s", err)
	}
}

func judgeWritable(in *store.Inspection, f *findings) {
	if in.Standby {
		f.fault("standby", "Let A2AD_DATABASE_URL name the primary (target_session_attrs=read-write finds it among several hosts).", "this server is a standby: nothing can be written")
	}
	if in.Settings["default_transaction_read_only"].Value == "on" {
		f.fault("read-only", reset("default_transaction_read_only", in), "transactions are read-only (from %s)", in.Settings["default_transaction_read_only"].Source)
	}
	if v := in.Settings["default_transaction_isolation"].Value; v != "read committed" {
		f.fault("isolation", reset("default_transaction_isolation", in), "transactions are %q; what a2ad does is written for read committed", v)
	}
	if in.Settings["row_security"].Value == "off" {
		f.fault("row security", reset("row_security", in), "row_security is off: every read for a caller fails")
	}
}

// reset says how a setting goes back to what it should be, wherever it comes from.
func reset(name string, in *store.Inspection) string {
	switch source := in.Settings[name].Source; source {
	case "database":
		return fmt.Sprintf("ALTER DATABASE %q RESET %s", in.Database, name)
	case "user":
		return fmt.Sprintf("ALTER ROLE %q RESET %s", in.Login, name)
	case "database user":
		return fmt.Sprintf("ALTER ROLE %q IN DATABASE %q RESET %s", in.Login, in.Database, name)
	case "client":
		return "Take " + name + " out of A2AD_DATABASE_URL and PGOPTIONS."
	case "command line":
		return "Take " + name + " off the command line of PostgreSQL, and restart it."
	default:
		return fmt.Sprintf("ALTER SYSTEM RESET %s; SELECT pg_reload_conf(), or mend postgresql.conf (it is set in: %s)", name, source)
	}
}

func judgeArchiver(in *store.Inspection, f *findings) {
	if a := in.Archiver; a.Failing {
		f.warn("archive", "The log of PostgreSQL says what archive_command does.", "no WAL has been archived for %s (%s fails, %d failures in all): the disk fills, and a restore ends there", term.Duration(a.Quiet), a.WAL, a.Failures)
	}
}

func judgeDurability(in *store.Inspection, f *findings) {
	begin := f.sofar()
	for _, name := range []string{"fsync", "full_page_writes"} {
		if in.Settings[name].Value != "on" {
			f.fault("durability", reset(name, in), "%s is %s: a crash of the machine may destroy the database", name, in.Settings[name].Value)
		}
	}
	standbys := in.Settings["synchronous_standby_names"].Value
	switch v := in.Settings["synchronous_commit"].Value; {
	case v == "off":
		f.fault("durability", reset("synchronous_commit", in), "synchronous_commit is off: a crash loses what callers were told is kept")
	case v == "local" && standbys != "":
		f.warn("durability", reset("synchronous_commit", in), "synchronous_commit is local although there are synchronous standbys: a failover loses what callers were told is kept")
	case standbys == "":
		f.ok("durability", "commits are on disk before they are answered; a failover to a standby may lose the newest, there is no synchronous one")
	default:
		f.okUnless(begin, "durability", "commits are on disk, and with synchronous standbys (%s), before they are answered", standbys)
	}
}

func judgeVacuum(in *store.Inspection, f *findings) {
	begin := f.sofar()
	for _, name := range []string{"autovacuum", "track_counts"} {
		if in.Settings[name].Value != "on" {
			f.fault("autovacuum", reset(name, in), "%s is off: dead rows pile up, and claims become slow within minutes", name)
		}
	}
	for _, t := range in.Tables {
		if t.Unvacuumed {
			f.fault("autovacuum", fmt.Sprintf("ALTER TABLE %s.%s RESET (autovacuum_enabled)", t.Schema, t.Name), "autovacuum is off for %s.%s", t.Schema, t.Name)
		}
	}
	if in.XIDAge > 1_000_000_000 {
		f.warn("autovacuum", "See what keeps it (\"dead rows\" here), then VACUUM (FREEZE) as a superuser.", "the oldest transaction id is %d transactions old; at two billions the server stops", in.XIDAge)
	}
	f.okUnless(begin, "autovacuum", "autovacuum is on")
}

func judgeTimeouts(in *store.Inspection, f *findings) {
	begin := f.sofar()
	ms := func(name string) int {
		n, err := strconv.Atoi(in.Settings[name].Value)
		if err != nil {
			return 0 // the version does not have it
		}
		return n
	}
	if n := ms("idle_session_timeout"); n > 0 {
		f.warn("timeouts", reset("idle_session_timeout", in), "idle_session_timeout is %d ms: connections of the pool and the listening one are cut off when they rest", n)
	}
	if n := ms("transaction_timeout"); n > 0 && n < 60_000 {
		f.warn("timeouts", reset("transaction_timeout", in), "transaction_timeout is %d ms: retention, purges and migrations may need longer", n)
	}
	if ms("idle_in_transaction_session_timeout") == 0 {
		f.note("timeouts", "ALTER SYSTEM SET idle_in_transaction_session_timeout = '5min'; SELECT pg_reload_conf()", "idle_in_transaction_session_timeout is 0: a2ad sets its own, but a forgotten psql keeps dead rows for ever")
	}
	f.okUnless(begin, "timeouts", "no timeout of the server is in the way")
}

func judgeText(in *store.Inspection, f *findings) {
	begin := f.sofar()
	if in.Encoding != "UTF8" {
		f.fault("encoding", "Make a database with ENCODING 'UTF8' and move the data there.", "the database has encoding %s: what clients send does not fit", in.Encoding)
	}
	if c := in.Collation; c.Made != c.Actual && c.Made != "" && c.Actual != "" {
		f.warn("collation", fmt.Sprintf("REINDEX DATABASE %q; ALTER DATABASE %q REFRESH COLLATION VERSION", in.Database, in.Database),
			"the database was made with version %s of collation %s, the library has %s: indexes on text may miss rows", c.Made, c.Name, c.Actual)
	}
	f.okUnless(begin, "encoding", "encoding UTF8, collation %s", in.Collation.Name)
}

func judgeClock(in *store.Inspection, f *findings) {
	skew := in.ClockAhead.Abs() - in.RoundTrip
	way := "ahead of"
	if in.ClockAhead < 0 {
		way = "behind"
	}
	const fix = "Let both machines follow NTP."
	switch {
	case skew > time.Minute:
		f.fault("clock", fix, "the clock of the database is %s %s this machine's: retention, signed webhooks and JWTs go by the wrong time", term.Duration(in.ClockAhead.Abs()), way)
	case skew > time.Second:
		f.warn("clock", fix, "the clock of the database is %s %s this machine's", term.Duration(in.ClockAhead.Abs()), way)
	default:
		f.ok("clock", "the clocks of the database and of this machine agree")
	}
}

func judgeSchema(in *store.Inspection, f *findings) {
	want := store.SchemaVersion()
	switch {
	case in.SchemaErr != nil:
		f.fault("schema", fmt.Sprintf("GRANT a2a_app, a2a_worker TO %q", in.Login), "the version of the schema cannot be read: %s", in.SchemaErr)
	case in.Schema == 0:
		f.fault("schema", "a2ad migrate up", "there is no schema")
	case in.Schema < want:
		f.fault("schema", "a2ad migrate up", "the schema is at version %d and must be at %d", in.Schema, want)
	case in.Floor > want:
		f.fault("schema", "Run the a2ad that migrated, or a newer one.", "the schema is at version %d, which serves a2ad from schema version %d on; this a2ad is of version %d", in.Schema, in.Floor, want)
	case in.Schema > want:
		f.warn("schema", "Run the a2ad that migrated, or a newer one.", "the schema is at version %d; this a2ad knows versions up to %d", in.Schema, want)
	default:
		f.ok("schema", "the schema is at version %d", in.Schema)
	}
	for _, name := range in.BrokenIndex {
		f.fault("schema", fmt.Sprintf("REINDEX INDEX CONCURRENTLY a2a.%s", name), "index %s is not usable: a step was broken off", name)
	}
}

func judgeRoles(in *store.Inspection, f *findings) {
	begin := f.sofar()
	have := map[string]store.Role{}
	for _, r := range in.Roles {
		have[r.Name] = r
	}
	for _, name := range store.OurRoles {
		if _, ok := have[name]; !ok {
			f.fault("roles", "a2ad migrate up, as a superuser; or as one: CREATE ROLE "+name+" NOLOGIN", "the role %s is missing", name)
		}
	}
	if r := have["a2a_app"]; r.Super || r.BypassRLS {
		f.fault("roles", "ALTER ROLE a2a_app NOSUPERUSER NOBYPASSRLS", "a2a_app passes by the row policies: callers are kept apart by the queries alone")
	}
	for _, r := range in.Roles {
		if r.Super && r.Name != "a2a_app" {
			f.fault("roles", "ALTER ROLE "+r.Name+" NOSUPERUSER", "%s is a superuser", r.Name)
		}
	}
	for _, name := range []string{"a2a_app", "a2a_worker"} {
		if err := in.CannotBe[name]; err != nil && have[name].Name != "" {
			f.fault("roles", fmt.Sprintf("GRANT a2a_app, a2a_worker TO %q", in.Login), "%s cannot take on %s", in.Login, name)
		}
	}
	if r, ok := have["a2a_worker"]; ok && !r.BypassRLS {
		f.note("roles", "ALTER ROLE a2a_worker BYPASSRLS", "a2a_worker has no BYPASSRLS: its policy lets it pass all the same, a little slower")
	}
	if in.Pooler.Lends {
		return // they were not taken on
	}
	f.okUnless(begin, "roles", "the roles are there, and %s may take them on", in.Login)
}

// appReads are the tables that serve callers.
var appReads = []string{"artifact_parts", "artifacts", "context_tasks", "idempotency_keys", "messages", "push_configs", "task_events", "tasks"}

// migratorWrites are the tables that the server only reads.
var migratorWrites = []string{"schema_floor"}

func judgeRights(in *store.Inspection, f *findings) {
	if in.Tables == nil {
		return
	}
	begin := f.sofar()
	for _, t := range in.Tables {
		name := t.Schema + "." + t.Name
		if t.Owner != "a2a_owner" {
			f.fault("rights", "ALTER TABLE "+name+" OWNER TO a2a_owner", "%s belongs to %s", name, t.Owner)
		}
		if !t.WorkerReads || !t.View && !t.WorkerAdds && !slices.Contains(migratorWrites, t.Name) {
			f.fault("rights", "GRANT SELECT, INSERT, UPDATE, DELETE ON "+name+" TO a2a_worker (of audit_log SELECT and INSERT alone)", "a2a_worker may not use %s", name)
		}
		if t.AppWrites {
			f.fault("rights", "REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON "+name+" FROM a2a_app, PUBLIC", "a2a_app may write to %s", name)
		}
		if t.View {
			if !t.AuditReads {
				f.warn("rights", "GRANT SELECT ON "+name+" TO a2a_audit", "auditors may not read %s", name)
			}
			continue
		}
		if !t.Secured {
			f.fault("rights", "ALTER TABLE "+name+" ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY", "row security of %s is off", name)
		}
		if t.AuditReads {
			f.fault("rights", "REVOKE SELECT ON "+name+" FROM a2a_audit, PUBLIC", "auditors may read %s, and are meant to read the views alone", name)
		}
		if slices.Contains(appReads, t.Name) && !t.AppReads {
			f.fault("rights", "GRANT SELECT ON "+name+" TO a2a_app", "a2a_app may not read %s: requests fail", name)
		}
	}
	f.okUnless(begin, "rights", "owners, grants and row policies are in place")
}

func (c *DoctorCmd) judgeLogin(in *store.Inspection, f *findings) {
	if !in.Super {
		return
	}
	const fix = "CREATE ROLE a2ad LOGIN PASSWORD '…' IN ROLE a2a_app, a2a_worker, and name it in A2AD_DATABASE_URL; migrate as the superuser."
	if !c.DatabaseURL.IsSet() {
		f.note("login", "", "the login %s is a superuser, as dev makes it", in.Login)
		return
	}
	f.warn("login", fix, "the login %s is a superuser: whoever gets hold of it may do anything", in.Login)
}

func judgePooler(in *store.Inspection, f *findings) {
	begin := f.sofar()
	const fix = "Let A2AD_DATABASE_URL go to PostgreSQL itself, or to a pool in session mode (PgBouncer: pool_mode = session)."
	if in.Pooler.Lends || in.Pooler.LosesRole {
		f.fault("pooler", fix, "something between here and the database shares connections between transactions: roles, settings, statements and wakes get lost or to others; a2ad refuses to work there")
	} else if in.Pooler.LosesWakes {
		f.fault("pooler", fix, "a notification did not arrive within two seconds: servers hear nothing of each other and poll")
	}
	f.okUnless(begin, "pooler", "connections keep their role and settings, and hear notifications")
}

func judgeSessions(in *store.Inspection, f *findings) {
	begin := f.sofar()
	const end = "Find out what it does, then SELECT pg_terminate_backend(%d)"
	for _, t := range in.IdleInTx {
		f.warn("sessions", fmt.Sprintf(end, t.PID), "process %d (%s, %s) is idle in a transaction for %s: it keeps dead rows and locks", t.PID, t.Login, t.Application, term.Duration(t.For))
	}
	for _, t := range in.Transactions {
		if !slices.ContainsFunc(in.IdleInTx, func(i store.OpenTransaction) bool { return i.PID == t.PID }) {
			f.warn("sessions", fmt.Sprintf(end, t.PID), "process %d (%s, %s) is in one transaction for %s", t.PID, t.Login, t.Application, term.Duration(t.For))
		}
	}
	for _, h := range in.Holders {
		fix := "End the session."
		switch h.Kind {
		case "replication slot":
			fix = "If nobody uses it any more: SELECT pg_drop_replication_slot('" + h.Name + "')"
		case "prepared transaction":
			fix = "COMMIT PREPARED or ROLLBACK PREPARED '" + h.Name + "'"
		}
		f.warn("dead rows", fix, "the %s %s keeps the dead rows of the last %d transactions", h.Kind, h.Name, h.Age)
	}
	if !in.SeesAll {
		f.note("sessions", fmt.Sprintf("GRANT pg_read_all_stats TO %q", in.Login), "transactions of other logins cannot be seen")
	}
	f.okUnless(begin, "sessions", "no old transaction")
}

// queueTables move all the time: nothing works well while they are full of dead rows.
var queueTables = []string{"push_configs", "task_leases", "task_ready"}

func judgeBloat(in *store.Inspection, f *findings) {
	if in.Tables == nil {
		return
	}
	begin := f.sofar()
	for _, t := range in.Tables {
		most := max(1_000_000, t.Rows/2)
		if slices.Contains(queueTables, t.Name) {
			most = max(50_000, 2*t.Rows)
		}
		if t.Dead > most {
			f.warn("dead rows", "VACUUM (ANALYZE) "+t.Schema+"."+t.Name+"; if that removes none, end what keeps them", "%s.%s has %d dead rows beside %d (%s)", t.Schema, t.Name, t.Dead, t.Rows, term.Size(t.Bytes))
		}
	}
	f.okUnless(begin, "dead rows", "no table is full of dead rows")
}

// connectionsOf is what a server opens: its pools, two connections for renewals, the listener and the watch.
func (c *DoctorCmd) connectionsOf() int {
	api := max(c.DBPool/2, 2)
	return api + max(c.DBPool-api-1, 2) + 5
}

func (c *DoctorCmd) judgeConnections(in *store.Inspection, f *findings) {
	number := func(name string) int {
		n, _ := strconv.Atoi(in.Settings[name].Value) // 0 where the version does not have it
		return n
	}
	room, limit, raise := number("max_connections")-number("superuser_reserved_connections")-number("reserved_connections"), "max_connections", "Raise max_connections (it takes a restart)"
	for _, l := range []struct {
		n           int
		name, raise string
	}{
		{in.LoginLimit, "the connection limit of login " + in.Login, fmt.Sprintf("ALTER ROLE %q CONNECTION LIMIT -1", in.Login)},
		{in.DatabaseLimit, "the connection limit of the database", fmt.Sprintf("ALTER DATABASE %q CONNECTION LIMIT -1", in.Database)},
	} {
		if l.n >= 0 && l.n < room {
			room, limit, raise = l.n, l.name, l.raise
		}
	}
	ours, names := 0, []string{}
	for _, r := range in.Replicas {
		ours += r.Connections
		names = append(names, r.Name)
	}
	others := max(int(in.Connections)-ours-1, 0) // one is the doctor's
	each, servers := c.connectionsOf(), max(len(in.Replicas), 1)
	fix := fmt.Sprintf("%s, or lower A2AD_DB_POOL, which is %d.", raise, c.DBPool)
	seen := "none connected now"
	if len(names) > 0 {
		seen = "connected now: " + strings.Join(names, ", ")
	}
	switch need := each * servers; {
	case need > room:
		f.fault("connections", fix, "%s (%s) need %d connections, and %s leaves %d", term.Count(servers, "server"), seen, need, limit, room)
	case need+each+others > room:
		f.warn("connections", fix, "%s (%s) need %d connections and others have %d; %s leaves %d, which is no room for one server more while one is replaced", term.Count(servers, "server"), seen, need, others, limit, room)
	default:
		f.ok("connections", "%s (%s), %d connections each, others have %d, room for %d", term.Count(servers, "server"), seen, each, others, room)
	}
	for _, r := range in.Replicas {
		if !r.Listens {
			f.note("connections", "", "%s has no listening connection now: it finds changes by looking for them", r.Name)
		}
	}
}
