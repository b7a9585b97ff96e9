// Package pgcheck reads what an operator must know about a PostgreSQL server before a2ad runs on it: settings, roles,
// rights, the schema, poolers. It judges nothing and changes nothing.
package pgcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/pgcheck/dbsqlc"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// Inspection is what a doctor needs to know about a database and the connection to it. What could not be read, because
// rights or earlier facts are missing, is in Unread.
type Inspection struct {
	Version       int // as server_version_num
	VersionText   string
	Database      string
	Login         string
	Super         bool // the login is a superuser
	SeesAll       bool // the login sees the activity of other logins
	Encoding      string
	XIDAge        int64
	LoginLimit    int           // connections of the login; -1: no limit
	DatabaseLimit int           // connections to the database; -1: no limit
	ClockAhead    time.Duration // of the server's clock compared with ours
	RoundTrip     time.Duration // of one query; the clocks are compared no better than this
	Collation     Collation
	Settings      map[string]Setting // of InspectedSettings, those that the version has

	Roles       []Role // those of OurRoles that exist
	CannotBe    map[string]error
	Schema      int64 // version; 0: no schema
	SchemaErr   error
	Floor       int64         // servers of an older schema are refused; 0: no server is
	Tables      []TableRights // nil unless all roles exist
	BrokenIndex []string

	Connections  int64 // to the whole server
	Replicas     []operate.ReplicaSeen
	Transactions []operate.OpenTransaction // longer than a minute
	// of these and shorter ones, those that have waited for their client for at least ten seconds
	IdleInTx []operate.OpenTransaction
	Holders  []XminHolder // that keep many dead rows, the oldest first

	Archiver    Archiver
	Standing    operate.Standing
	Replication operate.Replication
	Pooler      Pooler
	Unread      []error
}

// Collation is how the database sorts text: the version that it was created with, and the current version.
type Collation struct{ Name, Made, Actual string }

// Setting is a setting of the server, as it is for the login.
type Setting struct{ Value, Unit, Source string }

// Role is one of OurRoles.
type Role struct {
	Name         string
	Super        bool
	BypassRLS    bool
	CreatesRoles bool
	Member       bool // the login is a member
}

// TableRights says which role may do what with a table or a view of a2ad, and how many dead rows it has.
type TableRights struct {
	Schema, Name            string
	View                    bool
	Owner                   string
	Secured                 bool // row security is on, for the owner too
	WorkerReads, WorkerAdds bool
	AppReads, AppWrites     bool
	AuditReads              bool
	Unvacuumed              bool
	Rows, Dead, Bytes       int64
}

// XminHolder is something that keeps dead rows from being removed.
type XminHolder struct {
	Kind, Name string
	Age        int64 // in transactions
}

// Archiver is the state of WAL archiving.
type Archiver struct {
	Failing  bool // the newest attempt has failed
	Failures int64
	WAL      string        // the file that could not be archived
	Quiet    time.Duration // since the last file that was archived
}

// Pooler says how a pooler between here and the server behaves, as far as connections show it.
type Pooler struct {
	Lends      bool // connections keep a server process only for a transaction or a statement
	LosesRole  bool // the next transaction did not have the role of SET ROLE
	LosesWakes bool // a notification did not arrive
}

// InspectedSettings are those that Inspect reads.
var InspectedSettings = []string{
	"autovacuum", "default_transaction_isolation", "default_transaction_read_only", "fsync", "full_page_writes",
	"hot_standby_feedback", "idle_session_timeout",
	"idle_in_transaction_session_timeout", "max_connections", "max_prepared_transactions", "old_snapshot_threshold",
	"reserved_connections", "row_security", "statement_timeout",
	"superuser_reserved_connections", "synchronous_commit", "synchronous_standby_names", "track_counts",
	"transaction_timeout", "wal_sync_method",
}

const (
	inspectTimeout = 10 * time.Second
	inspectChannel = "a2ad_doctor"
	wakePatience   = 2 * time.Second

	// manyDead is the age in transactions from which on an XminHolder is reported.
	manyDead = 100_000
)

// Inspect inspects a database. It changes nothing, and needs neither the schema nor the roles of a2ad. An error means
// that the database is unreachable.
func Inspect(ctx context.Context, url string) (*Inspection, error) {
	cfg, err := db.PlainConfig(url, "a2ad-"+operate.OperatorReplica+"-doctor", inspectTimeout)
	if err != nil {
		return nil, err
	}
	connect := func() (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, cfg) }
	conn, err := connect()
	if err != nil {
		return nil, db.Redact(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	in := &Inspection{CannotBe: map[string]error{}, Settings: map[string]Setting{}}
	if err := in.readServer(ctx, conn); err != nil {
		return nil, err
	}
	if in.Version < 150000 {
		return in, nil // nothing else can be read
	}
	for _, part := range []struct {
		name string
		read func(context.Context, *pgx.Conn) error
	}{
		{"collation", in.readCollation}, {"settings", in.readSettings}, {"roles", in.readRoles},
		{"schema", in.readSchema},
		{"sessions", in.readSessions}, {"what keeps dead rows", in.readHolders}, {"archive", in.readArchiver},
		{"replication", in.readReplication},
	} {
		if err := part.read(ctx, conn); err != nil {
			in.Unread = append(in.Unread, fmt.Errorf("%s: %w", part.name, err))
		}
	}
	in.Pooler.Lends, err = db.Lends(ctx, conn, connect)
	if err == nil && !in.Pooler.Lends { // else the settings could be those of another client
		in.tryRoles(ctx, conn)
		err = in.tryPooler(ctx, conn, connect)
	}
	if err != nil {
		in.Unread = append(in.Unread, fmt.Errorf("pooler: %w", err))
	}
	return in, nil
}

func (in *Inspection) readServer(ctx context.Context, conn *pgx.Conn) error {
	q := dbsqlc.New(conn)
	if _, err := q.InspectServer(ctx); err != nil { // prepares the statement, so that the next call is one round trip
		return fmt.Errorf("look at the server: %w", err)
	}
	before := time.Now()
	r, err := q.InspectServer(ctx)
	if err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	in.RoundTrip = time.Since(before)
	in.ClockAhead = r.Now.Time.Sub(before.Add(in.RoundTrip / 2))
	in.Version, in.VersionText = int(r.Version), r.VersionText
	in.Login, in.Super = r.Login, r.Super
	in.Database, in.Encoding, in.XIDAge, in.SeesAll = r.Database, r.Encoding, r.XidAge, r.SeesAll
	in.LoginLimit, in.DatabaseLimit = int(r.LoginLimit), int(r.DatabaseLimit)
	return nil
}

func (in *Inspection) readCollation(ctx context.Context, conn *pgx.Conn) error {
	q := dbsqlc.New(conn)
	r, err := q.InspectCollation(ctx)
	in.Collation = Collation(r)
	return err
}

func (in *Inspection) readSettings(ctx context.Context, conn *pgx.Conn) error {
	q := dbsqlc.New(conn)
	rows, err := q.InspectSettings(ctx, InspectedSettings)
	for _, r := range rows {
		in.Settings[r.Name] = Setting{Value: r.Setting, Unit: r.Unit, Source: r.Source}
	}
	return err
}

// OurRoles are the roles that the migrations create.
var OurRoles = []string{"a2a_owner", db.RoleApp, db.RoleWorker, "a2a_audit"}

func (in *Inspection) readRoles(ctx context.Context, conn *pgx.Conn) error {
	q := dbsqlc.New(conn)
	rows, err := q.InspectRoles(ctx, OurRoles)
	for _, r := range rows {
		in.Roles = append(in.Roles, Role{
			Name: r.Name, Super: r.Super, BypassRLS: r.Bypass, CreatesRoles: r.CreatesRoles, Member: r.Member,
		})
	}
	return err
}

func (in *Inspection) readSchema(ctx context.Context, conn *pgx.Conn) error {
	q := dbsqlc.New(conn)
	have, err := operate.ReadSchemaVersion(ctx, conn)
	switch {
	case db.IsCode(err, "42P01"): // there is no table of migrations
	case err != nil:
		in.SchemaErr = err
	}
	in.Schema = have
	if len(in.Roles) < len(OurRoles) || have == 0 {
		return nil
	}
	// the schema is older, or this login may not read it: then the rights say so
	if in.Floor, err = operate.ReadSchemaFloor(ctx, conn); db.IsCode(err, "42P01") || db.IsCode(err, "42501") {
		err = nil
	}
	if err != nil {
		return err
	}
	rows, err := q.InspectTables(ctx)
	for _, r := range rows {
		in.Tables = append(in.Tables, TableRights{
			Schema: r.Schema, Name: r.Name, View: r.IsView, Owner: r.Owner, Secured: r.Secured,
			WorkerReads: r.WorkerReads, WorkerAdds: r.WorkerAdds,
			AppReads: r.AppReads, AppWrites: r.AppWrites, AuditReads: r.AuditReads, Unvacuumed: r.Unvacuumed,
			Rows: r.Live, Dead: r.Dead, Bytes: r.Bytes,
		})
	}
	if err != nil {
		return err
	}
	in.BrokenIndex, err = q.InspectIndexes(ctx)
	return err
}

func (in *Inspection) readSessions(ctx context.Context, conn *pgx.Conn) (err error) {
	q := dbsqlc.New(conn)
	if in.Connections, err = q.InspectConnections(ctx); err != nil {
		return err
	}
	list, err := operate.ReadSessions(ctx, conn)
	if err != nil {
		return err
	}
	in.Replicas = operate.ReplicasOf(list)
	in.Transactions = operate.TransactionsOf(list, time.Minute)
	idle := slices.DeleteFunc(slices.Clone(list), func(s operate.Session) bool {
		return s.State != "idle in transaction" && s.State != "idle in transaction (aborted)" ||
			s.StateMs < (10*time.Second).Milliseconds()
	})
	in.IdleInTx = operate.TransactionsOf(idle, 0)
	for _, s := range list {
		if s.XminAge > manyDead && s.Pid != nil {
			in.Holders = append(in.Holders, XminHolder{
				Kind: "session", Name: fmt.Sprintf("%s, process %d", s.Application, *s.Pid), Age: s.XminAge,
			})
		}
	}
	return nil
}

func (in *Inspection) readHolders(ctx context.Context, conn *pgx.Conn) error {
	q := dbsqlc.New(conn)
	rows, err := q.InspectHolders(ctx)
	for _, r := range rows {
		if r.XminAge > manyDead {
			in.Holders = append(in.Holders, XminHolder{Kind: r.Kind, Name: r.Name, Age: r.XminAge})
		}
	}
	slices.SortStableFunc(in.Holders, func(a, b XminHolder) int { return int(b.Age - a.Age) })
	return err
}

func (in *Inspection) readArchiver(ctx context.Context, conn *pgx.Conn) error {
	q := dbsqlc.New(conn)
	r, err := q.InspectArchiver(ctx)
	in.Archiver = Archiver{
		Failing: r.Failing, Failures: r.Failures, WAL: r.Wal, Quiet: time.Duration(r.QuietMs) * time.Millisecond,
	}
	return err
}

// tryRoles sets each role of the server for a transaction, as the server's connections do.
func (in *Inspection) tryRoles(ctx context.Context, conn *pgx.Conn) {
	for _, role := range []string{db.RoleApp, db.RoleWorker} {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			return db.RoleError(dbsqlc.New(tx).InspectRole(ctx, role), conn, role)
		})
		if err != nil {
			in.CannotBe[role] = err
		}
	}
}

func (in *Inspection) readReplication(ctx context.Context, conn *pgx.Conn) (err error) {
	if in.Standing, err = operate.ReadStanding(ctx, conn); err != nil {
		return err
	}
	in.Replication, err = operate.ReadReplication(ctx, conn)
	return err
}

// tryPooler finds out whether a connection keeps its settings and receives notifications.
func (in *Inspection) tryPooler(ctx context.Context, conn *pgx.Conn, connect func() (*pgx.Conn, error)) error {
	role, take := db.RoleWorker, "SET ROLE a2a_worker"
	if in.CannotBe[role] != nil {
		role, take = in.Login, "SET ROLE NONE"
	}
	if _, err := conn.Exec(ctx, take); err != nil {
		return err
	}
	if in.Standing.Standby { // which sends no notifications
		return nil
	}
	if _, err := conn.Exec(ctx, "LISTEN a2ad_doctor"); err != nil { // the name of inspectChannel
		return err
	}
	other, err := connect()
	if err != nil {
		return err
	}
	defer other.Close(context.WithoutCancel(ctx))
	if err := dbsqlc.New(other).InspectNotify(ctx, inspectChannel); err != nil {
		return err
	}
	have, err := db.Backend(ctx, conn)
	if err != nil {
		return err
	}
	in.Pooler.LosesRole = have.Role != role
	wait, cancel := context.WithTimeout(ctx, wakePatience)
	defer cancel()
	_, err = conn.WaitForNotification(wait)
	in.Pooler.LosesWakes = errors.Is(err, context.DeadlineExceeded) || wait.Err() != nil && ctx.Err() == nil
	if in.Pooler.LosesWakes {
		return nil
	}
	return err
}
