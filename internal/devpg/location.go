//go:build unix

package devpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// maxSocketPath is the size of a path in sockaddr_un, less the closing zero.
const maxSocketPath = 107

// location is the directory of a cluster and the user that runs its server.
type location struct {
	dir     string              // holds the data directory, the server's log and the lock
	sockets string              // short, since a socket's path must fit maxSocketPath
	cred    *syscall.Credential // nil: the user of this process
	name    string              // the user that cred stands for
}

// prepareLocation creates the directories for dir. PostgreSQL refuses to run as root, so root gives them to another
// user, and moves the cluster to /var/tmp if that user cannot reach dir.
func prepareLocation(ctx context.Context, dir, bin string, log *slog.Logger) (*location, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve data directory: %w", err)
	}
	p := &location{dir: dir}
	if os.Geteuid() == 0 {
		if err := p.dropRoot(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	if p.cred != nil {
		if err := p.reachOrMove(ctx, bin, log); err != nil {
			return nil, err
		}
	}
	if err := p.own(p.dir, p.dir == dir); err != nil {
		return nil, err
	}
	p.sockets = socketDir(p.dir)
	return p, nil
}

// freshSockets empties the socket directory, which belongs to the holder of the lock. A dead server leaves a lock
// file beside its socket that names a process, and PostgreSQL mistakes a zombie for a live one.
func (p *location) freshSockets() error {
	if err := removeAll(p.sockets); err != nil {
		return fmt.Errorf("clear sockets: %w", err)
	}
	return p.own(p.sockets, false)
}

// dropRoot chooses the user that runs the server: the owner of a directory that is already in use, else postgres,
// else nobody.
func (p *location) dropRoot() error {
	if info, err := os.Stat(p.dir); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			p.cred = &syscall.Credential{Uid: st.Uid, Gid: st.Gid}
			p.name = "uid " + strconv.FormatUint(uint64(st.Uid), 10)
			return nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		p.cred, p.name = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, name
		return nil
	}
	return errors.New("PostgreSQL does not run as root, and this system has no other user to run it: " +
		"add a user named postgres, or start as another user")
}

// reachOrMove keeps the directory if the server's user can enter it, and otherwise uses one below /var/tmp. It leaves
// existing files alone. It asks the kernel by starting a program there, because mode bits do not show access lists
// and mounts.
func (p *location) reachOrMove(ctx context.Context, bin string, log *slog.Logger) error {
	if err := p.enter(ctx, bin, "/"); err != nil {
		return fmt.Errorf("run PostgreSQL of %s as %s: %w", bin, p.name, err)
	}
	err := p.enter(ctx, bin, filepath.Dir(p.dir))
	if err == nil {
		return nil
	}
	// A cluster that was reachable once must not seem to have vanished.
	if _, statErr := os.Stat(filepath.Join(p.dir, "data")); !errors.Is(statErr, fs.ErrNotExist) {
		return fmt.Errorf("%s, who runs PostgreSQL here, cannot get to %s: %w: "+
			"let that user enter its parent directories (chmod o+x)", p.name, p.dir, err)
	}
	moved := fallbackDir(p.dir)
	log.WarnContext(ctx, "database moved: its user cannot enter the data directory",
		"user", p.name, "dir", p.dir, "moved_to", moved, "err", err)
	p.dir = moved
	return nil
}

func (p *location) enter(ctx context.Context, bin, dir string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version")
	cmd.Dir = dir
	cmd.Env = p.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred}
	return cmd.Run()
}

// own makes path a directory that only the server's user may enter. An existing one must belong to this process's
// user or to the server's: in a directory that all may write to, another user may have put theirs in its way. A
// trusted path, one that the caller named, is exempt.
func (p *location) own(path string, trusted bool) error {
	err := os.Mkdir(path, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if trusted {
		if info, err = os.Stat(path); err != nil {
			return fmt.Errorf("look at %s: %w", path, err)
		}
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is in the way: it is not a directory", path)
	}
	uid := os.Geteuid()
	if p.cred != nil {
		uid = int(p.cred.Uid)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != uid && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user: start as that user, or remove it", path)
	}
	if p.cred != nil {
		if err := os.Chown(path, int(p.cred.Uid), int(p.cred.Gid)); err != nil {
			return fmt.Errorf("give %s to %s: %w", path, p.name, err)
		}
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return fmt.Errorf("close %s to others: %w", path, err)
	}
	return nil
}

// env is small on purpose: PGDATA, PGPORT and PGOPTIONS of the caller's shell must not reach this server. Fixed TZ
// and LC_ALL make a cluster the same on every machine.
func (p *location) env() []string {
	env := []string{"HOME=" + p.dir, "LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH")}
	if libs := os.Getenv("LD_LIBRARY_PATH"); libs != "" {
		env = append(env, "LD_LIBRARY_PATH="+libs)
	}
	return env
}

// fallbackDir and socketDir depend only on the path, so that every process finds the same directories.
func fallbackDir(dir string) string {
	return filepath.Join("/var/tmp", fmt.Sprintf("a2ad-%d-%s", os.Geteuid(), pathHash(dir)))
}

func socketDir(dir string) string {
	base := "/tmp" // not os.TempDir: TMPDIR is often long, and differs between the processes of one user
	if info, err := os.Stat(base); err != nil || !info.IsDir() {
		base = os.TempDir()
	}
	return filepath.Join(base, fmt.Sprintf("a2ad-sock-%d-%s", os.Geteuid(), pathHash(dir)))
}

func pathHash(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:6])
}
