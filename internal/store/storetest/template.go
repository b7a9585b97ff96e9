package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/migrations"
)

const (
	testPrefix     = "a2ad_test_"
	templatePrefix = "a2ad_tmpl_"

	// setUpLock is the advisory lock under which a process makes a template. All templates have the same lock, because
	// migrations also make roles, which belong to the whole server.
	setUpLock = 0x61326164_74657374
)

// templates remembers what this process has made or found, by server.
var templates = struct {
	sync.Mutex
	names map[server]string // guarded by the mutex
}{names: map[server]string{}}

// template returns the name of a database with the newest schema and without connections. Its name has a hash of the
// migrations, so that another branch on the same server has another template.
func (s server) template(ctx context.Context) (string, error) {
	templates.Lock()
	defer templates.Unlock()
	if name, ok := templates.names[s]; ok {
		return name, nil
	}
	name, err := templateName(migrations.FS)
	if err != nil {
		return "", err
	}
	if err := s.makeTemplate(ctx, name); err != nil {
		return "", err
	}
	templates.names[s] = name
	return name, nil
}

// makeTemplate migrates under another name and renames at the end, so that a partial template is never copied.
func (s server) makeTemplate(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // that releases the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(setUpLock)); err != nil {
		return fmt.Errorf("take set-up lock: %w", err)
	}
	var made bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&made)
	if err != nil || made {
		return err
	}
	if err := dropLeftovers(ctx, conn); err != nil {
		return err
	}
	fresh := name + "_new"
	for _, statement := range []string{
		"DROP DATABASE IF EXISTS " + quote(fresh) + " WITH (FORCE)", s.createDatabase(fresh, "template0"),
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if err := operate.MigrateUp(ctx, s.database(fresh)); err != nil {
		return err
	}
	// A backend that starts writes the cache of the catalogs that the migrations removed. Copies of the files have it.
	again, err := pgx.Connect(ctx, s.database(fresh))
	if err != nil {
		return err
	}
	again.Close(ctx)
	// A backend may take a moment to end, and would block the rename.
	if err := disconnect(ctx, conn, fresh); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+quote(fresh)+" RENAME TO "+quote(name))
	return err
}

// disconnect refuses new connections to the database and waits until the others have ended.
func disconnect(ctx context.Context, conn *pgx.Conn, name string) error {
	if _, err := conn.Exec(ctx, "ALTER DATABASE "+quote(name)+" ALLOW_CONNECTIONS false"); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1", name)
	return err
}

// dropLeftovers removes databases that killed test binaries left at least two hours ago, on a server that outlives
// them. It runs once per change of the migrations.
func dropLeftovers(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `
		SELECT d.datname
		  FROM pg_database AS d
		 WHERE d.datname ~ ('^' || $1 || '[0-9]+_[0-9a-f]+$')
		   AND to_timestamp(split_part(d.datname, '_', 3)::bigint) < clock_timestamp() - interval '2 hours'
		   AND NOT EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.datid = d.oid)`, testPrefix)
	if err != nil {
		return fmt.Errorf("list leftover databases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list leftover databases: %w", err)
	}
	var errs []error
	for _, name := range names {
		_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// createDatabase copies files if fsync is off: that takes half the time of writing them to the log.
func (s server) createDatabase(name, template string) string {
	statement := "CREATE DATABASE " + quote(name) + " TEMPLATE " + quote(template)
	if s.durable {
		return statement
	}
	return statement + " STRATEGY FILE_COPY"
}

func templateName(files fs.FS) (string, error) {
	names, err := fs.Glob(files, "*.sql") // sorted
	if err != nil {
		return "", fmt.Errorf("list migrations: %w", err)
	}
	sum := sha256.New()
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return "", fmt.Errorf("read migration: %w", err)
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(text))
		sum.Write(text)
	}
	return templatePrefix + hex.EncodeToString(sum.Sum(nil)[:8]), nil
}
