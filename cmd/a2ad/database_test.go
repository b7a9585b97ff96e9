package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	i := invocation{env: []string{"A2AD_DATABASE_URL=" + storetest.NewEmpty(t).URL}}
	applied := func() (n int) {
		for line := range strings.Lines(i.stdout) {
			var row migrationRow
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if row.Applied != nil {
				n++
			}
		}
		return n
	}
	if i.run(t, "migrate", "status", "-o", "json"); i.code != exitFailure || applied() != 0 ||
		!strings.Contains(i.stderr, "a2ad migrate up") {
		t.Errorf("status before: exit code %d\n%s%s", i.code, i.stdout, i.stderr)
	}
	i.run(t, "migrate", "up", "-o", "json")
	all := applied()
	if i.code != exitOK || all == 0 || all != strings.Count(i.stdout, "\n") {
		t.Errorf("up: exit code %d\n%s%s", i.code, i.stdout, i.stderr)
	}
	if i.run(t, "migrate", "status", "-o", "json"); i.code != exitOK || applied() != all {
		t.Errorf("status after: exit code %d\n%s%s", i.code, i.stdout, i.stderr)
	}
	if i.run(t, "migrate", "down", "--yes", "-o", "json"); i.code != exitOK || applied() != all-1 {
		t.Errorf("down: exit code %d\n%s%s", i.code, i.stdout, i.stderr)
	}
}

// TestDatabaseOfDev checks that without A2AD_DATABASE_URL an operator's command works on the database of dev. It
// connects to the PostgreSQL of a running dev, or else starts that PostgreSQL until the command ends. It never makes a
// new database.
func TestDatabaseOfDev(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	var i invocation
	for range 2 { // without the directory, and with an empty one
		if i.run(t, "migrate", "up", "--data-dir", dir); i.code != exitFailure ||
			!strings.Contains(i.stderr, "A2AD_DATABASE_URL") || !strings.Contains(i.stderr, "a2ad dev") {
			t.Errorf("no database: exit code %d, %s", i.code, i.stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
			t.Error("the command made a database")
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// For root, PostgreSQL runs as another user, who must be able to read the directory.
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	srv, err := devpg.Start(t.Context(), (&Database{config.Database{DataDir: dir}}).devPostgres())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := srv.EnsureDatabase(t.Context(), devDatabase); err != nil {
		t.Error(err)
	}
	if i.run(t, "migrate", "up", "--data-dir", dir); i.code != exitOK {
		t.Errorf("next to a running server: exit code %d, %s", i.code, i.stderr)
	}
	if err := srv.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if i.run(t, "migrate", "status", "--data-dir", dir); i.code != exitOK {
		t.Errorf("with a server of its own: exit code %d, %s", i.code, i.stderr)
	}
	if _, err := devpg.Locate(dir, devDatabase); !errors.Is(err, devpg.ErrNotRunning) {
		t.Errorf("after the command: %v, want no server", err)
	}
}
