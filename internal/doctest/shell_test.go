package doctest_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// patience ends a block that hangs. It is no measure: no block comes near it, however busy the machine.
const patience = 10 * time.Minute

var buildDir string // set by build, before any test can end

// build builds the program once per run, with the race detector if the tests have it.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "a2ad-doctest-")
	if err != nil {
		return "", err
	}
	buildDir = dir
	binary := filepath.Join(dir, "a2ad")
	args := []string{"build", "-buildvcs=false", "-ldflags", "-X main.version=" + newestVersion(), "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "github.com/a2ad/a2ad/cmd/a2ad")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, nil
})

// shell is a sh that runs the blocks of one document in a fresh directory, which contains bin/a2ad and the examples
// like the repository.
type shell struct {
	dir     string
	replace []string // old, new, …: names in the documents and their local replacements
	cmd     *exec.Cmd
	in      *os.File
	lines   chan string // of stdout and stderr; closed when no process can write any more
	blocks  int
}

// newShell starts a shell. Without ownDatabase a2ad finds a database in its environment. A document that creates its
// role and database gets its own PostgreSQL, because roles belong to a whole server.
func newShell(t *testing.T, ownDatabase, ownServer bool) *shell {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("build a2ad: %v", err)
	}
	dir, err := os.MkdirTemp("", "a2ad-doc-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &shell{dir: filepath.Join(dir, "a2ad"), lines: make(chan string, 1024)}
	// The user that runs PostgreSQL for root has to pass through.
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.MkdirAll(filepath.Join(s.dir, "bin"), 0o755),
		os.Symlink(binary, filepath.Join(s.dir, "bin", "a2ad")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	api, admin := freePort(t), freePort(t)
	s.replace = []string{"127.0.0.1:8080", api, "127.0.0.1:9090", admin}
	if ownServer {
		at := freePort(t)
		host, port, _ := strings.Cut(at, ":")
		srv := storetest.NewServer(t, map[string]string{"listen_addresses": host, "port": port})
		s.replace = append(s.replace, administrator, "psql '"+srv.URL("postgres")+"'", "@localhost:5432/", "@"+at+"/")
	} else {
		s.replace = append(s.replace, exampleDatabase, storetest.NewEmpty(t).URL)
	}
	for _, other := range []string{"127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003", "127.0.0.1:8081",
		"127.0.0.1:9091"} {
		s.replace = append(s.replace, other, freePort(t))
	}
	s.copyTree(t, "examples")
	s.start(t, api, admin, ownDatabase)
	return s
}

// made are directories that other tests make in a tree, which a fresh clone does not have.
var made = []string{"node_modules", "build", "dist", "__pycache__"}

// copyTree copies a directory of the repository and replaces the addresses in its files.
func (s *shell) copyTree(t *testing.T, name string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, name), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		to := filepath.Join(s.dir, rel)
		if slices.Contains(made, e.Name()) {
			return fs.SkipDir
		}
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, []byte(s.here(string(text))), info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
}

const (
	exampleDatabase = "postgres://a2ad:password@localhost:5432/a2ad" // the URL of a database in the documents
	administrator   = "sudo -u postgres psql"                        // how the documents call the administrator's psql
)

func (s *shell) start(t *testing.T, api, admin string, ownDatabase bool) {
	t.Helper()
	s.cmd = exec.Command("sh", "-s")
	s.cmd.Dir = s.dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "A2AD_") || strings.HasPrefix(kv, "A2AD_PG_BINDIR=") {
			s.cmd.Env = append(s.cmd.Env, kv)
		}
	}
	s.cmd.Env = append(s.cmd.Env, "PATH="+s.path(t), "PSQLRC="+s.psqlrc(t))
	s.cmd.Env = append(s.cmd.Env, "A2AD_LISTEN="+api, "A2AD_ADMIN_LISTEN="+admin, "A2AD_URL=http://"+api, "NO_PROXY=*",
		"LC_ALL=C.UTF-8")
	if !ownDatabase {
		s.cmd.Env = append(s.cmd.Env, "A2AD_DATABASE_URL="+storetest.New(t).URL)
	}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr, s.in = stdin, stdout, stdout, in
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(s.lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if line != "" {
				s.lines <- strings.TrimSuffix(line, "\n")
			}
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		in.Close()
		// kills the process group, with servers that a failed block has left
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		_ = s.cmd.Wait()
		for range s.lines { // until no process can write any more
		}
		reading.Wait()
		out.Close()
	})
	if _, ok := s.send(t, "set -eu\n"); !ok {
		t.Fatal("the shell does not start")
	}
}

// path returns the search path of the shell: psql is that of the tests' PostgreSQL.
func (s *shell) path(t *testing.T) string {
	t.Helper()
	postgres, err := devpg.FindBinaries(os.Getenv("A2AD_PG_BINDIR"))
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{postgres, os.Getenv("PATH")}
	if _, err := exec.LookPath("curl"); err != nil {
		dirs = append([]string{ownCurl(t, filepath.Dir(s.dir))}, dirs...)
	}
	return strings.Join(dirs, string(os.PathListSeparator))
}

// psqlrc makes psql end a block at the first failed statement: unlike a reader, the test does not see the error.
func (s *shell) psqlrc(t *testing.T) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(s.dir), "psqlrc")
	if err := os.WriteFile(path, []byte("\\set ON_ERROR_STOP on\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// ownCurl creates a directory in dir in which this test binary is called curl.
func ownCurl(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "path")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "curl")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs text and returns its output; ok is false if a command failed.
func (s *shell) run(t *testing.T, text string) (output string, ok bool) {
	t.Helper()
	s.blocks++
	path := filepath.Join(filepath.Dir(s.dir), fmt.Sprintf("block-%d.sh", s.blocks))
	if err := os.WriteFile(path, []byte(s.here(text)), 0o644); err != nil {
		t.Fatal(err)
	}
	return s.send(t, ". "+path+" </dev/null\n")
}

func (s *shell) send(t *testing.T, line string) (output string, ok bool) {
	t.Helper()
	const done = "--- doctest: done ---"
	if _, err := fmt.Fprintf(s.in, "%sprintf '\\n%%s\\n' '%s'\n", line, done); err != nil {
		t.Fatalf("the shell has ended: %v", err)
	}
	var out strings.Builder
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line, open := <-s.lines:
			if !open || line == done {
				return s.there(out.String()), open
			}
			out.WriteString(line + "\n")
		case <-timer.C:
			return s.there(out.String()) + "(no end in " + patience.String() + ")\n", false
		}
	}
}

// here replaces the names in the documents with the local ones, and there does the reverse.
func (s *shell) here(text string) string { return strings.NewReplacer(s.replace...).Replace(text) }

func (s *shell) there(text string) string {
	back := make([]string, len(s.replace))
	for i := 0; i < len(back); i += 2 {
		back[i], back[i+1] = s.replace[i+1], s.replace[i]
	}
	return strings.NewReplacer(back...).Replace(text)
}

// nextPort is the next candidate of freePort, below the ports that the kernel gives to clients.
var nextPort = struct {
	sync.Mutex
	n int
}{n: 20000 + os.Getpid()%5000*2}

// freePort returns an address that is not in use, and that no other call returns.
func freePort(t *testing.T) string {
	t.Helper()
	nextPort.Lock()
	defer nextPort.Unlock()
	for range 1000 {
		nextPort.n++
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", nextPort.n))
		if err != nil {
			continue
		}
		addr := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return addr
	}
	t.Fatal("no free port")
	return ""
}
