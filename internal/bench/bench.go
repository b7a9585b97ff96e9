package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// bench holds what all experiments use.
type bench struct {
	opts   options
	log    *slog.Logger
	pg     *devpg.Server
	pgDir  string
	dir    string // binaries, agent files and logs
	root   string // root directory of the module
	a2ad   string // path of the server's binary, once it is built
	report *report
	count  int // number of databases created
}

// settings fit PostgreSQL to a small machine. None of them weakens durability.
var settings = map[string]string{
	"shared_buffers":   "512MB",
	"max_wal_size":     "4GB",
	"min_wal_size":     "2GB",
	"fsync":            "on",
	"full_page_writes": "on",
}

const template = "a2ad_bench"

// open starts PostgreSQL and creates the template database of the experiments.
func open(ctx context.Context, o options) (_ *bench, err error) {
	b := &bench{opts: o, log: newLogger()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.root, err = moduleRoot(ctx); err != nil {
		return nil, err
	}
	// /tmp may be in memory, where there is no flush to measure; /var/tmp is on a disk.
	b.pgDir = o.data
	for _, d := range []*string{&b.dir, &b.pgDir} {
		if *d != "" {
			continue
		}
		if *d, err = os.MkdirTemp("/var/tmp", "a2ad-bench-"); err != nil {
			return nil, err
		}
	}
	params := maps.Clone(settings)
	maps.Copy(params, o.params)
	if o.sql {
		params["shared_preload_libraries"] = "pg_stat_statements"
		params["pg_stat_statements.track_planning"] = "on"
	}
	if b.pg, err = devpg.Start(ctx, devpg.Config{Dir: b.pgDir, Params: params, Logger: b.log}); err != nil {
		return nil, err
	}
	url, err := b.pg.EnsureDatabase(ctx, template)
	if err != nil {
		return nil, err
	}
	if err := operate.MigrateUp(ctx, url); err != nil {
		return nil, err
	}
	if o.sql {
		if err := b.exec(ctx, url, "CREATE EXTENSION pg_stat_statements"); err != nil {
			return nil, err
		}
	}
	if err := b.ageWAL(ctx); err != nil {
		return nil, fmt.Errorf("age the log: %w", err)
	}
	b.report = &report{Quick: o.quick}
	if b.report.Machine, err = b.machine(ctx); err != nil {
		return nil, err
	}
	return b, b.measureSpeed(ctx)
}

// ageWAL gives a new cluster recycled segments of the write-ahead log, as it has after an hour of work. Otherwise
// commits would pay for the creation of 16 MB files.
func (b *bench) ageWAL(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, b.pg.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for range b.number(128, 40) {
		if _, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()"); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "CHECKPOINT")
	return err
}

const stopLimit = 30 * time.Second

func (b *bench) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	var errs []error
	if b.pg != nil {
		errs = append(errs, b.pg.Stop(ctx), b.keepLog())
	}
	for _, d := range []string{b.pgDir, b.dir} {
		if d != "" && d != b.opts.data {
			errs = append(errs, os.RemoveAll(d))
		}
	}
	return errors.Join(errs...)
}

// keepLog copies PostgreSQL's log to the file named by -pglog.
func (b *bench) keepLog() error {
	if b.opts.pglog == "" {
		return nil
	}
	text, err := os.ReadFile(b.pg.LogFile())
	if err != nil {
		return err
	}
	return os.WriteFile(b.opts.pglog, text, 0o644)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("run it inside the repository")
	}
	return filepath.Dir(mod), nil
}

// database creates a database and returns its URL and a function that drops it.
func (b *bench) database(ctx context.Context) (url string, drop func(), err error) {
	b.count++
	name := fmt.Sprintf("bench_%d", b.count)
	if err := b.admin(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		return "", nil, err
	}
	drop = func() {
		b.showStatements(ctx, name)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		if err := b.admin(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			b.log.Warn("drop database", "err", err)
		}
	}
	return b.pg.URL(name), drop, nil
}

// showStatements logs the statements that took most time. Their times include waits.
func (b *bench) showStatements(ctx context.Context, database string) {
	if !b.opts.sql {
		return
	}
	conn, err := pgx.Connect(ctx, b.pg.URL(database))
	if err != nil {
		b.log.Warn("statements", "err", err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	//nolint:rowserrcheck // ForEachRow returns it
	rows, err := conn.Query(ctx, `SELECT s.calls, s.plans, s.rows, s.total_exec_time, s.total_plan_time,
		s.wal_bytes::bigint,
			coalesce(substring(s.query from 'name: (\w+)'), left(regexp_replace(s.query, '\s+', ' ', 'g'), 40))
		FROM pg_stat_statements s WHERE s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		ORDER BY s.total_exec_time + s.total_plan_time DESC LIMIT 14`)
	if err != nil {
		b.log.Warn("statements", "err", err)
		return
	}
	var calls, plans, n, wal int64
	var total, planning float64
	var name string
	fmt.Fprintf(os.Stderr, "%9s %9s %9s %10s %9s %9s %9s  %s\n", "calls", "plans", "rows", "run ms", "plan ms",
		"µs/call", "WAL/call", "statement")
	if _, err := pgx.ForEachRow(rows, []any{&calls, &plans, &n, &total, &planning, &wal, &name}, func() error {
		fmt.Fprintf(os.Stderr, "%9d %9d %9d %10.0f %9.0f %9.0f %9d  %s\n", calls, plans, n, total, planning,
			(total+planning)/float64(calls)*1000, wal/max(calls, 1), name)
		return nil
	}); err != nil {
		b.log.Warn("statements", "err", err)
	}
	//nolint:rowserrcheck // ForEachRow returns it
	rows, err = conn.Query(ctx, `SELECT i.idx_scan, i.idx_tup_read, i.idx_tup_fetch, i.indexrelname
		FROM pg_stat_user_indexes i
		WHERE i.schemaname = 'a2a' AND i.idx_scan > 0 ORDER BY i.idx_tup_read DESC LIMIT 12`)
	if err != nil {
		b.log.Warn("indexes", "err", err)
		return
	}
	var fetched int64
	fmt.Fprintf(os.Stderr, "%9s %9s %9s  %s\n", "scans", "entries", "rows", "index")
	if _, err := pgx.ForEachRow(rows, []any{&calls, &n, &fetched, &name}, func() error {
		fmt.Fprintf(os.Stderr, "%9d %9d %9d  %s\n", calls, n, fetched, name)
		return nil
	}); err != nil {
		b.log.Warn("indexes", "err", err)
	}
}

func (b *bench) admin(ctx context.Context, statement string) error {
	return b.exec(ctx, b.pg.URL("postgres"), statement)
}

// exec runs one statement on a new connection.
func (b *bench) exec(ctx context.Context, url, statement string, args ...any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, statement, args...)
	return err
}

// queryInt runs a query that returns one number.
func (b *bench) queryInt(ctx context.Context, url, query string, args ...any) (n int64, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}

// store opens a store on a database, as a separate replica.
func (b *bench) store(ctx context.Context, url string) (*store.Store, error) {
	return store.Open(ctx, store.Config{Config: db.Config{URL: url, Replica: "bench"}})
}

// withParams adds run-time parameters for every connection that uses the URL.
func withParams(base string, params map[string]string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	q := u.Query()
	for k, v := range params {
		q.Set(k, v)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// span returns the duration of a measurement: full, or quick with -quick.
func (b *bench) span(full, quick time.Duration) time.Duration {
	if b.opts.quick {
		return quick
	}
	return full
}

func (b *bench) number(full, quick int) int {
	if b.opts.quick {
		return quick
	}
	return full
}

// pause waits: measuring a server at rest takes time.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
