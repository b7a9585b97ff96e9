//go:build unix

package devpg

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnreachableDirectoryMovesTheCluster(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives the server to another user")
	}
	home := filepath.Join(openDir(t), "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	dir := filepath.Join(home, "clone", ".a2ad")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "keys") // a2ad dev keeps its keys beside the cluster
	if err := os.WriteFile(key, []byte("k1"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	moved := fallbackDir(cfg.Dir)
	t.Cleanup(func() {
		if err := os.RemoveAll(moved); err != nil {
			t.Error(err)
		}
	})
	srv := start(t, cfg)
	if srv.Dir() != moved {
		t.Errorf("Dir() = %s, want %s", srv.Dir(), moved)
	}
	if !strings.Contains(log.String(), moved) {
		t.Errorf("log does not say where the data is: %s", log.String())
	}
	exec1(t, srv.URL("postgres"), "CREATE TABLE kept (n int)")
	if url, err := Locate(cfg.Dir, "postgres"); err != nil || url != srv.URL("postgres") {
		t.Errorf("Locate = %q, %v, want %q", url, err, srv.URL("postgres"))
	}
	if err := srv.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if !Exists(cfg.Dir) || Exists(filepath.Join(home, "other")) {
		t.Errorf("Exists = %t for the cluster that moved, %t for a missing one", Exists(cfg.Dir),
			Exists(filepath.Join(home, "other")))
	}
	again := start(t, cfg)
	if got := query1(t, again.URL("postgres"), "SELECT count(*)::text FROM kept"); got != "0" {
		t.Errorf("kept table = %q, want 0 rows", got)
	}
	if got, err := os.ReadFile(key); err != nil || string(got) != "k1" {
		t.Errorf("the other file in the directory is %q, %v", got, err)
	}
}

// Start must not replace an existing cluster with an empty one when its directory became inaccessible.
func TestExistingClusterThatBecameUnreachableIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives the server to another user")
	}
	home := filepath.Join(openDir(t), "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Dir: filepath.Join(home, ".a2ad")}
	srv := start(t, cfg)
	if err := srv.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(testContext(t), cfg); err == nil || !strings.Contains(err.Error(), "chmod o+x") {
		t.Errorf("Start = %v, want an error that says what to do", err)
	}
}

func TestSocketPathStaysShortForALongDirectory(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	for range 4 {
		dir = filepath.Join(dir, strings.Repeat("long", 12))
	}
	srv := start(t, Config{Dir: dir, Throwaway: true})
	if got := query1(t, srv.URL("postgres"), "SHOW synchronous_commit"); got != "on" {
		t.Errorf("synchronous_commit = %s, want on even in a throwaway cluster", got)
	}
	if err := srv.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(srv.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("throwaway cluster still exists: %v", err)
	}
}
