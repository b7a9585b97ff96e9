//go:build unix

// Package devpg finds the PostgreSQL installed on this machine and runs a private server from it, for a2ad dev and
// for tests. The server is a child of this process and listens on a Unix socket that only its user can reach. It ends
// with this process, even if this process is killed. Nothing is ever downloaded. The package knows nothing of a2ad's
// schema.
package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	superuser = "a2ad"

	// startLimit allows for crash recovery. retryLimit is the time that orphaned backends of a killed server have to
	// end.
	startLimit = 60 * time.Second
	retryLimit = 10 * time.Second
	stopLimit  = 30 * time.Second
	quitLimit  = 10 * time.Second

	// pollEvery is the interval at which files that PostgreSQL writes are read, where there is no event to wait for.
	pollEvery = 10 * time.Millisecond
)

var (
	// ErrInUse means that another process runs the server of the directory.
	ErrInUse = errors.New("data directory is in use by another process")
	// ErrNotRunning means that no server runs for the directory.
	ErrNotRunning = errors.New("no PostgreSQL runs for the data directory")

	errStartTimeout = errors.New("postgres was not ready in time")
	errStopTimeout  = errors.New("postgres did not stop in time")
)

// Config describes a server. Only Dir is required.
type Config struct {
	// Dir holds the cluster (data, postgres.log and lock). It is created if it is missing, and kept. When this
	// process runs as root, Dir is given to the user that runs the server. If that user cannot enter it, a directory
	// in /var/tmp is used instead (see Server.Dir).
	Dir string
	// BinDir is the directory of initdb and postgres; empty means that FindBinaries searches for it.
	BinDir string
	// Throwaway trades safety for speed. fsync and full_page_writes are off, Start discards what Dir held, and Stop
	// removes everything. It is unfit for a cluster that a test crashes or a benchmark measures.
	Throwaway bool
	// Params are server settings added to the usual ones; they win over them.
	Params map[string]string
	// Logger receives what a person should know; nil means slog.Default.
	Logger *slog.Logger
}

// params returns the settings for the command line. Those of Config.Params win.
func (c Config) params(sockets string) map[string]string {
	all := map[string]string{
		"listen_addresses":        "",
		"unix_socket_directories": sockets,
		"port":                    "5432",
		"max_connections":         "200",
		"shared_buffers":          "128MB",
		// Queue tables depend on vacuum: at the default of one minute, dead rows slow down every claim.
		"autovacuum_naptime": "5s",
		"logging_collector":  "off",
	}
	if c.Throwaway {
		all["fsync"] = "off"
		all["full_page_writes"] = "off"
	}
	for name, value := range c.Params {
		all[name] = value
	}
	return all
}

func (c Config) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.Default()
	}
	return c.Logger
}

// Locate returns the URL of a database on the server that another process runs in dir. If no server runs there, the
// error wraps ErrNotRunning. It starts nothing.
func Locate(dir, database string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolve data directory: %w", err)
	}
	for _, dir := range []string{dir, fallbackDir(dir)} {
		data := filepath.Join(dir, "data")
		f, err := readPidFile(data)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if f.ready && postmasterOf(f.pid, data) {
			return socketURL(f.sockets, f.port, database), nil
		}
	}
	return "", fmt.Errorf("%w: %s", ErrNotRunning, dir)
}

// Exists reports whether dir holds a cluster, running or not.
func Exists(dir string) bool {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	for _, dir := range []string{dir, fallbackDir(dir)} {
		if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
			return true
		}
	}
	return false
}

func socketURL(sockets, port, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(superuser),
		Path:     "/" + database,
		RawQuery: url.Values{"host": {sockets}, "port": {port}}.Encode(),
	}
	return u.String()
}

// EnsureDatabase creates the database if it is missing and returns its URL. Concurrent calls are safe.
func (s *Server) EnsureDatabase(ctx context.Context, name string) (string, error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", fmt.Errorf("connect to create database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42P04" || pgErr.Code == "23505") {
		err = nil // duplicate_database, or unique_violation when two sessions create it at the same time
	}
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.URL(name), nil
}

// lockDir keeps a second process from stopping the server of the first. The kernel releases the lock when this
// process ends.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	lock.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, dir)
	}
	return nil, fmt.Errorf("lock %s: %w", dir, err)
}

// logTail returns the last lines that the server wrote after offset. They say why it did not start.
func logTail(path string, offset int64) string {
	text, err := os.ReadFile(path)
	if err != nil || int64(len(text)) < offset {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text[offset:])), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
