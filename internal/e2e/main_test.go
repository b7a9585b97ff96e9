package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(agentMode); mode != "" {
		os.Exit(agentMain(mode))
	}
	if err := onlySmoke(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	storetest.Main(m, func() {
		if buildDir != "" {
			_ = os.RemoveAll(buildDir) // in the temporary directory: leftovers do no harm
		}
	})
}

// buildDir holds the binaries. It is set before any test can end.
var buildDir string

var makeBuildDir = sync.OnceValue(func() (err error) {
	buildDir, err = os.MkdirTemp("", "a2ad-e2e-")
	return err
})

// build builds the program once per run, with the race detector if the tests have it.
var build = sync.OnceValues(func() (string, error) {
	if !raceEnabled {
		return buildWithoutRace()
	}
	return buildAs("a2ad-race", "-race")
})

// buildWithoutRace is for tests of memory use: the race detector multiplies it.
var buildWithoutRace = sync.OnceValues(func() (string, error) { return buildAs("a2ad") })

func buildAs(name string, flags ...string) (string, error) {
	if err := makeBuildDir(); err != nil {
		return "", err
	}
	binary := filepath.Join(buildDir, name)
	args := append([]string{"build", "-buildvcs=false", "-o", binary}, flags...)
	cmd := exec.Command("go", append(args, "github.com/a2ad/a2ad/cmd/a2ad")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, nil
}
