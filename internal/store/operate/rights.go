package operate

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate/dbsqlc"
)

// migrationRoles are the roles that the migrations create.
var migrationRoles = []string{"a2a_owner", db.RoleApp, db.RoleWorker, "a2a_audit"}

// checkRights checks, before the first migration, that the login has the rights that all migrations need. Otherwise the
// migration that creates the roles would fail, seven steps later, with PostgreSQL's error about one of them.
func checkRights(ctx context.Context, url string) error {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("parse database URL: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectPatience, db.ErrTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	r, err := dbsqlc.New(conn).MigrationRights(ctx, migrationRoles)
	if err != nil {
		return fmt.Errorf("read the rights of the login: %w", err)
	}
	fixes := missingRights(&r)
	if len(fixes) == 0 {
		return nil
	}
	return fmt.Errorf("the login %q lacks rights that the migrations need. "+
		"As an administrator of PostgreSQL, run this in the database %q, then repeat the command:\n\n  %s",
		r.Login, r.Database, strings.Join(fixes, "\n  "))
}

// missingRights returns the SQL that grants the rights that the login lacks.
func missingRights(r *dbsqlc.MigrationRightsRow) (fixes []string) {
	if r.Super || !r.Early {
		return nil
	}
	login, database := pgx.Identifier{r.Login}.Sanitize(), pgx.Identifier{r.Database}.Sanitize()
	join := r.Unjoined
	if !r.MakesRoles {
		for _, role := range r.Missing {
			fixes = append(fixes, "CREATE ROLE "+role+" NOLOGIN;")
		}
		join = append(join, r.Missing...)
	}
	if len(join) > 0 {
		fixes = append(fixes, "GRANT "+strings.Join(join, ", ")+" TO "+login+";")
	}
	switch {
	case !r.OwnerCreates:
		fixes = append(fixes, "ALTER DATABASE "+database+" OWNER TO "+login+";")
	case !r.Creates:
		fixes = append(fixes, "GRANT CREATE ON DATABASE "+database+" TO "+login+";")
	}
	if !r.CreatesInPublic {
		fixes = append(fixes, "GRANT CREATE ON SCHEMA public TO "+login+";")
	}
	return fixes
}
