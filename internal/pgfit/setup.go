package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
)

func (s *service) durability(ctx context.Context) (string, error) {
	err := s.with(ctx, 1, func(c []*pgx.Conn) error {
		var off []string
		for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
			var value string
			if err := c[0].QueryRow(ctx, "SHOW "+name).Scan(&value); err != nil {
				return err
			}
			// Some services store pages so that none can be torn, and turn full_page_writes off.
			if value == "off" && name != "full_page_writes" {
				off = append(off, name)
			}
		}
		if len(off) > 0 {
			return fmt.Errorf("%s is off", strings.Join(off, " and "))
		}
		return nil
	})
	return "fsync and synchronous_commit are not off", err
}

// databases creates the database that the checks after it use.
func (s *service) databases(ctx context.Context) (string, error) {
	name := fmt.Sprintf("a2ad_pgfit_%d", time.Now().UnixNano())
	if err := s.with(ctx, 1, func(c []*pgx.Conn) error {
		_, err := c[0].Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0")
		return err
	}); err != nil {
		return "", err
	}
	s.database = name
	if err := s.with(ctx, 1, func([]*pgx.Conn) error { return nil }); err != nil {
		return "", fmt.Errorf("connect to a new database: %w", err)
	}
	return "the login may create databases, and connect to them", nil
}

func (s *service) dropDatabase(ctx context.Context, w io.Writer) {
	if s.database == "" {
		return
	}
	name := s.database
	s.database = ""
	if err := s.with(ctx, 1, func(c []*pgx.Conn) error {
		return drop(ctx, c[0], name)
	}); err != nil {
		fmt.Fprintf(w, "The database %s is left: %v\n", name, err)
	}
}

// drop drops a database. A pool keeps connections to it, which FORCE ends. FORCE is refused to a login that is no
// superuser while an autovacuum worker is there; without FORCE, that worker is asked to stop.
func drop(ctx context.Context, c *pgx.Conn, name string) error {
	_, err := c.Exec(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	if db.IsCode(err, "42501") {
		_, err = c.Exec(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize())
	}
	return err
}

// testDatabases lists the databases that tests create. A run of tests leaves its template for the next run.
func (s *service) testDatabases(ctx context.Context) (list []string, err error) {
	err = s.with(ctx, 1, func(c []*pgx.Conn) error {
		rows, err := c[0].Query(ctx, `SELECT datname::text FROM pg_database
			WHERE datname LIKE 'a2ad\_tmpl\_%' OR datname LIKE 'a2ad\_test\_%'`)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return list, err
}

// dropTestDatabases drops those that were not there before.
func (s *service) dropTestDatabases(ctx context.Context, before []string, w io.Writer) {
	now, err := s.testDatabases(ctx)
	if err == nil {
		err = s.with(ctx, 1, func(c []*pgx.Conn) (err error) {
			for _, name := range now {
				if !slices.Contains(before, name) {
					err = errors.Join(err, drop(ctx, c[0], name))
				}
			}
			return err
		})
	}
	if err != nil {
		fmt.Fprintf(w, "Databases of the tests are left: %v\n", db.Redact(err))
	}
}

func (s *service) schema(ctx context.Context) (string, error) {
	start := time.Now()
	err := operate.MigrateUp(ctx, s.at(s.database))
	return fmt.Sprintf("all migrations, in %s", time.Since(start).Round(time.Millisecond)), err
}

func (s *service) roles(ctx context.Context) (string, error) {
	err := s.with(ctx, 1, func(c []*pgx.Conn) error {
		return inTransactions(ctx, c, func() error {
			if _, err := c[0].Exec(ctx, `INSERT INTO a2a.idempotency_keys (tenant, owner, key, digest, task_id)
				VALUES ('t', 'o', 'k', '', gen_random_uuid())`); err != nil {
				// A login that is no superuser writes as the role of servers.
				return fmt.Errorf("write as the login: %w", err)
			}
			if _, err := c[0].Exec(ctx, `SET LOCAL ROLE a2a_app`); err != nil {
				return err
			}
			var seen int
			err := c[0].QueryRow(ctx, `SELECT count(*) FROM a2a.idempotency_keys`).Scan(&seen)
			if err == nil && seen != 0 {
				err = errors.New("a request without a caller sees rows: row policies do not apply")
			}
			return err
		})
	})
	return "the login can switch to the roles of requests, and row policies apply", err
}

func (s *service) connections(ctx context.Context) (string, error) {
	const atLeast = 60
	var most int
	err := s.with(ctx, 1, func(c []*pgx.Conn) error {
		return c[0].QueryRow(ctx, `SELECT current_setting('max_connections')::int`).Scan(&most)
	})
	if err == nil && most < atLeast {
		err = fmt.Errorf("max_connections is %d", most)
	}
	return fmt.Sprintf("max_connections is %d", most), err
}
