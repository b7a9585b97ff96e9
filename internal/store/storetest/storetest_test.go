package storetest

import (
	"bufio"
	"context"
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
)

// userEnv makes this test binary a user of the shared server that waits to be killed.
const userEnv = "A2AD_STORETEST_TEST_USER"

func TestMain(m *testing.M) {
	if os.Getenv(userEnv) != "" && os.Getenv(supervisorEnv) == "" {
		runUser()
	}
	Main(m)
}

func runUser() {
	srv, err := join()
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(srv.url)
	_, _ = io.Copy(io.Discard, os.Stdin) // until this process is killed, or the test ends
	os.Exit(0)
}

func TestNewIsMigratedAndPrivate(t *testing.T) {
	t.Parallel()
	ctx := setUpContext(t)
	one, two := New(t).Pool(t), New(t).Pool(t)
	if _, err := one.Exec(ctx, "CREATE TABLE a2a.mine (n int)"); err != nil {
		t.Fatal(err)
	}
	var there bool
	if err := two.QueryRow(ctx, "SELECT to_regclass('a2a.mine') IS NOT NULL").Scan(&there); err != nil {
		t.Fatal(err)
	}
	if there {
		t.Error("a table of one test is in the database of another")
	}
}

func TestDatabaseGoesWithItsTest(t *testing.T) {
	t.Parallel()
	var u string
	t.Run("user", func(t *testing.T) {
		db := New(t)
		u = db.URL
		// This connection stays open: the drop must not wait for it.
		conn, err := pgx.Connect(setUpContext(t), u)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Ping(setUpContext(t)); err != nil {
			t.Fatal(err)
		}
	})
	conn, err := pgx.Connect(setUpContext(t), u)
	if err == nil {
		_ = conn.Close(context.Background())
		t.Fatal("the database is still there")
	}
	if !strings.Contains(err.Error(), "3D000") { // invalid_catalog_name
		t.Errorf("connect = %v, want an unknown database", err)
	}
}

func TestServerIsSharedUntilItsLastUserIsKilled(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "a2ad-storetest-")
	if err != nil {
		t.Fatal(err)
	}
	removeAfter(t, dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	first, second := startUser(t, dir), startUser(t, dir)
	u := first.url(t)
	if got := second.url(t); got != u {
		t.Fatalf("second user got %s, want %s", got, u)
	}
	first.kill(t)
	if !alive(setUpContext(t), u) {
		t.Fatal("the server ended with its first user")
	}
	second.kill(t)

	awaitStopped(t, dir, u)

	third := startUser(t, dir)
	u = third.url(t)
	if !alive(setUpContext(t), u) {
		t.Error("no server for a user that came later")
	}
	third.kill(t)
	awaitStopped(t, dir, u)
}

func TestNewServerSurvivesACrash(t *testing.T) {
	t.Parallel()
	ctx := setUpContext(t)
	srv := NewServer(t, map[string]string{"work_mem": "5MB"})
	pool := NewOn(t, srv).Pool(t)
	if _, err := pool.Exec(ctx, "CREATE TABLE a2a.kept AS SELECT 42 AS n"); err != nil {
		t.Fatal(err)
	}
	if err := srv.Kill(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := srv.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	pool.Reset() // its connections are dead
	var n int
	if err := pool.QueryRow(ctx, "SELECT n FROM a2a.kept").Scan(&n); err != nil || n != 42 {
		t.Errorf("kept = %d, %v, want 42", n, err)
	}
	for name, want := range map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "work_mem": "5MB",
	} {
		var got string
		if err := pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", name, got, err, want)
		}
	}
}

// BenchmarkDatabase measures what one test pays for its database.
func BenchmarkDatabase(b *testing.B) {
	ctx := setUpContext(b)
	srv := shared(b)
	template, err := srv.template(ctx)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		name := databaseName()
		if err := srv.exec(ctx, srv.createDatabase(name, template)); err != nil {
			b.Fatal(err)
		}
		if err := srv.exec(ctx, "DROP DATABASE "+quote(name)+" WITH (FORCE)"); err != nil {
			b.Fatal(err)
		}
	}
}

// user is another process that uses the server.
type user struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
}

func startUser(t *testing.T, dir string) user {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), userEnv+"=1", "TMPDIR="+dir, "A2AD_TEST_DATABASE_URL=")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return user{cmd: cmd, stdout: bufio.NewReader(stdout)}
}

func (u user) url(t *testing.T) string {
	t.Helper()
	line, err := u.stdout.ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error") {
		rest, _ := io.ReadAll(u.stdout)
		t.Fatalf("user: %s%s %v", line, rest, err)
	}
	return strings.TrimSpace(line)
}

func (u user) kill(t *testing.T) {
	t.Helper()
	if err := u.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = u.cmd.Wait()
}

// awaitStopped waits until the server at u has ended, and then its supervisor, which keeps the users' lock until its
// end.
func awaitStopped(t *testing.T, dir, u string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(lockPollEvery)
	defer tick.Stop()
	for alive(ctx, u) {
		select {
		case <-ctx.Done():
			t.Fatal("the server outlives its last user")
		case <-tick.C:
		}
	}
	locks, err := filepath.Glob(filepath.Join(dir, "*", usersLock))
	if err != nil || len(locks) != 1 {
		t.Fatalf("state directories: %v, %v, want one", locks, err)
	}
	lock, err := lockFile(ctx, locks[0], syscall.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}
