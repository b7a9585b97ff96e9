package doctor

import (
	"fmt"
	"slices"

	"github.com/a2ad/a2ad/internal/pgcheck"
	"github.com/a2ad/a2ad/internal/store/operate"
)

func checkSchema(in *pgcheck.Inspection, f *Findings) {
	const newer = "Run the a2ad that migrated, or a newer one."
	want := operate.SchemaVersion()
	switch {
	case in.SchemaErr != nil:
		f.fault("schema", grantRoles(in), "the version of the schema cannot be read: %s", in.SchemaErr)
	case in.Schema == 0:
		f.fault("schema", "a2ad migrate up", "there is no schema")
	case in.Schema < want:
		f.fault("schema", "a2ad migrate up", "the schema is at version %d and must be at %d", in.Schema, want)
	case in.Floor > want:
		f.fault("schema", newer, "the schema is at version %d and needs an a2ad of schema version %d or newer; "+
			"this one has version %d", in.Schema, in.Floor, want)
	case in.Schema > want:
		f.warn("schema", newer, "the schema is at version %d; this a2ad knows versions up to %d", in.Schema, want)
	default:
		f.ok("schema", "the schema is at version %d", in.Schema)
	}
	for _, name := range in.BrokenIndex {
		f.fault("schema", fmt.Sprintf("REINDEX INDEX CONCURRENTLY a2a.%s", name),
			"index %s is not usable: a migration was interrupted", name)
	}
}

func grantRoles(in *pgcheck.Inspection) string {
	return fmt.Sprintf("GRANT a2a_app, a2a_worker TO %q", in.Login)
}

func checkRoles(in *pgcheck.Inspection, f *Findings) {
	before := len(*f)
	have := map[string]pgcheck.Role{}
	for _, r := range in.Roles {
		have[r.Name] = r
	}
	for _, name := range pgcheck.OurRoles {
		if _, ok := have[name]; !ok {
			f.fault("roles", "a2ad migrate up, as a superuser; or, as one: CREATE ROLE "+name+" NOLOGIN",
				"the role %s is missing", name)
		}
	}
	if r := have["a2a_app"]; r.Super || r.BypassRLS {
		f.fault("roles", "ALTER ROLE a2a_app NOSUPERUSER NOBYPASSRLS",
			"row policies do not apply to a2a_app: only the queries keep callers apart")
	}
	for _, r := range in.Roles {
		if r.Super && r.Name != "a2a_app" {
			f.fault("roles", "ALTER ROLE "+r.Name+" NOSUPERUSER", "%s is a superuser", r.Name)
		}
	}
	for _, name := range []string{"a2a_app", "a2a_worker"} {
		if err := in.CannotBe[name]; err != nil && have[name].Name != "" {
			f.fault("roles", grantRoles(in), "%s cannot switch to the role %s", in.Login, name)
		}
	}
	if r, ok := have["a2a_worker"]; ok && !r.BypassRLS {
		f.note("roles", "ALTER ROLE a2a_worker BYPASSRLS",
			"a2a_worker has no BYPASSRLS: its policy gives it the same access, a little slower")
	}
	if in.Pooler.Lends {
		return // switching was not tried
	}
	f.okUnless(before, "roles", "the roles exist, and %s can switch to them", in.Login)
}

// appReads are the tables that serve callers.
var appReads = []string{
	"artifact_parts", "artifacts", "context_tasks", "idempotency_keys", "messages", "push_configs", "task_events",
	"tasks",
}

// migratorWrites are the tables that the server only reads.
var migratorWrites = []string{"schema_floor"}

func checkRights(in *pgcheck.Inspection, f *Findings) {
	if in.Tables == nil {
		return
	}
	before := len(*f)
	for _, t := range in.Tables {
		checkRightsOf(t, f)
	}
	f.okUnless(before, "rights", "owners, grants and row policies are in place")
}

func checkRightsOf(t pgcheck.TableRights, f *Findings) {
	name := t.Schema + "." + t.Name
	if t.Owner != "a2a_owner" {
		f.fault("rights", "ALTER TABLE "+name+" OWNER TO a2a_owner", "%s is owned by %s", name, t.Owner)
	}
	if !t.WorkerReads || !t.View && !t.WorkerAdds && !slices.Contains(migratorWrites, t.Name) {
		f.fault("rights",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON "+name+" TO a2a_worker (on audit_log only SELECT and INSERT)",
			"a2a_worker cannot use %s", name)
	}
	if t.AppWrites {
		f.fault("rights", "REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON "+name+" FROM a2a_app, PUBLIC",
			"a2a_app can write to %s", name)
	}
	if t.View {
		if !t.AuditReads {
			f.warn("rights", "GRANT SELECT ON "+name+" TO a2a_audit", "auditors cannot read %s", name)
		}
		return
	}
	if !t.Secured {
		f.fault("rights", "ALTER TABLE "+name+" ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
			"row security of %s is off", name)
	}
	if t.AuditReads {
		f.fault("rights", "REVOKE SELECT ON "+name+" FROM a2a_audit, PUBLIC",
			"auditors can read %s, and should only read the views", name)
	}
	if slices.Contains(appReads, t.Name) && !t.AppReads {
		f.fault("rights", "GRANT SELECT ON "+name+" TO a2a_app", "a2a_app cannot read %s: requests fail", name)
	}
}

func (d *Doctor) checkLogin(in *pgcheck.Inspection) {
	const fix = "CREATE ROLE a2ad LOGIN PASSWORD '…' IN ROLE a2a_app, a2a_worker, and use it in A2AD_DATABASE_URL; " +
		"migrate as the superuser."
	switch {
	case !in.Super:
	case !d.Config.DatabaseURL.IsSet():
		d.Findings.note("login", "", "the login %s is a superuser, as dev makes it", in.Login)
	default:
		d.Findings.warn("login", fix,
			"the login %s is a superuser: a stolen password gives access to everything", in.Login)
	}
}
