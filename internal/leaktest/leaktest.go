// Package leaktest fails the tests of a package that leave goroutines running. It waits for goroutines that are about
// to end, however busy the machine is; goleak alone waits for half a second.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is a guard against hanging, not a measure.
const patience = 2 * time.Minute

// Main runs the tests of a package, and then each end, in order. If the tests pass but goroutines remain, it prints
// them and fails. Call it from TestMain; it does not return.
func Main(m *testing.M, ends ...func()) {
	code := m.Run()
	for _, end := range ends {
		end()
	}
	if code == 0 {
		if err := left(patience, goleak.Find); err != nil {
			fmt.Fprintln(os.Stderr, "the tests passed, but left goroutines running:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// left asks find for goroutines until there are none. Each call of goleak.Find pauses between its own tries.
func left(patience time.Duration, find func(...goleak.Option) error) error {
	for start := time.Now(); ; {
		if err := find(); err == nil || time.Since(start) >= patience {
			return err
		}
	}
}
