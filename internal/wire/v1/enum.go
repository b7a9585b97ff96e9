package v1

import (
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Enumerations, in the order of their numbers. Number 0 is the unspecified value.
var (
	states = [...]a2a.State{
		a2a.StateNone, a2a.StateSubmitted, a2a.StateWorking, a2a.StateCompleted, a2a.StateFailed, a2a.StateCanceled,
		a2a.StateInputRequired, a2a.StateRejected, a2a.StateAuthRequired,
	}
	stateNames = []string{
		"TASK_STATE_UNSPECIFIED", "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED", "TASK_STATE_FAILED",
		"TASK_STATE_CANCELED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_REJECTED", "TASK_STATE_AUTH_REQUIRED",
	}
	roleNames = []string{"ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"}
)

// stateName returns the name of a state.
func stateName(s a2a.State) string { return stateNames[max(slices.Index(states[:], s), 0)] }

// state reads a state to look for; the unspecified one is any.
func (d *decoder) state(member string, v []byte) a2a.State {
	n := number(v, stateNames)
	if n < 0 {
		d.Fail(member, "must be a task state, such as TASK_STATE_WORKING")
		return a2a.StateNone
	}
	return states[n]
}

// role takes both roles, as the official servers do: a client may bring along what
// another agent said.
func (d *decoder) role(v []byte) a2a.Role {
	d.Need("role", v)
	switch number(v, roleNames) {
	case 1:
		return a2a.RoleUser
	case 2:
		return a2a.RoleAgent
	}
	d.Fail("role", "must be ROLE_USER or ROLE_AGENT")
	return 0
}

// number reads a value of an enumeration, given by its name or its number, and returns
// its number, or -1 for anything else.
func number(v []byte, names []string) int {
	if n, ok := rawjson.Int(v); ok && n >= 0 && n < int64(len(names)) {
		return int(n)
	}
	for n, name := range names {
		if len(v) == len(name)+2 && string(v[1:len(v)-1]) == name {
			return n // as it is nearly always written: no copy is needed
		}
	}
	name, ok := rawjson.String(v)
	if !ok {
		return -1
	}
	return slices.Index(names, name)
}
