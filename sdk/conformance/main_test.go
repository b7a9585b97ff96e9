package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// driver is the program of one library that plays agents.
type driver struct {
	name    string
	command []string
}

// extra are the drivers of other languages than Go.
var extra []driver

func init() {
	flag.Func("driver", "NAME=COMMAND of another driver; may be repeated", func(s string) error {
		name, command, ok := strings.Cut(s, "=")
		if !ok || strings.TrimSpace(command) == "" {
			return fmt.Errorf("%q is not NAME=COMMAND", s)
		}
		extra = append(extra, driver{name, strings.Fields(command)})
		return nil
	})
}

// buildDir holds the binaries. It is set before any test can end.
var buildDir string

func TestMain(m *testing.M) {
	storetest.Main(m, goleak.Cleanup(func(code int) {
		if buildDir != "" {
			_ = os.RemoveAll(buildDir) // in the temporary directory: leftovers do no harm
		}
		os.Exit(code)
	}))
}

// build builds the server and the driver of Go once.
var build = sync.OnceValue(func() (err error) {
	if buildDir, err = os.MkdirTemp("", "a2ad-conformance-"); err != nil {
		return err
	}
	for name, dir := range map[string]string{"a2ad": "../../cmd/a2ad", "driver": "../go/internal/conformance"} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(buildDir, name), ".")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", dir, err, out)
		}
	}
	return nil
})

// drivers returns the driver of Go, and those of the flags.
func drivers(t *testing.T) []driver {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return append([]driver{{"go", []string{filepath.Join(buildDir, "driver")}}}, extra...)
}
