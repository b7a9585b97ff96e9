// Package check tests the invariants of a2ad on a database and on what clients saw: no loss, legal states, one log
// without a gap for all readers, fencing, idempotency.
//
// It reads only the views of schema audit and shares no code with the server, so that tests, soaks and skeptical
// users can rely on it. Run it at quiescence: load off, faults healed, agents done.
package check

import "fmt"

// Violation is one case in which an invariant does not hold. Name is the invariant's, as in the headings of
// invariants.sql and in the comments of this package.
type Violation struct {
	Name   string
	Task   string // empty: not about one task
	Detail string
}

func (v Violation) String() string { return fmt.Sprintf("%s: task %s: %s", v.Name, v.Task, v.Detail) }

// faults collects violations.
type faults []Violation

func (f *faults) add(name, task, format string, args ...any) {
	*f = append(*f, Violation{name, task, fmt.Sprintf(format, args...)})
}
