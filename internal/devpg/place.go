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

// maxSocketPath is what sockaddr_un holds, less the closing zero.
const maxSocketPath = 107

// place is where a cluster lives and as whom it runs.
type place struct {
	dir     string              // holds the data directory, the server's log and the lock
	sockets string              // short, since a socket's path must fit maxSocketPath
	cred    *syscall.Credential // nil: as ourselves
	name    string              // of the user that cred stands for
}

// settle decides the place for dir and makes it. As root it gives the server away to another user, for
// PostgreSQL refuses to run as root, and moves to /var/tmp when that user cannot reach dir.
func settle(ctx context.Context, dir, bin string, log *slog.Logger) (*place, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve data directory: %w", err)
	}
	p := &place{dir: dir}
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

// freshSockets empties the socket directory, which belongs to whoever holds the lock. The lock file that a dead server leaves
// beside its socket names a process, and PostgreSQL takes a zombie for a live one.
func (p *place) freshSockets() error {
	if err := removeAll(p.sockets); err != nil {
		return fmt.Errorf("clear sockets: %w", err)
	}
	return p.own(p.sockets, false)
}

// dropRoot picks who runs the server: the owner of a directory that somebody else already uses, else postgres, else nobody.
func (p *place) dropRoot() error {
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
	return errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody to run it as: " +
		"add one, or start as another user")
}

// reachOrMove keeps the directory when the server's user can get to it, and else moves it below /var/tmp; what is there already
// stays as it is. It asks the kernel by entering what it is in, because mode bits alone miss access lists and mounts.
func (p *place) reachOrMove(ctx context.Context, bin string, log *slog.Logger) error {
	if err := p.enter(ctx, bin, "/"); err != nil {
		return fmt.Errorf("run PostgreSQL of %s as %s: %w", bin, p.name, err)
	}
	err := p.enter(ctx, bin, filepath.Dir(p.dir))
	if err == nil {
		return nil
	}
	// A cluster that could be reached once must not seem to have vanished.
	if _, statErr := os.Stat(filepath.Join(p.dir, "data")); !errors.Is(statErr, fs.ErrNotExist) {
		return fmt.Errorf("%s, who runs PostgreSQL here, cannot get to %s: %w: let that user enter the directories it is in (chmod o+x)", p.name, p.dir, err)
	}
	moved := fallbackDir(p.dir)
	log.WarnContext(ctx, "database moved: its user cannot get to the data directory",
		"user", p.name, "dir", p.dir, "moved_to", moved, "err", err)
	p.dir = moved
	return nil
}

func (p *place) enter(ctx context.Context, bin, dir string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version")
	cmd.Dir = dir
	cmd.Env = p.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred}
	return cmd.Run()
}

// own makes path a directory that only the server's user may enter. One that is already there must belong to us or to that
// user: in a directory open to all, somebody else may have put theirs where ours should be. The place that the caller named
// is trusted.
func (p *place) own(path string, trusted bool) error {
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

// env is small on purpose: PGDATA, PGPORT, PGOPTIONS and the like of the caller's shell are not for this server. TZ and LC_ALL
// make a cluster the same on every machine.
func (p *place) env() []string {
	env := []string{"HOME=" + p.dir, "LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH")}
	if libs := os.Getenv("LD_LIBRARY_PATH"); libs != "" {
		env = append(env, "LD_LIBRARY_PATH="+libs)
	}
	return env
}

// fallbackDir and socketDir are functions of the path alone, so that every process finds the same place again.
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
