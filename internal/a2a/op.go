package a2a

import "time"

// Op is one operation of the protocol, decoded: SendMessage, GetTask, ListTasks,
// CancelTask, Subscribe, SetPushConfig, GetPushConfig, ListPushConfigs,
// DeletePushConfig or GetExtendedCard. Codecs decode operations, and the engine executes them.
type Op interface{ op() }

// SendMessage starts or continues a task. Stream asks for its events, as StreamRules say.
type SendMessage struct {
	StreamRules
	Message       Message
	Stream        bool
	Blocking      bool // wait until the task ends or needs input
	HistoryLength *int // nil: all
	AcceptedModes []string
	Push          *PushConfig
	Asked         time.Time // of the status whose question the message answers, and no later one; zero: any
	Metadata      Raw
	Digest        [32]byte    // SHA-256 of the params as sent
	Idempotency   string      // Idempotency-Key header; the binding fills it in
	Traceparent   Traceparent // of the request; the binding fills it in
}

// StreamRules are the rules of streams that differ between generations.
type StreamRules struct {
	LastEventID  string // Last-Event-ID header; the binding fills it in
	ResumeAsTask bool   // a resumed stream starts with the Task as of LastEventID instead of the next event
	LastStatus   bool   // if the task has ended, its last status follows the Task, because clients wait for one
}

// GetTask reads one task.
type GetTask struct {
	ID            string
	HistoryLength *int
}

// ListTasks reads a page of the caller's tasks, newest status first.
type ListTasks struct {
	ContextID        string
	State            State // StateNone: any
	UpdatedAfter     time.Time
	PageSize         int // 0: default
	PageToken        string
	HistoryLength    *int
	IncludeArtifacts bool
}

// CancelTask cancels one task. With RepeatOK the cancel of a canceled task returns the task instead of
// CodeTaskNotCancelable: generations differ here.
type CancelTask struct {
	ID       string
	Metadata Raw
	RepeatOK bool
}

// Subscribe follows one task. With EndedOK an ended task returns its snapshot instead of
// CodeUnsupportedOperation: generations differ here.
type Subscribe struct {
	StreamRules
	ID      string
	EndedOK bool
}

// SetPushConfig adds or replaces a webhook of a task.
type SetPushConfig struct {
	TaskID string
	Config PushConfig
}

// GetPushConfig reads one webhook. An empty ConfigID means the default one.
type GetPushConfig struct{ TaskID, ConfigID string }

// ListPushConfigs reads the webhooks of a task.
type ListPushConfigs struct {
	TaskID    string
	PageSize  int // 0: all
	PageToken string
}

// DeletePushConfig deletes one webhook.
type DeletePushConfig struct{ TaskID, ConfigID string }

// GetExtendedCard reads the card for signed-in callers. Undeclared is the error if the agent's public card
// declares none: generations differ here.
type GetExtendedCard struct{ Undeclared ErrorCode }

func (*SendMessage) op()      {}
func (*GetTask) op()          {}
func (*ListTasks) op()        {}
func (*CancelTask) op()       {}
func (*Subscribe) op()        {}
func (*SetPushConfig) op()    {}
func (*GetPushConfig) op()    {}
func (*ListPushConfigs) op()  {}
func (*DeletePushConfig) op() {}
func (*GetExtendedCard) op()  {}

// Versions of webhook payloads. They are stored: a value must never change its meaning.
const (
	PushV03 int16 = 3
	PushV10 int16 = 10
)

// PushConfig is a webhook as its client describes it.
type PushConfig struct {
	ID          string // empty: the default one
	Version     int16  // of the payloads that it receives: PushV03 or PushV10; the codec sets it
	URL         string
	Token       Secret
	Schemes     []string
	Credentials Secret
}

// PushPage is the answer to ListPushConfigs, oldest first.
type PushPage struct {
	Configs   []PushConfig
	NextToken string // empty on the last page
}

// Page is the answer to ListTasks.
type Page struct {
	Tasks     []Task
	NextToken string // empty on the last page
	PageSize  int
	Total     int
	Estimated bool // Total could not be counted in time
}
