package a2a

// State is the state of a task. The numbers are stored; they never change.
type State int16

// States below 100 may change; those from 100 on are final.
const (
	StateNone          State = 0 // an event that sets no state
	StateSubmitted     State = 1
	StateWorking       State = 2
	StateInputRequired State = 3
	StateAuthRequired  State = 4
	StateCompleted     State = 100
	StateFailed        State = 101
	StateCanceled      State = 102
	StateRejected      State = 103
)

// Terminal reports whether a task in this state can never change again.
func (s State) Terminal() bool { return s >= 100 }

// Interrupted reports whether the task waits for its client: input or authentication.
func (s State) Interrupted() bool { return s == StateInputRequired || s == StateAuthRequired }

// EndsTurn reports whether a run ends when its agent reports this state.
func (s State) EndsTurn() bool { return s.Terminal() || s.Interrupted() }

// Valid reports whether s is one of the eight states of a task.
func (s State) Valid() bool {
	return s >= StateSubmitted && s <= StateAuthRequired || s >= StateCompleted && s <= StateRejected
}

var stateNames = map[State]string{
	StateSubmitted: "submitted", StateWorking: "working", StateInputRequired: "input-required",
	StateAuthRequired: "auth-required", StateCompleted: "completed", StateFailed: "failed",
	StateCanceled: "canceled", StateRejected: "rejected",
}

// String returns the name that logs and the command line show, which is also the 0.3 wire form.
func (s State) String() string {
	if n, ok := stateNames[s]; ok {
		return n
	}
	return "unknown"
}

// ParseState reads the names of String, and the British spelling of "canceled". ok is false for any other text.
func ParseState(name string) (s State, ok bool) {
	if name == "cancelled" {
		return StateCanceled, true
	}
	for s, n := range stateNames {
		if n == name {
			return s, true
		}
	}
	return StateNone, false
}

// Role says who wrote a message. The numbers are stored.
type Role int16

// The two roles of a message.
const (
	RoleUser  Role = 1
	RoleAgent Role = 2
)
