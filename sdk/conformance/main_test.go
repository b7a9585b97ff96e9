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

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// driver is a program of a library that plays agents, or several programs that take turns: each new worker of a case is
// the next one.
type driver struct {
	name     string
	commands [][]string
}

var drivers []driver

func init() {
	flag.Func("driver", "NAME=COMMAND of a driver; may be repeated", func(s string) error {
		name, command, ok := strings.Cut(s, "=")
		if !ok || strings.TrimSpace(command) == "" {
			return fmt.Errorf("%q is not NAME=COMMAND", s)
		}
		drivers = append(drivers, driver{name, [][]string{strings.Fields(command)}})
		return nil
	})
}

// mixed is a driver in which all libraries take turns: each continues what another one has begun.
func mixed() driver {
	m := driver{name: "mixed"}
	for _, d := range drivers {
		m.commands = append(m.commands, d.commands...)
	}
	return m
}

// buildDir holds the server's binary. It is set before any test can end.
var buildDir string

func TestMain(m *testing.M) {
	storetest.Main(m, func() {
		if buildDir != "" {
			_ = os.RemoveAll(buildDir) // in the temporary directory: leftovers do no harm
		}
	})
}

// build builds the server once.
var build = sync.OnceValue(func() (err error) {
	if buildDir, err = os.MkdirTemp("", "a2ad-conformance-"); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(buildDir, "a2ad"), "../../cmd/a2ad")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the server: %w: %s", err, out)
	}
	return nil
})
