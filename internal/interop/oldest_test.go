package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The modules with the oldest official Go clients of each version have their own tests: the other tests use the
// newest, and one module cannot have both.
func TestOldestClients(t *testing.T) {
	t.Parallel()
	for _, module := range []string{"go03", "go10"} {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			at := newGRPCAddress(t)
			cmd := exec.CommandContext(testContext(t), "go", "test", "-C", filepath.Join("oldest", module), "-count=1",
				"-v", "./...")
			cmd.Env = append(os.Environ(), "INTEROP_URL="+at.url())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
