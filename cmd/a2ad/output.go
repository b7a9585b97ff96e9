package main

import (
	"github.com/a2ad/a2ad/internal/a2a"
)

// taskExit returns the exit code of a command that has followed a task to this state.
func taskExit(s a2a.State) error {
	switch {
	case s == a2a.StateCompleted, s == a2a.StateNone, s == a2a.StateSubmitted, s == a2a.StateWorking:
		return nil
	case s.Interrupted():
		return &exitError{code: exitTaskWaits}
	default:
		return &exitError{code: exitTaskFailed}
	}
}
