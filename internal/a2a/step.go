package a2a

import "time"

// StepKind says what a recorded step is.
type StepKind int16

// The kinds of steps, as stored.
const (
	StepWork StepKind = 1 // work that the agent has done itself
	StepWait StepKind = 2 // a wait
	StepCall StepKind = 3 // a task that another agent does
)

// String returns the name that agents and the audit views see.
func (k StepKind) String() string {
	switch k {
	case StepWork:
		return "step"
	case StepWait:
		return "wait"
	case StepCall:
		return "call"
	}
	return "unknown"
}

// Step is a piece of work that a run has done, or has failed to do. It is recorded in one transaction with the other
// events of its batch. A later run of the task gets what is recorded, so that it need not do the work again.
type Step struct {
	Key       string    // unique in the task
	Name      string    // of the work, for people; may be empty
	Input     []byte    // digest of what the step was given; nil: the agent does not compare it
	Result    Raw       // of a step that succeeded
	Error     Raw       // of a step that failed
	Attempts  int       // how often the agent tried it
	NextAt    time.Time // when the agent tries a failed step again; zero: the failure is final
	StartedAt time.Time // by the agent's clock; zero: unknown
	EndedAt   time.Time // by the agent's clock; zero: unknown
	Artifact  string    // the artifact that the step writes while it runs; empty: none
	After     int64     // with Artifact: the newest event of the task when the step began first; set by the server
}

// Begins reports whether nothing but the beginning of the step is recorded. Only a step with an artifact has one.
func (s *Step) Begins() bool { return s.Artifact != "" && s.Result == nil && s.Error == nil }

// Open reports whether the step may be recorded again: it has only begun, or has failed and is to be tried again.
func (s *Step) Open() bool { return s.Begins() || !s.NextAt.IsZero() }

// Wait ends a run without ending its turn. The task continues with another run when one of the conditions holds.
// It is the last event of a run.
type Wait struct {
	Key     string        // of the step that records it; empty: the store makes one
	Input   []byte        // digest of what the agent waits for; nil: the agent does not compare it
	Until   time.Time     // the time to continue; zero: see For
	For     time.Duration // instead of Until: how long, from the time at which it is recorded; 0: no limit
	Message bool          // continue when the client sends a message
	Signal  string        // continue when this signal arrives; empty: no signal
	Tasks   []string      // continue when the tasks of the calls with these keys have ended
	Any     bool          // of Tasks: one is enough
	Expects Raw           // of Status: what an answer must look like; may be nil
	Status  *Status       // a question to the client, with a state that interrupts the task; may be nil
}

// Call makes a task of another agent, for the same owner, once per key. It is recorded as a step, which ends when that
// task, the child, has ended. Its result says how.
type Call struct {
	Key     string
	Agent   string // its name on this server
	Message Message
	Input   []byte // digest of the agent and the message as they were given; a repeated call must have the same
	Abandon bool   // the child goes on when the task that called it ends; otherwise it is canceled
}

// StepRecord is a step as it is stored.
type StepRecord struct {
	Step
	Seq   int // 1, 2, 3 … per task, in the order in which steps were first recorded
	Kind  StepKind
	Ended bool  // what is recorded is final
	Child ID    // of a call: the task that it has made
	Call  *Call // of a call that is to be recorded
	Calls []int // of a wait that is to be recorded: the steps of the calls that it waits for
	Again bool  // of a step that begins: it has begun before, so that its artifact is to be restored
}

// EndsRun reports whether an event is the last one of its run: a status that ends the turn, or a wait.
func EndsRun(e Event) bool {
	switch e := e.(type) {
	case *StatusUpdate:
		return e.Status.State.EndsTurn()
	case *Wait:
		return true
	}
	return false
}

func (*Step) event() {}
func (*Wait) event() {}
func (*Call) event() {}
