//go:build unix

package devpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/leaktest"
)

// childEnv turns this test binary into a program that starts a server in the named directory and waits to be killed.
const childEnv = "A2AD_DEVPG_TEST_CHILD"

// testLimit ends a test that hangs.
const testLimit = 10 * time.Minute

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		runChild(dir)
	}
	leaktest.Main(m)
}

func runChild(dir string) {
	srv, err := Start(context.Background(), Config{Dir: dir})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(srv.Pid())
	_, _ = io.Copy(io.Discard, os.Stdin) // forever, unless the test ends without killing this process
	_ = srv.Stop(context.Background())
	os.Exit(0)
}

func TestStartFromNothingAndKeepData(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	cfg := Config{Dir: filepath.Join(openDir(t), "new", "pg")}
	began := time.Now()
	srv := start(t, cfg)
	t.Logf("from nothing to ready: %v", time.Since(began))
	if srv.Dir() != cfg.Dir {
		t.Errorf("Dir() = %s, want %s", srv.Dir(), cfg.Dir)
	}
	url, err := srv.EnsureDatabase(ctx, "first")
	if err != nil {
		t.Fatal(err)
	}
	exec1(t, url, "CREATE TABLE kept (n int)")
	exec1(t, url, "INSERT INTO kept VALUES (42)")
	if _, err := srv.EnsureDatabase(ctx, "first"); err != nil {
		t.Errorf("EnsureDatabase of an existing database: %v", err)
	}

	located, err := Locate(cfg.Dir, "first")
	if err != nil || located != url {
		t.Errorf("Locate = %q, %v, want %q", located, err, url)
	}
	if err := srv.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := srv.Stop(ctx); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if _, err := Locate(cfg.Dir, "first"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Locate after Stop = %v, want ErrNotRunning", err)
	}
	if _, err := os.Stat(srv.location.sockets); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket directory still exists: %v", err)
	}

	again := start(t, cfg)
	if got := query1(t, again.URL("first"), "SELECT n::text FROM kept"); got != "42" {
		t.Errorf("kept row = %q, want 42", got)
	}
	if got := query1(t, again.URL("first"), "SHOW fsync"); got != "on" {
		t.Errorf("fsync of a kept cluster = %s, want on", got)
	}
}

func TestStartOfADirectoryInUseIsRefused(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: filepath.Join(openDir(t), "pg"), Throwaway: true}
	srv := start(t, cfg)
	if _, err := Start(testContext(t), cfg); !errors.Is(err, ErrInUse) {
		t.Errorf("second Start = %v, want ErrInUse", err)
	}
	if got := query1(t, srv.URL("postgres"), "SELECT 'alive'"); got != "alive" {
		t.Errorf("first server = %q, want alive", got)
	}
}

func TestKilledServerRestartsWithCommittedData(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := start(t, Config{Dir: filepath.Join(openDir(t), "pg")})
	exec1(t, srv.URL("postgres"), "CREATE TABLE kept AS SELECT 42 AS n")
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGQUIT, syscall.SIGINT} {
		// A surviving backend holds the shared memory, so the first start after a crash fails.
		conn, err := pgx.Connect(ctx, srv.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		before := srv.Pid()
		if err := srv.Kill(sig); err != nil {
			t.Fatalf("kill with %v: %v", sig, err)
		}
		select {
		case <-srv.Exited():
		default:
			t.Errorf("Exited is open after Kill(%v)", sig)
		}
		began := time.Now()
		if err := srv.Restart(ctx); err != nil {
			t.Fatalf("restart after %v: %v", sig, err)
		}
		t.Logf("restart after %v: %v", sig, time.Since(began))
		if srv.Pid() == before {
			t.Errorf("pid after %v is still %d", sig, before)
		}
		if got := query1(t, srv.URL("postgres"), "SELECT n::text FROM kept"); got != "42" {
			t.Errorf("row after %v = %q, want 42", sig, got)
		}
		_ = conn.Close(ctx)
	}
}

func TestServerOfKilledProcessIsReplaced(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "pg")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+dir)
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error") {
		t.Fatalf("child: %s %v", line, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	srv := start(t, Config{Dir: dir})
	if got := query1(t, srv.URL("postgres"), "SELECT 'up'"); got != "up" {
		t.Errorf("server = %q, want up", got)
	}
	if got := fmt.Sprintln(srv.Pid()); got == line {
		t.Errorf("postmaster is still %s", line)
	}
}

func TestLeftoverPostmasterIsStopped(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: filepath.Join(openDir(t), "pg")}
	old := startUnsupervised(t, start(t, cfg))
	srv := start(t, cfg)
	if err := old.Wait(); err != nil {
		t.Errorf("leftover postmaster did not shut down cleanly: %v", err)
	}
	if got := query1(t, srv.URL("postgres"), "SELECT 'up'"); got != "up" {
		t.Errorf("server = %q, want up", got)
	}
}

func TestZombiePostmasterIsIgnored(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: filepath.Join(openDir(t), "pg")}
	zombie := startUnsupervised(t, start(t, cfg))
	if err := zombie.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The test has not reaped the process yet, so its pid stays in use.
	srv := start(t, cfg)
	if got := query1(t, srv.URL("postgres"), "SELECT 'up'"); got != "up" {
		t.Errorf("server = %q, want up", got)
	}
	if err := zombie.Wait(); err == nil {
		t.Error("the killed postmaster ended without an error")
	}
}

func TestUnreadablePidFileIsRemoved(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: filepath.Join(openDir(t), "pg")}
	first := start(t, cfg)
	if err := first.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pidPath(first.data()), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, cfg)
}

func TestBadSettingReturnsThePostmastersMessage(t *testing.T) {
	t.Parallel()
	_, err := Start(testContext(t), Config{
		Dir: filepath.Join(openDir(t), "pg"), Throwaway: true, Params: map[string]string{"max_connections": "many"},
	})
	if err == nil || !strings.Contains(err.Error(), `"max_connections"`) {
		t.Errorf("Start = %v, want the postmaster's message about max_connections", err)
	}
}

// openDir returns a directory that the server's user may enter; it may not enter t.TempDir.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "a2ad-devpg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	srv, err := Start(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// startUnsupervised replaces srv with a postmaster that no process supervises, and returns it when it is ready. A
// process killed without the kernel's parent-death signal leaves such a postmaster.
func startUnsupervised(t *testing.T, srv *Server) *exec.Cmd {
	t.Helper()
	ctx := testContext(t)
	args := srv.current().cmd.Args[1:]
	if err := srv.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := srv.location.freshSockets(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(srv.bin, "postgres"), args...)
	srv.runAs(cmd)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: srv.location.cred}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watched := &process{cmd: cmd, exited: make(chan struct{})}
	if err := watched.awaitReady(ctx, srv.data()); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	t.Cleanup(cancel)
	return ctx
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	ctx := testContext(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatal(err)
	}
}

func query1(t *testing.T, url, sql string) string {
	t.Helper()
	ctx := testContext(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var got string
	if err := conn.QueryRow(ctx, sql).Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}
