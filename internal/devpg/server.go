//go:build unix

package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Server is a PostgreSQL server that this process runs. Its methods are safe for concurrent use; Kill, Restart and
// Stop wait for each other.
type Server struct {
	bin       string
	location  *location
	params    map[string]string
	throwaway bool
	lock      *os.File

	lifecycle sync.Mutex // held by Kill, Restart and Stop from their first signal to the exit
	stopped   bool       // guarded by lifecycle

	mu   sync.Mutex
	proc *process // guarded by mu; the latest, never nil after Start
}

// process is one run of the postmaster.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed by the goroutine that forked, after the child is reaped
}

// Start creates the cluster if there is none, starts its server and returns when it accepts connections. It first
// stops a server that a killed process left running in the directory. If a live process runs the server, the error
// wraps ErrInUse. ctx bounds only the start: the server runs until Stop, or until this process ends.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	bin, err := FindBinaries(cfg.BinDir)
	if err != nil {
		return nil, err
	}
	where, err := prepareLocation(ctx, cfg.Dir, bin, cfg.logger())
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(where.dir)
	if err != nil {
		return nil, err
	}
	s := &Server{location: where, params: cfg.params(where.sockets), throwaway: cfg.Throwaway, lock: lock}
	if err := s.open(ctx, cfg.BinDir); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL in %s: %w", where.dir, err), s.release())
	}
	return s, nil
}

func (s *Server) open(ctx context.Context, binDir string) error {
	if n := len(filepath.Join(s.location.sockets, ".s.PGSQL."+s.params["port"])); n > maxSocketPath {
		return fmt.Errorf("socket path in %s has %d bytes; the maximum is %d", s.location.sockets, n, maxSocketPath)
	}
	crashed, err := s.clear(ctx)
	if err != nil {
		return err
	}
	if s.throwaway {
		if err := removeAll(s.data()); err != nil {
			return err
		}
		crashed = false
	}
	if s.bin, err = binariesFor(ctx, binDir, s.data()); err != nil {
		return err
	}
	if err := s.initCluster(ctx); err != nil {
		return err
	}
	if err := s.rotateLog(); err != nil {
		return err
	}
	return s.up(ctx, crashed)
}

// Dir returns the directory of the cluster: Config.Dir, or its replacement in /var/tmp.
func (s *Server) Dir() string { return s.location.dir }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return filepath.Join(s.location.dir, "postgres.log") }

// URL returns the address of a database on this server, in the form that pgx accepts. The database need not exist.
func (s *Server) URL(database string) string {
	return socketURL(s.location.sockets, s.params["port"], database)
}

// Pid returns the postmaster's process id. Between Kill and Restart it is the id of the dead postmaster.
func (s *Server) Pid() int { return s.current().cmd.Process.Pid }

// Exited is closed when the current postmaster has ended, for whatever reason.
func (s *Server) Exited() <-chan struct{} { return s.current().exited }

// Kill sends sig to the postmaster and returns when it is reaped. SIGKILL is a crash, SIGQUIT an immediate shutdown,
// SIGINT a fast one. Use it only for signals that end the server; send others to Pid. Killing a dead server does
// nothing.
func (s *Server) Kill(sig syscall.Signal) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	p := s.current()
	if err := p.signal(sig); err != nil {
		return fmt.Errorf("signal postgres: %w", err)
	}
	<-p.exited
	return nil
}

// Restart starts the server again and returns when it accepts connections, after crash recovery. A running server is
// shut down first.
func (s *Server) Restart(ctx context.Context) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.stopped {
		return errors.New("restart PostgreSQL: it was stopped for good")
	}
	if err := s.current().stop(ctx); err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	crashed, err := s.clear(ctx)
	if err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	if err := s.up(ctx, crashed); err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	return nil
}

// Stop shuts the server down (fast: open transactions are rolled back), waits for it and releases the directory. A
// throwaway cluster is removed. If ctx ends first, the server is killed and Stop returns an error that says so.
// Stopping twice does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	if err := errors.Join(s.current().stop(ctx), s.release()); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	return nil
}

// release gives up the directory; the lock comes last.
func (s *Server) release() error {
	err := removeAll(s.location.sockets)
	if s.throwaway {
		err = errors.Join(err, removeAll(s.location.dir))
	}
	return errors.Join(err, s.lock.Close())
}

// clear removes what an earlier server of this directory left, even a running one, and reports whether it found
// anything.
func (s *Server) clear(ctx context.Context) (crashed bool, err error) {
	crashed, err = stopLeftover(ctx, s.data())
	if err != nil {
		return crashed, err
	}
	return crashed, s.location.freshSockets()
}

func (s *Server) data() string { return filepath.Join(s.location.dir, "data") }

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// initCluster creates the cluster under another name and renames it, so that a partial one is never mistaken for a
// whole one.
func (s *Server) initCluster(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(s.data(), "PG_VERSION")); err == nil {
		return nil
	}
	fresh := s.data() + ".new"
	if err := removeAll(fresh); err != nil {
		return err
	}
	args := []string{"-D", fresh, "-U", superuser, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-instructions"}
	if s.throwaway {
		args = append(args, "--no-sync")
	}
	// The kernel signals a child when the thread that forked it ends, so this thread must last as long as initdb does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), args...)
	s.runAs(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if err := os.Rename(fresh, s.data()); err != nil {
		return fmt.Errorf("rename the new cluster: %w", err)
	}
	return nil
}

func (s *Server) runAs(cmd *exec.Cmd) {
	cmd.Dir = s.location.dir
	cmd.Env = s.location.env()
	cmd.SysProcAttr = childAttr(s.location.cred)
}

// rotateLog limits the log of a cluster that is kept for months: one old file of a few megabytes.
func (s *Server) rotateLog() error {
	info, err := os.Stat(s.LogFile())
	if err != nil || info.Size() < 4<<20 {
		return nil
	}
	if err := os.Rename(s.LogFile(), s.LogFile()+".1"); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	return nil
}

// up starts a postmaster and waits until it is ready. After a crash the first attempts may fail, because orphaned
// backends hold the shared memory for a moment; up repeats them until retryLimit.
func (s *Server) up(ctx context.Context, crashed bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errStartTimeout)
	defer cancel()
	retryUntil := time.Now().Add(retryLimit)
	tick := time.NewTicker(5 * pollEvery)
	defer tick.Stop()
	for {
		offset := fileSize(s.LogFile())
		p, err := s.spawn()
		if err != nil {
			return err
		}
		err = p.awaitReady(ctx, s.data())
		if err == nil {
			s.mu.Lock()
			s.proc = p
			s.mu.Unlock()
			return nil
		}
		if !crashed || !errors.Is(err, errExited) || time.Now().After(retryUntil) {
			p.end(ctx)
			return fmt.Errorf("%w; %s ends:\n%s", err, s.LogFile(), logTail(s.LogFile(), offset))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// spawn forks the postmaster on a thread that lasts until the child is reaped. The kernel mistakes the end of the
// forking thread for the end of the parent, and would shut the server down when the Go runtime retires that thread.
func (s *Server) spawn() (*process, error) {
	out, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer out.Close()
	args := []string{"-D", s.data()}
	for _, name := range slices.Sorted(maps.Keys(s.params)) {
		args = append(args, "-c", name+"="+s.params[name])
	}
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.runAs(cmd)
	cmd.Stdout, cmd.Stderr = out, out
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the server's log says why it ended
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return p, nil
}

var errExited = errors.New("postgres exited")

// awaitReady polls the pid file as pg_ctl does: its last line says when the server accepts connections.
func (p *process) awaitReady(ctx context.Context, data string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		f, err := readPidFile(data)
		if err == nil && f.pid == p.cmd.Process.Pid && f.ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.exited:
			return errExited
		case <-tick.C:
		}
	}
}

func (p *process) signal(sig syscall.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// stop asks for a fast shutdown and waits. If ctx ends first, it ends the server at once.
func (p *process) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopLimit, errStopTimeout)
	defer cancel()
	// A fault test may have stopped the process with SIGSTOP; SIGINT has an effect only after SIGCONT.
	if err := errors.Join(p.signal(syscall.SIGINT), p.signal(syscall.SIGCONT)); err != nil {
		return fmt.Errorf("signal postgres: %w", err)
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		p.end(ctx)
		return fmt.Errorf("killed before its shutdown was complete: %w", context.Cause(ctx))
	}
}

// end stops a server at once. It asks for an immediate shutdown first, because that ends the backends too; after a
// kill they would have to notice by themselves.
func (p *process) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quitLimit)
	defer cancel()
	_ = p.signal(syscall.SIGQUIT) // the kill below follows in any case
	select {
	case <-p.exited:
	case <-ctx.Done():
		_ = p.signal(syscall.SIGKILL)
		<-p.exited
	}
}

// removeAll retries for a moment: backends orphaned by a kill write their last files while the directory is removed.
func removeAll(path string) error {
	end := time.Now().Add(5 * time.Second)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := os.RemoveAll(path)
		if err == nil || !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) || time.Now().After(end) {
			return err
		}
		<-tick.C
	}
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
