// Package devpg finds the PostgreSQL that is installed on this machine and runs a server of its own from it, for a2ad dev and
// for tests. The server is a child of this process, listens on a Unix socket only that user may reach, and ends with this process,
// even one that is killed. Nothing is ever downloaded. The package knows nothing of a2ad's schema.
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

	// startLimit leaves room for crash recovery, retryLimit for the orphaned backends of a killed server to notice.
	startLimit = 60 * time.Second
	retryLimit = 10 * time.Second
	stopLimit  = 30 * time.Second
	quitLimit  = 10 * time.Second

	// pollEvery is how often files that PostgreSQL writes are looked at, where there is no event to wait for.
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

// Config says where a server lives and what it is for. Only Dir is required.
type Config struct {
	// Dir holds the cluster (below it: data, postgres.log, lock). It is made when missing, and kept. As root it is given to
	// the user that runs the server; when that user cannot enter it, a directory in /var/tmp takes its place (see Server.Dir).
	Dir string
	// BinDir is where initdb and postgres are; empty means what FindBinaries finds.
	BinDir string
	// Throwaway trades safety for speed: fsync and full_page_writes are off, what Dir held before is discarded at the
	// start, and everything is removed by Stop. Not for a cluster that a test crashes or that figures are taken from.
	Throwaway bool
	// Params are server settings beside or instead of the usual ones.
	Params map[string]string
	// Logger is told what a person should know; nil means slog.Default.
	Logger *slog.Logger
}

// params are the settings of the command line, the caller's last.
func (c Config) params(sockets string) map[string]string {
	all := map[string]string{
		"listen_addresses":        "",
		"unix_socket_directories": sockets,
		"port":                    "5432",
		"max_connections":         "200",
		"shared_buffers":          "128MB",
		// Queue tables live by vacuum: at the default of a minute their dead rows slow every claim down.
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

// Locate returns the URL of a database on the server that another process runs with Config.Dir dir, or an error that wraps
// ErrNotRunning. It starts nothing.
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

// Exists reports whether there is a cluster with Config.Dir dir, whether it runs or not.
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

// EnsureDatabase makes the database when it is missing and returns its URL. Several callers at once are fine.
func (s *Server) EnsureDatabase(ctx context.Context, name string) (string, error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", fmt.Errorf("connect to create database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42P04" || pgErr.Code == "23505") {
		err = nil // duplicate_database, or unique_violation when two create it at the same moment
	}
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return s.URL(name), nil
}

// lockDir keeps a second process from stopping the server of the first. The kernel drops the lock when we die.
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

// logTail returns the end of what the server wrote from offset on, which is where it says why it did not start.
func logTail(path string, offset int64) string {
	text, err := os.ReadFile(path)
	if err != nil || int64(len(text)) < offset {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text[offset:])), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
