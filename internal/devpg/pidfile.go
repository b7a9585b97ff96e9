//go:build unix

package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pidFile is the content of postmaster.pid. Its lines are PostgreSQL's interface to pg_ctl, unchanged since version
// 10.
type pidFile struct {
	pid     int
	port    string
	sockets string
	ready   bool
}

func pidPath(data string) string { return filepath.Join(data, "postmaster.pid") }

// readPidFile returns an error that wraps fs.ErrNotExist if no server runs and none has crashed.
func readPidFile(data string) (pidFile, error) {
	text, err := os.ReadFile(pidPath(data))
	if err != nil {
		return pidFile{}, fmt.Errorf("read postmaster.pid: %w", err)
	}
	lines := strings.Split(string(text), "\n")
	var f pidFile
	if f.pid, err = strconv.Atoi(strings.TrimSpace(lines[0])); err != nil {
		return pidFile{}, fmt.Errorf("read postmaster.pid: %w", err)
	}
	if len(lines) > 4 {
		f.port, f.sockets = lines[3], lines[4]
	}
	f.ready = len(lines) > 7 && strings.TrimSpace(lines[7]) == "ready"
	return f, nil
}

// stopLeftover stops the server that an earlier process left running in data, and removes the pid file of a dead one.
// It reports whether it found either: a start after that may have to wait for orphaned backends.
func stopLeftover(ctx context.Context, data string) (found bool, err error) {
	f, err := readPidFile(data)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && postmasterOf(f.pid, data) {
		if err := syscall.Kill(f.pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return true, fmt.Errorf("stop postgres %d left in %s: %w", f.pid, data, err)
		}
		err = awaitPidFileGone(ctx, data, f.pid)
		if err != nil {
			return true, fmt.Errorf("wait for postgres %d left in %s: %w", f.pid, data, err)
		}
	}
	// The file names a dead process, a zombie or an unrelated process. PostgreSQL would mistake the last two for a
	// running server. It stays protected from orphaned backends without the file: they hold the shared memory that it
	// finds by the directory's inode, and it refuses to start until they end.
	if err := os.Remove(pidPath(data)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, fmt.Errorf("remove stale postmaster.pid: %w", err)
	}
	return true, nil
}

// awaitPidFileGone polls, because the process is not a child of this one and the file system sends no event. It also
// returns when the process dies without removing its file.
func awaitPidFileGone(ctx context.Context, data string, pid int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopLimit, errStopTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if _, err := os.Stat(pidPath(data)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !postmasterOf(pid, data) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
