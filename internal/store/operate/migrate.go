package operate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/migrations"
)

const (
	// versionTable is not goose's default name, which another program in the same database may use, and not in schema
	// a2a, which the first migration makes and its down drops. It names its schema, since under another search_path an
	// unqualified table would seem to be missing and every migration would run again.
	versionTable = "public.a2a_goose_version"

	// migrateLock is the advisory lock for migrations: "a2ad" in ASCII, then 1. A session of the migrated database
	// holds it.
	migrateLock = 0x61326164_00000001

	lockPollEvery = 100 * time.Millisecond

	connectPatience = 10 * time.Second
)

// Migration is one step of the schema.
type Migration struct {
	Version int64
	Name    string    // the file's name
	Applied time.Time // zero: not yet
}

// MigrateUp brings the schema of the database at url to SchemaVersion. Several processes may call it at once: one
// migrates, the others wait and find nothing left to do. A database that is newer than this binary is left alone. A
// login that lacks a right that the first steps need changes nothing; the error has the SQL that an administrator has
// to run.
//
// A step that needs a lock which another session holds is tried again until ctx is done; servers continue meanwhile.
// notice, if it is not nil, is told now and then which sessions it waits for.
func MigrateUp(ctx context.Context, url string, notice ...func(string)) error {
	if err := checkRights(ctx, url); err != nil {
		return fmt.Errorf("migrate up: %w", err)
	}
	return withProvider(ctx, url, notice, func(m *migrator, p *goose.Provider) error {
		return migrated("migrate up", m.repeat(ctx, func() error {
			_, err := p.Up(ctx)
			return err
		}))
	})
}

// MigrateDown rolls back the newest applied step, one step a call. What that step's tables hold is lost. It does
// nothing when no step is applied. It waits for locks as MigrateUp does.
func MigrateDown(ctx context.Context, url string, notice ...func(string)) error {
	return withProvider(ctx, url, notice, func(m *migrator, p *goose.Provider) error {
		err := m.repeat(ctx, func() error {
			_, err := p.Down(ctx)
			return err
		})
		if errors.Is(err, goose.ErrNoNextVersion) {
			return nil
		}
		return migrated("migrate down", err)
	})
}

// migrated explains an error. The usual mistake is the login of the servers, which may not migrate.
func migrated(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case db.IsCode(err, "42501"):
		return fmt.Errorf("%s: the login may not: take the one that owns the tables, when the roles are made "+
			"(docs/how-to/deploy.md#logins-and-roles): %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// MigrateStatus lists the steps that this binary knows, oldest first, and when each was applied to the database at url.
func MigrateStatus(ctx context.Context, url string) ([]Migration, error) {
	var all []Migration
	err := withProvider(ctx, url, nil, func(m *migrator, p *goose.Provider) error {
		m.setLockWait(false)
		states, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("read migration status: %w", err)
		}
		for _, s := range states {
			all = append(all, Migration{Version: s.Source.Version, Name: s.Source.Path, Applied: s.AppliedAt})
		}
		return nil
	})
	return all, err
}

// SchemaVersion is the newest step in this binary, the one its queries are written for.
func SchemaVersion() int64 {
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil || len(names) == 0 {
		panic("store: no migrations are embedded") // impossible: without a file the embed directive does not compile
	}
	newest := int64(0)
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			panic("store: migration without a number: " + name)
		}
		newest = max(newest, version)
	}
	return newest
}

// withProvider opens url as the pool does, so that a URL with pool settings works here too, and closes it again.
func withProvider(
	ctx context.Context, url string, notice []func(string), do func(*migrator, *goose.Provider) error,
) error {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("parse database URL: %w", err)
	}
	// The lock belongs to a session, so all statements must use one connection.
	if err := db.RefuseLender(ctx, url, "a2ad-migrate", connectPatience); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if _, named := cfg.ConnConfig.RuntimeParams["application_name"]; !named {
		cfg.ConnConfig.RuntimeParams["application_name"] = "a2ad-migrate"
	}
	m := &migrator{cfg: cfg.ConnConfig}
	if len(notice) > 0 {
		m.notice = notice[0]
	}
	pg := m.open()
	defer pg.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, pg, migrations.FS,
		goose.WithTableName(versionTable),
		goose.WithSessionLocker(sessionLock{}),
		goose.WithDisableGlobalRegistry(true),
	)
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	return do(m, p)
}

// sessionLock lets one process migrate at a time. It polls instead of waiting inside PostgreSQL, because a waiting
// statement holds a snapshot, and CREATE INDEX CONCURRENTLY waits for snapshots: the two would wait for each other.
// goose's own lock does the same, but polls at most once a second, which would delay every replica that starts.
type sessionLock struct{}

// SessionLock acquires the lock, or returns ctx's cause. It then drops unusable indexes of an earlier try.
func (sessionLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	tick := time.NewTicker(lockPollEvery)
	defer tick.Stop()
	for {
		var locked bool
		row := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", int64(migrateLock))
		if err := row.Scan(&locked); err != nil {
			return fmt.Errorf("take migration lock: %w", err)
		}
		if locked {
			return conn.Raw(func(driver any) error {
				return dropInvalid(ctx, driver.(*migrateConn).Conn.Conn())
			}) //nolint:forcetypeassert // see migrateConnector
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for migration lock: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// SessionUnlock releases the lock.
func (sessionLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	var unlocked bool
	row := conn.QueryRowContext(ctx, "SELECT pg_advisory_unlock($1)", int64(migrateLock))
	if err := row.Scan(&unlocked); err != nil {
		return fmt.Errorf("release migration lock: %w", err)
	}
	if !unlocked {
		return errors.New("release migration lock: it was not held")
	}
	return nil
}
