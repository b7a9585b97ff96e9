// Package check holds the invariants of a2ad against what a database keeps and what clients saw: no loss, legal
// states, one log without a gap for all who read it, fencing, idempotency.
//
// It reads the views of schema audit and nothing else of the database, and shares no code with the server, so that
// tests, soaks and people who doubt can all use it. Run it at quiescence: load off, faults healed, agents done.
package check

import "fmt"

// Violation is one place where an invariant does not hold. Name is that of the invariant, as in the headings of
// invariants.sql and in the comments of this package.
type Violation struct {
	Name   string
	Task   string // empty: not of one task
	Detail string
}

func (v Violation) String() string { return fmt.Sprintf("%s: task %s: %s", v.Name, v.Task, v.Detail) }

// faults collects violations.
type faults []Violation

func (f *faults) add(name, task, format string, args ...any) {
	*f = append(*f, Violation{name, task, fmt.Sprintf(format, args...)})
}
