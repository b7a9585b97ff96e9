package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(agentMode); mode != "" {
		os.Exit(agentMain(mode))
	}
	storetest.Main(m, goleak.Cleanup(func(code int) {
		if buildDir != "" {
			_ = os.RemoveAll(buildDir) // in the temporary directory: no harm if it stays
		}
		os.Exit(code)
	}))
}

// buildDir holds the binary. It is written by build, before any test can end.
var buildDir string

// build makes the program once a run: with the race detector if the tests have it.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "a2ad-e2e-")
	if err != nil {
		return "", err
	}
	buildDir = dir
	binary := filepath.Join(dir, "a2ad")
	args := []string{"build", "-buildvcs=false", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "github.com/a2ad/a2ad/cmd/a2ad")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, nil
})
