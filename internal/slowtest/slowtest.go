// Package slowtest marks tests that `make test` leaves to the targets of `make test-slow`, because they take long or
// repeat at length what a short test shows. They run unless go test gets -short.
package slowtest

import "testing"

// The targets of the Makefile that run slow tests.
const (
	// Crash is for tests of faults, in all packages but doctest.
	Crash = "test-crash"
	// Docs is for tests that run what the documents say.
	Docs = "test-docs"
)

// Only skips the test under -short, and says which target runs it.
func Only(t testing.TB, target string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("slow: make %s runs it", target)
	}
}
