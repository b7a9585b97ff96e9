package storetest

import (
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// Same fails the test if the values differ. An empty list equals a missing one. It ignores the end of a lease, which no
// test can know, and the number of messages of an entry, which the log does not store.
func Same[T any](t rapid.TB, what string, want, got T) {
	t.Helper()
	diff := cmp.Diff(want, got, cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(a2a.Entry{}, "Messages"), cmpopts.IgnoreFields(tasks.Lease{}, "Until"))
	if diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// WantCode fails the test if err does not have that code.
func WantCode(t rapid.TB, err error, code a2a.ErrorCode) {
	t.Helper()
	if err == nil || a2a.CodeOf(err) != code {
		t.Errorf("error = %v, want one with code %s", err, code.Reason())
	}
}

// Fold returns the artifacts that a list of events makes.
func Fold(events []a2a.Event) (artifacts []a2a.Artifact) {
	for _, e := range events {
		if u, ok := e.(*a2a.ArtifactUpdate); ok {
			artifacts = a2a.Fold(artifacts, u)
		}
	}
	return artifacts
}
