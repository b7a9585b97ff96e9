package storetest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// How one server serves all packages of a go test run, which are processes that know nothing of each other:
//
// Each user of the server holds a shared flock on users.lock until its process ends. The first user starts a
// supervisor from the same test binary, as a process in a session of its own. The supervisor runs the server as its
// child and waits for the exclusive lock. It gets the lock after the last user has ended, and then stops the server. No
// count can go wrong: the kernel releases the lock of a process that was killed. start.lock lets one process at a time
// look for the server or start it. A user locks users.lock before it looks, so that the server cannot stop meanwhile.
const (
	startLock = "start.lock"
	usersLock = "users.lock"
	urlFile   = "url"
	logFile   = "supervisor.log"

	// supervisorEnv tells a test binary to be the supervisor of the directory that it names.
	supervisorEnv = "A2AD_STORETEST_SUPERVISOR"

	lockPollEvery = 20 * time.Millisecond
	pingLimit     = time.Minute
)

// join finds or starts the server once per process: the result is valid until the process ends.
var join = sync.OnceValues(func() (server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setUpLimit)
	defer cancel()
	if u := os.Getenv("A2AD_TEST_DATABASE_URL"); u != "" {
		srv, err := given(ctx, u)
		srv.idle = idle
		return srv, err
	}
	dir, err := stateDir()
	if err != nil {
		return server{}, err
	}
	srv, err := joinIn(ctx, dir)
	srv.idle = idle
	return srv, err
})

func shared(t testing.TB) server {
	t.Helper()
	if !mainCalled {
		t.Fatal("storetest: TestMain of this package must call storetest.Main")
	}
	srv, err := join()
	if err != nil {
		t.Fatalf("storetest: no PostgreSQL for tests: %v", err)
	}
	return srv
}

func given(ctx context.Context, u string) (server, error) {
	if !strings.HasPrefix(u, "postgres://") && !strings.HasPrefix(u, "postgresql://") {
		return server{}, errors.New("A2AD_TEST_DATABASE_URL must be a postgres:// URL")
	}
	conn, err := pgx.Connect(ctx, u)
	if err != nil {
		return server{}, fmt.Errorf("connect to A2AD_TEST_DATABASE_URL: %w", err)
	}
	return server{url: u, durable: true}, conn.Close(ctx)
}

func joinIn(ctx context.Context, dir string) (server, error) {
	starting, err := lockFile(ctx, filepath.Join(dir, startLock), syscall.LOCK_EX)
	if err != nil {
		return server{}, err
	}
	defer starting.Close()
	using, err := lockFile(ctx, filepath.Join(dir, usersLock), syscall.LOCK_SH)
	if err != nil {
		return server{}, err
	}
	known, err := os.ReadFile(filepath.Join(dir, urlFile))
	if err == nil && alive(ctx, string(known)) {
		return server{url: string(known), using: using}, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return server{}, errors.Join(fmt.Errorf("read server URL: %w", err), using.Close())
	}
	u, err := startSupervisor(ctx, dir)
	if err != nil {
		return server{}, errors.Join(err, using.Close())
	}
	return server{url: u, using: using}, nil
}

// alive reports whether a server answers in any way. A server that is full, or that recovers from a crash, must not get
// a twin.
func alive(ctx context.Context, u string) bool {
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, u)
	if err != nil {
		var pgErr *pgconn.PgError
		return errors.As(err, &pgErr)
	}
	_ = conn.Close(ctx) // it has answered
	return true
}

// startSupervisor returns the URL that the supervisor reports when its server is ready. The supervisor gets none of our
// files: go test waits until every process has closed the output of a test.
func startSupervisor(ctx context.Context, dir string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own binary: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("open supervisor log: %w", err)
	}
	defer log.Close()
	answer, report, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("make pipe: %w", err)
	}
	defer answer.Close()
	defer report.Close()
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), supervisorEnv+"="+dir)
	cmd.Stdout, cmd.Stderr = report, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C is for the tests; the supervisor ends after them
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start supervisor: %w", err)
	}
	// It outlives this process. If it ends first, init collects it.
	if err := cmd.Process.Release(); err != nil {
		return "", fmt.Errorf("release supervisor: %w", err)
	}
	report.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := answer.SetReadDeadline(deadline); err != nil {
			return "", fmt.Errorf("bound the wait for the supervisor: %w", err)
		}
	}
	u, err := bufio.NewReader(answer).ReadString('\n')
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return "", fmt.Errorf("start server (%w):\n%s", err, said)
	}
	if said, err := os.ReadFile(log.Name()); err == nil && len(said) > 0 {
		fmt.Fprintf(os.Stderr, "storetest: %s", said)
	}
	return strings.TrimSpace(u), nil
}

// stateDir holds the locks, and the cluster if it is not in memory. Other binaries or another Docker have another
// server.
func stateDir() (string, error) {
	choice := sha256.Sum256([]byte(os.Getenv("A2AD_PG_BINDIR") + "\x00" + os.Getenv("DOCKER_HOST")))
	return ownDir(filepath.Join(os.TempDir(), ownName(choice[:3])))
}

const (
	memoryDir = "/dev/shm"
	// memoryNeeded is several times what the databases of a run and their log take at once.
	memoryNeeded = 4 << 30
)

// clusterDir returns a directory in memory for the cluster of dir, or dir where there is too little memory. Each
// database has 450 files. Where ext4 has no journal, it searches for inodes that were not deleted lately: that was 40 %
// of the CPU time of all tests, and doubled their duration.
func clusterDir(dir string) (string, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < memoryNeeded {
		return dir, nil
	}
	of := sha256.Sum256([]byte(dir))
	return ownDir(filepath.Join(memoryDir, ownName(of[:6])))
}

func ownName(id []byte) string {
	return fmt.Sprintf("a2ad-test-%d-%s", os.Getuid(), hex.EncodeToString(id))
}

// ownDir makes a directory that only this user can write to, or finds it.
func ownDir(dir string) (string, error) {
	err := os.Mkdir(dir, 0o711)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make state directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("inspect state directory: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s exists, but is no directory of this user: remove it", dir)
	}
	// Whatever the umask is: the user that runs PostgreSQL for root must be able to enter.
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", fmt.Errorf("open state directory: %w", err)
	}
	return dir, nil
}

// lockFile polls, so that the wait for a process that hangs ends with ctx. Closing the file releases the lock.
func lockFile(ctx context.Context, path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	tick := time.NewTicker(lockPollEvery)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, context.Cause(ctx)), f.Close())
		case <-tick.C:
		}
	}
}
