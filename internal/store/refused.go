package store

import "github.com/a2ad/a2ad/internal/a2a"

// What PostgreSQL refuses, by SQLSTATE. An error of any class but those named here and in lost is a fault of ours or of the
// database: it is everybody's who shares the statement, and nobody else's.
//
//	22 54        a value that PostgreSQL cannot hold        one item's; an agent's event: its agent is told
//	23           a rule of the tables is broken             one item's, and a fault of ours
//	55P03 57014  a lock, or a statement, took too long      may be one item's; to callers CodeInternal, to runs ofRun
//	40001 40P01  serialization failure, deadlock            may be one item's; repeated at once (lost)
//	08 53 57     connection, resources, shutdown            everybody's; repeated at once (lost)
//	25006 58     read-only, as in a failover; disk errors   everybody's; CodeUnavailable
//
// Callers are not asked to repeat what took too long: it may take as long again. An agent is charged for the first line alone, and for a task that takes too long to be read (Inputs): a run that ends
// with CodeUnavailable is given back and costs no attempt. What is not listed, a fault of ours or a corrupt table, counts
// as an attempt, so that it cannot go on for ever.

// ofOne reports whether a statement that many share may have been refused for one of them, so that
// the others go well without it. None of it was written.
func ofOne(err error) bool {
	return isCode(err, "22", "23", "54", "40001", "40P01") || blocked(err)
}

// blocked reports whether a statement was given up because it took too long, or waited for too long, for what others have locked.
func blocked(err error) bool { return isCode(err, "55P03", "57014") }

// ofRun gives an error of what a run asks, here or far away, the code that its worker may act on, also if the statement was
// blocked: that is not the agent's fault.
func ofRun(err error) error {
	if blocked(err) {
		return a2a.Error{Code: a2a.CodeUnavailable, Message: "the database took too long"}.With(err)
	}
	return unavailable(err)
}
