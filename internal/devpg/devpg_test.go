package devpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// childEnv makes this test binary a program that starts a server in the named directory and waits to be killed.
const childEnv = "A2AD_DEVPG_TEST_CHILD"

const testLimit = 90 * time.Second

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		runChild(dir)
	}
	goleak.VerifyTestMain(m)
}

func runChild(dir string) {
	srv, err := Start(context.Background(), Config{Dir: dir})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(srv.Pid())
	_, _ = io.Copy(io.Discard, os.Stdin) // for ever, unless the test ends without killing us
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
		t.Errorf("EnsureDatabase of one that exists: %v", err)
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
	if _, err := os.Stat(srv.place.sockets); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket directory is still there: %v", err)
	}

	again := start(t, cfg)
	if got := query1(t, again.URL("first"), "SELECT n::text FROM kept"); got != "42" {
		t.Errorf("kept row = %q, want 42", got)
	}
	if got := query1(t, again.URL("first"), "SHOW fsync"); got != "on" {
		t.Errorf("fsync of a kept cluster = %s, want on", got)
	}
}

func TestSecondStartInUseIsRefused(t *testing.T) {
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

func TestKilledServerRestartsWithWhatWasCommitted(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := start(t, Config{Dir: filepath.Join(openDir(t), "pg")})
	exec1(t, srv.URL("postgres"), "CREATE TABLE kept AS SELECT 42 AS n")
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGQUIT, syscall.SIGINT} {
		// A backend that lives on holds the shared memory, which is what makes the first start after a crash fail.
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
	old := leaveBehind(t, start(t, cfg))
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
	zombie := leaveBehind(t, start(t, cfg))
	if err := zombie.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Nobody reaps it yet, so its number stays taken.
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

func TestHomeThatIsClosedToTheServersUser(t *testing.T) {
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
	key := filepath.Join(dir, "keys") // a2ad dev keeps one beside its cluster
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
		t.Errorf("Exists = %t for the cluster that moved, %t for none", Exists(cfg.Dir), Exists(filepath.Join(home, "other")))
	}
	again := start(t, cfg)
	if got := query1(t, again.URL("postgres"), "SELECT count(*)::text FROM kept"); got != "0" {
		t.Errorf("kept table = %q, want 0 rows", got)
	}
	if got, err := os.ReadFile(key); err != nil || string(got) != "k1" {
		t.Errorf("what else was there is %q, %v", got, err)
	}
}

// A cluster whose way was closed since is not replaced by an empty one.
func TestClusterThatCannotBeReachedIsRefused(t *testing.T) {
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
		t.Errorf("Start = %v, want what to do", err)
	}
}

func TestLongPath(t *testing.T) {
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
		t.Errorf("throwaway cluster is still there: %v", err)
	}
}

func TestBadSettingSaysWhatThePostmasterSaid(t *testing.T) {
	t.Parallel()
	_, err := Start(testContext(t), Config{
		Dir: filepath.Join(openDir(t), "pg"), Throwaway: true, Params: map[string]string{"max_connections": "many"},
	})
	if err == nil || !strings.Contains(err.Error(), `"max_connections"`) {
		t.Errorf("Start = %v, want the postmaster's words about max_connections", err)
	}
}

func TestClusterOfAnotherMajorIsRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := binariesFor(testContext(t), "", data)
	if err == nil || !strings.Contains(err.Error(), "was made by PostgreSQL 9") {
		t.Errorf("binariesFor = %v, want it to name both majors", err)
	}
}

func TestNewestMajorIsTheLargestNumber(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, major := range []string{"9.6", "17", "18-broken"} {
		bin := filepath.Join(root, "postgresql", major, "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"initdb", "postgres"} {
			if major == "18-broken" && name == "postgres" {
				continue // client tools alone are no server
			}
			if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, ok := newestMajor(filepath.Join(root, "none-*"), filepath.Join(root, "postgresql", "*", "bin"))
	if want := filepath.Join(root, "postgresql", "17", "bin"); !ok || got != want {
		t.Errorf("newestMajor = %q, %v, want %q", got, ok, want)
	}
}

func TestFindBinariesNamesTheDirectoryItWasGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := FindBinaries(dir); !errors.Is(err, ErrNoBinaries) || !strings.Contains(err.Error(), dir) {
		t.Errorf("FindBinaries = %v, want ErrNoBinaries that names %s", err, dir)
	}
}

func TestFindBinariesSaysHowToInstall(t *testing.T) {
	saved := clusterDirs
	clusterDirs = nil
	t.Cleanup(func() { clusterDirs = saved })
	t.Setenv("PATH", t.TempDir())
	_, err := FindBinaries("")
	if !errors.Is(err, ErrNoBinaries) || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("FindBinaries = %v, want ErrNoBinaries with instructions", err)
	}
}

// openDir is a directory that the server's user may enter, which t.TempDir is not.
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

// leaveBehind replaces srv by a postmaster that nobody watches over, as a kill of the process without a signal from the kernel
// would leave it, and returns it when it is ready.
func leaveBehind(t *testing.T, srv *Server) *exec.Cmd {
	t.Helper()
	ctx := testContext(t)
	args := srv.current().cmd.Args[1:]
	if err := srv.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := srv.place.freshSockets(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(srv.bin, "postgres"), args...)
	srv.runAs(cmd)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: srv.place.cred}
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
