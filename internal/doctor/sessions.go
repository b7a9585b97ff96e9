package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/pgcheck"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

func checkPooler(in *pgcheck.Inspection, f *Findings) {
	before := len(*f)
	const fix = "Point A2AD_DATABASE_URL at PostgreSQL itself, or at a pool in session mode (PgBouncer: " +
		"pool_mode = session)."
	if in.Pooler.Lends || in.Pooler.LosesRole {
		f.fault("pooler", fix, "a pooler between here and the database shares connections between transactions: "+
			"roles, settings, prepared statements and notifications get lost or reach other sessions; "+
			"a2ad refuses to work there")
	} else if in.Pooler.LosesWakes {
		f.fault("pooler", fix, "a notification did not arrive within two seconds: "+
			"servers get no wake-ups from each other, and poll")
	}
	f.okUnless(before, "pooler", "connections keep their role and settings, and receive notifications")
}

func checkSessions(in *pgcheck.Inspection, f *Findings) {
	before := len(*f)
	const end = "Find out what it does, then SELECT pg_terminate_backend(%d)"
	for _, t := range in.IdleInTx {
		f.warn("sessions", fmt.Sprintf(end, t.PID),
			"process %d (%s, %s) has been idle in a transaction for %s: it keeps dead rows and locks",
			t.PID, t.Login, t.Application, term.Duration(t.For))
	}
	for _, t := range in.Transactions {
		idle := slices.ContainsFunc(in.IdleInTx, func(i operate.OpenTransaction) bool { return i.PID == t.PID })
		if !idle {
			f.warn("sessions", fmt.Sprintf(end, t.PID), "process %d (%s, %s) has been in one transaction for %s",
				t.PID, t.Login, t.Application, term.Duration(t.For))
		}
	}
	for _, h := range in.Holders {
		fix := "End the session."
		switch h.Kind {
		case "replication slot":
			fix = "If it is no longer used: SELECT pg_drop_replication_slot('" + h.Name + "')"
		case "prepared transaction":
			fix = "COMMIT PREPARED or ROLLBACK PREPARED '" + h.Name + "'"
		}
		f.warn("dead rows", fix, "the %s %s keeps the dead rows of the last %d transactions", h.Kind, h.Name, h.Age)
	}
	if !in.SeesAll {
		f.note("sessions", fmt.Sprintf("GRANT pg_read_all_stats TO %q", in.Login),
			"transactions of other logins cannot be seen")
	}
	f.okUnless(before, "sessions", "no old transaction")
}

// queueTables change all the time: claims become slow while they are full of dead rows.
var queueTables = []string{"push_configs", "task_leases", "task_ready"}

func checkDeadRows(in *pgcheck.Inspection, f *Findings) {
	if in.Tables == nil {
		return
	}
	before := len(*f)
	for _, t := range in.Tables {
		most := max(1_000_000, t.Rows/2)
		if slices.Contains(queueTables, t.Name) {
			most = max(50_000, 2*t.Rows)
		}
		if t.Dead > most {
			f.warn("dead rows", "VACUUM (ANALYZE) "+t.Schema+"."+t.Name+"; if that removes none, end what keeps them",
				"%s.%s has %d dead rows and %d live ones (%s)", t.Schema, t.Name, t.Dead, t.Rows, term.Size(t.Bytes))
		}
	}
	f.okUnless(before, "dead rows", "no table is full of dead rows")
}

// connectionsOf is what a server opens: its two pools, two connections for renewals, the listener, and
// two that watch.
func connectionsOf(pool int) int {
	api := max(pool/2, 2)
	return api + max(pool-api-1, 2) + 5
}

// connectionLimit is how many connections PostgreSQL allows, what sets the limit, and how to raise it.
type connectionLimit struct {
	room        int
	name, raise string
}

// lowestLimit returns the limit that a server meets first.
func lowestLimit(in *pgcheck.Inspection) connectionLimit {
	reserved := settingNumber(in, "superuser_reserved_connections") + settingNumber(in, "reserved_connections")
	lowest := connectionLimit{
		settingNumber(in, "max_connections") - reserved, "max_connections",
		"Raise max_connections (it needs a restart)",
	}
	for _, l := range []connectionLimit{
		{
			in.LoginLimit, "the connection limit of login " + in.Login,
			fmt.Sprintf("ALTER ROLE %q CONNECTION LIMIT -1", in.Login),
		},
		{
			in.DatabaseLimit, "the connection limit of the database",
			fmt.Sprintf("ALTER DATABASE %q CONNECTION LIMIT -1", in.Database),
		},
	} {
		if l.room >= 0 && l.room < lowest.room {
			lowest = l
		}
	}
	return lowest
}

func (d *Doctor) checkConnections(in *pgcheck.Inspection) {
	f, pool := &d.Findings, d.Config.DBPool
	limit := lowestLimit(in)
	ours, count, names := 0, 0, []string{}
	for _, r := range in.Replicas {
		ours += r.Connections
		count += max(r.Servers, 1)
		names = append(names, r.Name)
	}
	others := max(int(in.Connections)-ours-1, 0) // one is the doctor's
	each := connectionsOf(pool)
	count = max(count, 1)
	fix := fmt.Sprintf("%s, or lower A2AD_DB_POOL, which is %d.", limit.raise, pool)
	seen := "none connected now"
	if len(names) > 0 {
		seen = "connected now: " + strings.Join(names, ", ")
	}
	servers := fmt.Sprintf("%s (%s)", term.Count(count, "server"), seen)
	switch need := each * count; {
	case need > limit.room:
		f.fault("connections", fix, "%s: %d connections are needed, and %s leaves %d",
			servers, need, limit.name, limit.room)
	case need+each+others > limit.room:
		f.warn("connections", fix,
			"%s: %d connections are needed and others have %d; "+
				"%s leaves %d, which is not enough to start one more server while another is replaced",
			servers, need, others, limit.name, limit.room)
	default:
		f.ok("connections", "%s: %d connections each; others have %d, and the limit is %d",
			servers, each, others, limit.room)
	}
	for _, r := range in.Replicas {
		if r.Servers > 1 {
			f.warn("connections", "Set A2AD_REPLICA to a different name in each.", "%d servers are named %s",
				r.Servers, r.Name)
		}
		if !r.Listens {
			f.note("connections", "", "%s has no listening connection now: it polls for changes", r.Name)
		}
	}
}
