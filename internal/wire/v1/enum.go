package v1

import (
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// Names of enumerations, in the order of their numbers. Number 0 is the unspecified value.
var (
	states = [...]a2a.State{
		a2a.StateNone, a2a.StateSubmitted, a2a.StateWorking, a2a.StateCompleted, a2a.StateFailed, a2a.StateCanceled,
		a2a.StateInputRequired, a2a.StateRejected, a2a.StateAuthRequired,
	}
	stateNames = []string{
		"TASK_STATE_UNSPECIFIED", "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED",
		"TASK_STATE_FAILED",
		"TASK_STATE_CANCELED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_REJECTED", "TASK_STATE_AUTH_REQUIRED",
	}
)

// stateName returns the name of a state.
func stateName(s a2a.State) string { return stateNames[max(slices.Index(states[:], s), 0)] }

// state reads a state to filter by. The unspecified one matches any state.
func (d *decoder) state(member string, v []byte) a2a.State {
	n := decode.Enum(v, stateNames)
	if n < 0 {
		d.Fail(member, "must be a task state, such as TASK_STATE_WORKING")
		return a2a.StateNone
	}
	return states[n]
}
