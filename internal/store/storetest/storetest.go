// Package storetest gives each test a migrated database of its own, and a store on it (Open), on a server that all
// packages of a go test run share. The server is A2AD_TEST_DATABASE_URL, else a container if a Docker daemon answers,
// else the PostgreSQL installed on this machine. Without any of these the test fails; it is never skipped. A package
// whose tests use storetest calls Main from TestMain. storetest imports the packages of the store, so tests that use it
// are in external test packages (store_test).
package storetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/leaktest"
	"github.com/a2ad/a2ad/internal/store/operate"
)

const (
	// Guards against hanging, not measures. A test may have to pull an image before it gets its database.
	setUpLimit = 10 * time.Minute
	dropLimit  = 10 * time.Minute

	// poolSize lets a test use several connections at once without waiting for itself.
	poolSize = 16
)

// DB is a database that one test has for itself.
type DB struct {
	// URL is the database's address, as pgx takes it. The user may do anything.
	URL string
}

// Main runs the tests of a package that uses New, and then each end, in order. It fails if the tests leave goroutines
// running. Call it from TestMain; it does not return.
func Main(m *testing.M, ends ...func()) {
	if dir := os.Getenv(supervisorEnv); dir != "" {
		os.Exit(supervise(dir))
	}
	mainCalled = true
	leaktest.Main(m, append(ends, closeIdle)...)
}

// mainCalled is written before the tests start, and only read after that.
var mainCalled bool

// New returns a new database with the newest schema. It is dropped when the test ends, even if there are connections.
// New may be called from parallel tests, and several times in one.
func New(t testing.TB) *DB {
	t.Helper()
	ctx := setUpContext(t)
	srv := shared(t)
	template, err := srv.template(ctx)
	if err != nil {
		t.Fatalf("make the template database: %v", err)
	}
	return srv.create(t, template)
}

// NewEmpty is New without the schema, for tests of migrations.
func NewEmpty(t testing.TB) *DB {
	t.Helper()
	return shared(t).create(t, "template0")
}

// Pool returns a pool of connections to the database, closed when the test ends.
func (db *DB) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatalf("parse database URL: %v", err)
	}
	cfg.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("open pool: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// NewServer starts a PostgreSQL for one test, which may crash, stop or restart it. fsync is on, and params are added to
// the usual settings. It always runs the installed programs, and ends with the test.
func NewServer(t testing.TB, params map[string]string) *devpg.Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "a2ad-server-")
	if err != nil {
		t.Fatalf("make server directory: %v", err)
	}
	removeAfter(t, dir)
	// If the tests run as root, another user runs PostgreSQL and must be able to enter. It cannot enter t.TempDir.
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatalf("open server directory: %v", err)
	}
	srv, err := devpg.Start(setUpContext(t), devpg.Config{
		Dir:    filepath.Join(dir, "pg"),
		BinDir: os.Getenv("A2AD_PG_BINDIR"),
		Params: params,
	})
	if err != nil {
		t.Fatalf("start a PostgreSQL for this test: %v", err)
	}
	removeAfter(t, srv.Dir())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dropLimit)
		defer cancel()
		if err := srv.Stop(ctx); err != nil {
			t.Errorf("stop the PostgreSQL of this test: %v", err)
		}
	})
	return srv
}

// NewOn makes a database with the newest schema on a server from NewServer. It ends with the server.
func NewOn(t testing.TB, srv *devpg.Server) *DB {
	t.Helper()
	ctx := setUpContext(t)
	name := databaseName()
	u, err := srv.EnsureDatabase(ctx, name)
	if err != nil {
		t.Fatalf("make database: %v", err)
	}
	if err := operate.MigrateUp(ctx, u); err != nil {
		t.Fatalf("migrate database: %v", err)
	}
	return &DB{URL: u}
}

// server is the shared server, as this process knows it.
type server struct {
	url string // of its maintenance database
	// durable servers may have fsync on: files that a CREATE DATABASE copies are then written to disk one by one.
	durable bool
	// using is the lock on usersLock. It stays open until the process ends; nil for a given server.
	using *os.File
	// idle are connections to the maintenance database, between two statements. If it is nil, none are kept.
	idle chan *pgx.Conn
}

// idle are the connections of the server that this process has joined: make test runs as many tests at once.
var idle = make(chan *pgx.Conn, 8)

// closeIdle is called after the last test. A connection whose last write was slow has a goroutine until it is closed.
func closeIdle() {
	for len(idle) > 0 {
		conn := <-idle
		_ = conn.Close(context.Background()) // it is not used any more
	}
}

// create copies template to a new database, which is dropped when the test ends.
func (s server) create(t testing.TB, template string) *DB {
	t.Helper()
	name := databaseName()
	if err := s.exec(setUpContext(t), s.createDatabase(name, template)); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dropLimit)
		defer cancel()
		if err := s.drop(ctx, name); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	return &DB{URL: s.database(name)}
}

// drop ends the connections to a database and drops it. With FORCE, PostgreSQL also ends autovacuum workers, which only
// a superuser may do. Without it, PostgreSQL asks them to stop, and waits for connections that are closing.
func (s server) drop(ctx context.Context, name string) error {
	err := s.exec(ctx, "DROP DATABASE "+quote(name)+" WITH (FORCE)")
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "42501" {
		err = s.exec(ctx, "DROP DATABASE "+quote(name))
	}
	return err
}

// exec uses a connection that an earlier call has left.
func (s server) exec(ctx context.Context, statement string) error {
	conn, err := s.connection(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	if conn.IsClosed() {
		return err
	}
	select {
	case s.idle <- conn:
	default:
		conn.Close(context.WithoutCancel(ctx))
	}
	return err
}

func (s server) connection(ctx context.Context) (*pgx.Conn, error) {
	select {
	case conn := <-s.idle:
		return conn, nil
	default:
		return pgx.Connect(ctx, s.url)
	}
}

// database returns the URL of another database on the server, with all its settings.
func (s server) database(name string) string {
	u, err := url.Parse(s.url)
	if err != nil {
		panic(fmt.Sprintf("storetest: server URL changed: %v", err)) // it was parsed when the server was found
	}
	u.Path = "/" + name
	return u.String()
}

// databaseName contains the time, which shows later that a killed test binary left the database.
func databaseName() string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("%s%d_%s", testPrefix, time.Now().Unix(), hex.EncodeToString(random[:]))
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func setUpContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), setUpLimit)
	t.Cleanup(cancel)
	return ctx
}

func removeAfter(t testing.TB, dir string) {
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove server directory: %v", err)
		}
	})
}
