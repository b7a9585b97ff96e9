package a2a

import (
	"cmp"
	"time"
)

// Agent is one agent as its file describes it, without the program that does the work.
type Agent struct {
	Name        string // its path segment under /agents/, and the name of its task queue
	Default     bool
	Executor    string // what does its work: echo, script, exec, http, a2a, or pull for remote workers
	Card        Card
	Extended    *Card // the card for signed-in callers; nil: they see Card too
	Limits      Limits
	OnBusy      OnBusy
	OnLostLease OnLostLease
	DedupeByID  bool                // dedupe: message_id
	DirectReply bool                // it may answer with a message instead of a task
	RepliesTo   func(*Message) bool // narrows DirectReply to some messages; nil: any
	PushOff     bool
	Retention   Retention // of its ended tasks
	Schedules   []Schedule
	Inputs      map[string]Schema // schemas of input data parts, by skill id
}

// MayReply reports whether the agent may answer m with a message instead of a task.
func (a *Agent) MayReply(m *Message) bool {
	return a.DirectReply && (a.RepliesTo == nil || a.RepliesTo(m))
}

// Skills returns all skills of the agent: those of its public card, and those that only signed-in callers see.
func (a *Agent) Skills() []Skill {
	if a.Extended != nil {
		return a.Extended.Skills
	}
	return a.Card.Skills
}

// Schema validates JSON values. It is safe for concurrent use.
type Schema interface {
	// Check returns the first mismatch and its path in the value, like .a[0]. Both are empty if the value is
	// valid.
	Check(v Raw) (path, mismatch string)
}

// Limits bound the runs of one agent. Zero means the server's default.
type Limits struct {
	Concurrency int // runs at once in one replica
	MaxAttempts int
	BackoffBase time.Duration
	BackoffMax  time.Duration
	LeaseTTL    time.Duration
	Deadline    time.Duration // of one turn, for all its attempts together
	IdleTimeout time.Duration // between two events of a run
	Unreachable time.Duration // how long a task waits for an agent that cannot be reached
	OnExhausted OnExhausted   // what happens to a task whose attempts are used up
	ParkFor     time.Duration // after that, a parked task fails; negative: never
}

// Or returns l, with the limits of def where l sets none.
func (l Limits) Or(def Limits) Limits {
	return Limits{
		Concurrency: cmp.Or(l.Concurrency, def.Concurrency), MaxAttempts: cmp.Or(l.MaxAttempts, def.MaxAttempts),
		BackoffBase: cmp.Or(l.BackoffBase, def.BackoffBase), BackoffMax: cmp.Or(l.BackoffMax, def.BackoffMax),
		LeaseTTL: cmp.Or(l.LeaseTTL, def.LeaseTTL), Deadline: cmp.Or(l.Deadline, def.Deadline),
		IdleTimeout: cmp.Or(l.IdleTimeout, def.IdleTimeout),
		Unreachable: cmp.Or(l.Unreachable, def.Unreachable), OnExhausted: cmp.Or(l.OnExhausted, def.OnExhausted),
		ParkFor: cmp.Or(l.ParkFor, def.ParkFor),
	}
}

// OnExhausted says what happens to a task whose attempts are used up.
type OnExhausted uint8

// A parked task stays working until an operator resumes it. Zero means the server's default, which is ExhaustedFail if
// it is zero, too.
const (
	ExhaustedFail OnExhausted = iota + 1
	ExhaustedPark
)

// OnBusy says what happens to a message for a task that is running.
type OnBusy uint8

// A queued message becomes the next turn. A rejected one is answered with CodeUnsupportedOperation.
const (
	OnBusyQueue OnBusy = iota
	OnBusyReject
)

// OnLostLease says what happens to a task whose worker lost its lease.
type OnLostLease uint8

// The default runs the task again. Choose another value for an agent whose work must not happen twice.
const (
	LostLeaseRetry OnLostLease = iota
	LostLeaseFail
	LostLeaseInputRequired
)
