package a2a

import (
	"cmp"
	"time"
)

// Agent is one agent as its file describes it, without the program that does the work.
type Agent struct {
	Name        string // path segment under /agents/, and the queue of its tasks
	Default     bool
	Card        Card
	Extended    *Card // what signed-in callers see in its place; nil: there is no other
	Limits      Limits
	OnBusy      OnBusy
	OnLostLease OnLostLease
	DedupeByID  bool                // dedupe: message_id
	DirectReply bool                // it may answer with a message in place of a task
	RepliesTo   func(*Message) bool // narrows DirectReply to some messages; nil: any
	PushOff     bool
	Retention   Retention         // of what it leaves
	Inputs      map[string]Schema // by skill id: what its data parts must fit
}

// MayReply reports whether the agent may answer m with a message in place of a task.
func (a *Agent) MayReply(m *Message) bool {
	return a.DirectReply && (a.RepliesTo == nil || a.RepliesTo(m))
}

// Skills returns all that the agent can do: those of its card, and those that only signed-in callers
// see.
func (a *Agent) Skills() []Skill {
	if a.Extended != nil {
		return a.Extended.Skills
	}
	return a.Card.Skills
}

// Schema says what a JSON value must fit. It is safe for concurrent use.
type Schema interface {
	// Check returns what does not fit, and the path to it from the value, like .a[0]; or two empty texts.
	Check(v Raw) (path, mismatch string)
}

// Limits bound the runs of one agent. Zero means the server's default.
type Limits struct {
	Concurrency int // runs at once in one replica
	MaxAttempts int
	BackoffBase time.Duration
	BackoffMax  time.Duration
	LeaseTTL    time.Duration
	Deadline    time.Duration // of one turn, over all its attempts
	IdleTimeout time.Duration // between two events of a run
}

// Or returns the limits with those of def where l sets none.
func (l Limits) Or(def Limits) Limits {
	return Limits{
		Concurrency: cmp.Or(l.Concurrency, def.Concurrency), MaxAttempts: cmp.Or(l.MaxAttempts, def.MaxAttempts),
		BackoffBase: cmp.Or(l.BackoffBase, def.BackoffBase), BackoffMax: cmp.Or(l.BackoffMax, def.BackoffMax),
		LeaseTTL: cmp.Or(l.LeaseTTL, def.LeaseTTL), Deadline: cmp.Or(l.Deadline, def.Deadline),
		IdleTimeout: cmp.Or(l.IdleTimeout, def.IdleTimeout),
	}
}

// OnBusy says what becomes of a message to a task that is being worked on.
type OnBusy uint8

// A queued message is the next turn; a rejected one is CodeUnsupportedOperation.
const (
	OnBusyQueue OnBusy = iota
	OnBusyReject
)

// OnLostLease says what becomes of a task whose worker is no longer heard of.
type OnLostLease uint8

// The default runs the task again; agents whose work must not happen twice choose another.
const (
	LostLeaseRetry OnLostLease = iota
	LostLeaseFail
	LostLeaseInputRequired
)
