package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/db"
)

// service is what is checked.
type service struct {
	url      string
	database string // that was created for the checks; empty: none yet
}

// checks are in the order in which they run. need says what a2ad does with the feature.
var checks = []struct {
	name, need string
	first      bool // the checks after it depend on it
	run        func(*service, context.Context) (string, error)
}{
	{"version", "a2ad is written for PostgreSQL 15 and newer", true, (*service).version},
	{"session", "a connection must keep its server process, with its role and settings: use the address of " +
		"PostgreSQL itself, or a pool in session mode", true, (*service).session},
	{"notify", "servers wake each other with LISTEN and NOTIFY; without them every step waits for a poll", false,
		(*service).notify},
	{"databases", "the tests create databases; a2ad itself needs one", true, (*service).databases},
	{"skip locked", "workers claim tasks with FOR UPDATE SKIP LOCKED", false, (*service).skipLocked},
	{"isolation", "statements that waited for a lock must see the new version of the row (READ COMMITTED)", false,
		(*service).isolation},
	{"locks", "advisory locks let one server at a time migrate, rescue and clean up", false, (*service).advisoryLocks},
	{"clock", "leases compare clock_timestamp(), which must advance inside a transaction", false, (*service).clock},
	{"durability", "an acknowledged task must survive a crash of the service", false, (*service).durability},
	{"schema", "the migrations create roles, row policies, functions, triggers and indexes", true, (*service).schema},
	{"roles", "each request reads as a role that sees the rows of one caller", false, (*service).roles},
	{"connections", "a server needs A2AD_DB_POOL + 4 connections, and the tests about 60", false,
		(*service).connections},
}

func (s *service) connect(ctx context.Context) (*pgx.Conn, error) {
	if s.database == "" {
		return pgx.Connect(ctx, s.url)
	}
	return pgx.Connect(ctx, s.at(s.database))
}

// at returns the URL of another database of the service.
func (s *service) at(database string) string {
	u, err := url.Parse(s.url)
	if err != nil {
		return s.url // connecting to it fails with the reason
	}
	u.Path = "/" + database
	return u.String()
}

// with gives n connections to f.
func (s *service) with(ctx context.Context, n int, f func(c []*pgx.Conn) error) error {
	var list []*pgx.Conn
	for range n {
		c, err := s.connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		list = append(list, c)
	}
	return f(list)
}

func (s *service) version(ctx context.Context) (said string, err error) {
	// A pooler that shares connections loses prepared statements. This check must not fail for that.
	cfg, err := db.PlainConfig(s.url, "a2ad-pgfit", checkLimit)
	if err != nil {
		return "", err
	}
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer c.Close(context.WithoutCancel(ctx))
	var number int
	if err := c.QueryRow(ctx, `SELECT version(), current_setting('server_version_num')::int`).Scan(&said,
		&number); err != nil {
		return "", err
	}
	if number < 150000 || !strings.HasPrefix(said, "PostgreSQL ") {
		return "", fmt.Errorf("this is %s", said)
	}
	return said, nil
}

func (s *service) session(ctx context.Context) (string, error) {
	if err := db.RefuseLender(ctx, s.url, "a2ad-pgfit", 10*time.Second); err != nil {
		return "", err
	}
	return "a connection keeps its server process", nil
}

func (s *service) notify(ctx context.Context) (said string, err error) {
	const limit = 10 * time.Second
	err = s.with(ctx, 2, func(c []*pgx.Conn) error {
		if _, err := c[0].Exec(ctx, `LISTEN a2ad_pgfit`); err != nil {
			return err
		}
		start := time.Now()
		if _, err := c[1].Exec(ctx, `SELECT pg_notify('a2ad_pgfit', 'key')`); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		n, err := c[0].WaitForNotification(wait)
		if wait.Err() != nil {
			return fmt.Errorf("a notification did not arrive within %s", limit)
		}
		if err == nil && n.Payload != "key" {
			err = fmt.Errorf("a notification arrived with %q", n.Payload)
		}
		said = fmt.Sprintf("a notification arrived after %s", time.Since(start).Round(time.Millisecond))
		return err
	})
	return said, err
}

// scratch gives n connections and a table with the rows 1 and 2 to f.
func (s *service) scratch(ctx context.Context, n int, f func(c []*pgx.Conn, table string) error) error {
	return s.with(ctx, n, func(c []*pgx.Conn) error {
		table := fmt.Sprintf("a2ad_pgfit_%d", time.Now().UnixNano())
		if _, err := c[0].Exec(ctx, "CREATE TABLE "+table+
			" AS SELECT g AS id, 0 AS n FROM generate_series(1, 2) g"); err != nil {
			return err
		}
		err := f(c, table)
		// Locks of the other connections end with them.
		for _, other := range c[1:] {
			other.Close(context.WithoutCancel(ctx))
		}
		_, dropErr := c[0].Exec(context.WithoutCancel(ctx), "DROP TABLE "+table)
		return errors.Join(err, dropErr)
	})
}

func (s *service) skipLocked(ctx context.Context) (string, error) {
	err := s.scratch(ctx, 2, func(c []*pgx.Conn, table string) error {
		claim := "SELECT id FROM " + table + " ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
		return inTransactions(ctx, c, func() error {
			for i := range c {
				var id int
				if err := c[i].QueryRow(ctx, claim).Scan(&id); err != nil {
					return err
				}
				if id != i+1 {
					return fmt.Errorf("claim %d got row %d", i+1, id)
				}
			}
			return nil
		})
	})
	return "the second of two claims gets the next row, without waiting", err
}

// inTransactions calls f while each connection is in a transaction, and rolls them back.
func inTransactions(ctx context.Context, c []*pgx.Conn, f func() error) error {
	for _, conn := range c {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // f has the result
	}
	return f()
}

func (s *service) isolation(ctx context.Context) (level string, err error) {
	err = s.scratch(ctx, 3, func(c []*pgx.Conn, table string) error {
		if err := c[0].QueryRow(ctx, `SHOW transaction_isolation`).Scan(&level); err != nil {
			return err
		}
		tx, err := c[1].Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it is committed below
		if _, err := tx.Exec(ctx, "UPDATE "+table+" SET n = n + 1 WHERE id = 1"); err != nil {
			return err
		}
		var pid int32
		if err := c[2].QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil { // a pooler tells another one
			return err
		}
		waited := make(chan error, 1)
		var n int
		go func() {
			waited <- c[2].QueryRow(ctx, "UPDATE "+table+" SET n = n + 10 WHERE id = 1 RETURNING n").Scan(&n)
		}()
		err = errors.Join(awaitBlocked(ctx, c[0], pid), tx.Commit(ctx), <-waited)
		if err == nil && n != 11 {
			err = fmt.Errorf("two updates of 1 and 10 gave %d", n)
		}
		return err
	})
	if err == nil && level != "read committed" {
		err = fmt.Errorf("transactions are %s by default", level)
	}
	return "read committed; after a lock, a statement sees the new version", err
}

// awaitBlocked returns when a backend waits for a lock.
func awaitBlocked(ctx context.Context, c *pgx.Conn, pid int32) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var blocked bool
		err := c.QueryRow(ctx, `SELECT cardinality(pg_blocking_pids($1)) > 0`, pid).Scan(&blocked)
		if err != nil || blocked {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("an update of a locked row did not wait")
		}
	}
}

func (s *service) advisoryLocks(ctx context.Context) (string, error) {
	err := s.with(ctx, 2, func(c []*pgx.Conn) error {
		key := time.Now().UnixNano()
		try := func(conn *pgx.Conn, function string) (got bool, err error) {
			err = conn.QueryRow(ctx, "SELECT "+function+"($1)", key).Scan(&got)
			return got, err
		}
		if got, err := try(c[0], "pg_try_advisory_lock"); err != nil || !got {
			return fmt.Errorf("a free lock was not given: %w", err)
		}
		for _, function := range []string{"pg_try_advisory_lock", "pg_try_advisory_xact_lock"} {
			if got, err := try(c[1], function); err != nil {
				return err
			} else if got {
				return errors.New("two sessions got the same lock: the lock functions do nothing")
			}
		}
		if err := c[0].Close(ctx); err != nil {
			return err
		}
		_, err := c[1].Exec(ctx, "SELECT pg_advisory_lock($1)", key) // it is free once the session has ended
		return err
	})
	return "one session at a time has a lock, which ends with it", err
}

func (s *service) clock(ctx context.Context) (string, error) {
	err := s.with(ctx, 1, func(c []*pgx.Conn) error {
		return inTransactions(ctx, c, func() error {
			var fixed, advanced bool
			var first time.Time
			if err := c[0].QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&first); err != nil {
				return err
			}
			err := c[0].QueryRow(ctx, `SELECT now() <= $1, clock_timestamp() > $1 AND statement_timestamp() > now()
				FROM pg_sleep(0.01)`, first).Scan(&fixed, &advanced)
			if err == nil && !(fixed && advanced) {
				err = errors.New("clock_timestamp() does not advance inside a transaction, or now() does")
			}
			return err
		})
	})
	return "clock_timestamp() advances inside a transaction, and now() does not", err
}
