package operate_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// After an operator runs the statements of the error, the login can migrate. Roles belong to the whole server, so the
// test has one of its own.
func TestMigrateUpListsTheRightsThatTheLoginLacks(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Crash)
	srv := storetest.NewServer(t, nil)
	ctx := t.Context()
	run := func(database, sql string) {
		t.Helper()
		conn, err := pgx.Connect(ctx, srv.URL(database))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	as := func(login, database string) string {
		u, err := url.Parse(srv.URL(database))
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("user", login)
		u.RawQuery, u.User = q.Encode(), nil
		return u.String()
	}
	// They run one after the other: the first makes the roles that the second finds.
	for _, tt := range []struct{ name, setUp, fix string }{
		{"plain", "CREATE ROLE plain LOGIN; CREATE DATABASE plain;", `CREATE ROLE a2a_app NOLOGIN;
CREATE ROLE a2a_audit NOLOGIN;
CREATE ROLE a2a_owner NOLOGIN;
CREATE ROLE a2a_worker NOLOGIN;
GRANT a2a_app, a2a_audit, a2a_owner, a2a_worker TO "plain";
ALTER DATABASE "plain" OWNER TO "plain";
GRANT CREATE ON SCHEMA public TO "plain";`},
		{
			"owns-its-database",
			`CREATE ROLE "owns-its-database" LOGIN; CREATE DATABASE "owns-its-database" OWNER "owns-its-database";`,
			`GRANT a2a_app, a2a_owner, a2a_worker TO "owns-its-database";`,
		},
		{
			"makes-roles",
			`DROP DATABASE plain; DROP DATABASE "owns-its-database";
			DROP ROLE a2a_owner; DROP ROLE a2a_app; DROP ROLE a2a_worker; DROP ROLE a2a_audit;
			CREATE ROLE "makes-roles" LOGIN CREATEROLE; CREATE DATABASE "makes-roles" OWNER "makes-roles";`,
			"",
		},
	} {
		for statement := range strings.SplitSeq(tt.setUp, ";") {
			run("postgres", statement)
		}
		err := operate.MigrateUp(ctx, as(tt.name, tt.name))
		if tt.fix != "" {
			if err == nil {
				t.Fatalf("%s: MigrateUp without the rights = nil, want an error", tt.name)
			}
			_, fix, _ := strings.Cut(err.Error(), "\n\n")
			if fix = strings.ReplaceAll(strings.TrimSpace(fix), "\n  ", "\n"); fix != tt.fix {
				t.Errorf("%s: the error is\n%v\nwant\n%s", tt.name, err, tt.fix)
			}
			run(tt.name, fix)
			err = operate.MigrateUp(ctx, as(tt.name, tt.name))
		}
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if err := operate.MigrateUp(ctx, as(tt.name, tt.name)); err != nil {
			t.Errorf("%s: second MigrateUp: %v", tt.name, err)
		}
	}
}
