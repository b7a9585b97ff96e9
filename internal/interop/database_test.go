package interop

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const setUpLimit = 8 * time.Minute

// shared is the server for all tests that neither stop it nor need their own settings. The first of them starts it.
var shared struct {
	once   sync.Once
	server *sharedServer
	err    error
}

type sharedServer struct {
	*replica
	admin    string // URL of a database on its PostgreSQL from which others can be created
	database string // dropped at the end; "" if the server created it itself
}

// startShared runs `a2ad dev` as a newcomer does, with the PostgreSQL that it starts. With A2AD_TEST_DATABASE_URL it
// uses a new database on that server instead.
func startShared() (*sharedServer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setUpLimit)
	defer cancel()
	if admin := os.Getenv("A2AD_TEST_DATABASE_URL"); admin != "" {
		name, err := createDatabase(ctx, admin)
		if err != nil {
			return nil, fmt.Errorf("A2AD_TEST_DATABASE_URL: %w", err)
		}
		r, err := startReplica(ctx, "dev", "--database-url", databaseURL(admin, name))
		if err != nil {
			return nil, errors.Join(err, dropDatabase(ctx, admin, name))
		}
		return &sharedServer{replica: r, admin: admin, database: name}, nil
	}
	dir := filepath.Join(tests.dir, "pg")
	r, err := startReplica(ctx, "dev", "--data-dir", dir)
	if err != nil {
		return nil, err
	}
	admin, err := adminOf(dir)
	if err != nil {
		r.kill()
		return nil, err
	}
	return &sharedServer{replica: r, admin: admin}, nil
}

// adminOf reads the address of the PostgreSQL of a data directory from its pid file.
func adminOf(dir string) (string, error) {
	pid, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return "", fmt.Errorf("%w: set TMPDIR to a directory that the user postgres can enter", err)
	}
	lines := strings.Split(string(pid), "\n")
	if len(lines) < 5 {
		return "", fmt.Errorf("postmaster.pid has %d lines", len(lines))
	}
	where := url.Values{"port": {lines[3]}, "host": {lines[4]}}
	return (&url.URL{Scheme: "postgres", User: url.User("a2ad"), Path: "/postgres", RawQuery: where.Encode()}).String(),
		nil
}

func sharedReplica(t *testing.T) *sharedServer {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = startShared() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

func stopShared() error {
	s := shared.server
	if s == nil {
		return nil
	}
	err := s.stop()
	if s.database != "" {
		ctx, cancel := context.WithTimeout(context.Background(), setUpLimit)
		defer cancel()
		err = errors.Join(err, dropDatabase(ctx, s.admin, s.database))
	}
	return err
}

// newDatabase creates an empty database that lasts as long as the test.
func newDatabase(t *testing.T) string {
	t.Helper()
	admin := sharedReplica(t).admin
	name, err := createDatabase(testContext(t), admin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setUpLimit)
		defer cancel()
		if err := dropDatabase(ctx, admin, name); err != nil {
			t.Error(err)
		}
	})
	return databaseURL(admin, name)
}

// createDatabase puts the time into the name, which identifies leftovers of killed tests on a permanent server.
func createDatabase(ctx context.Context, admin string) (string, error) {
	name := fmt.Sprintf("a2ad_interop_%d_%s", time.Now().Unix(), strings.ToLower(rand.Text()[:8]))
	if err := execute(ctx, admin, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	return name, nil
}

func dropDatabase(ctx context.Context, admin, name string) error {
	if err := execute(ctx, admin, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

func execute(ctx context.Context, at, statement string) error {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, statement)
	return err
}

func databaseURL(admin, name string) string {
	u, err := url.Parse(admin)
	if err != nil {
		panic(err) // pgx has parsed it
	}
	u.Path = "/" + name
	return u.String()
}
