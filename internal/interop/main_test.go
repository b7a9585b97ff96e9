package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// testLimit bounds one test. It allows for a busy machine: normally each wait takes moments.
	testLimit  = 5 * time.Minute
	buildLimit = 8 * time.Minute
)

// tests is what all tests of this process share.
var tests suite

type suite struct {
	dir    string // for all files; removed at the end
	binary string // a2ad, built from this tree
}

func TestMain(m *testing.M) {
	if address := os.Getenv(oldCounterEnv); address != "" {
		fmt.Fprintln(os.Stderr, "stopped:", serveOldCounter(address))
		os.Exit(1)
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	tests.dir, err = os.MkdirTemp("", "a2ad-interop-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tests.dir)) }()
	// Open enough for the user that runs PostgreSQL when the tests run as root.
	if err := os.Chmod(tests.dir, 0o711); err != nil {
		return 1, err
	}
	if err := tests.build(); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, errors.Join(stopShared(), goleak.Find())
}

// build builds the binary, because an old one proves nothing. It has the race detector if the tests have it.
func (s *suite) build() error {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	s.binary = filepath.Join(s.dir, "a2ad")
	args := []string{"build", "-C", filepath.Join("..", ".."), "-o", s.binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "./cmd/a2ad")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build a2ad: %w\n%s", err, out)
	}
	return nil
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), testLimit, errors.New("the test takes too long"))
	t.Cleanup(cancel)
	return ctx
}
