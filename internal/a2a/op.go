package a2a

import "time"

// Op is one operation of the protocol, decoded: SendMessage, GetTask, ListTasks,
// CancelTask, Subscribe, SetPushConfig, GetPushConfig, ListPushConfigs,
// DeletePushConfig or GetExtendedCard. Codecs make them, the engine carries them out.
type Op interface{ op() }

// SendMessage starts a task or continues one. Stream asks for its events, by StreamRules.
type SendMessage struct {
	StreamRules
	Message       Message
	Stream        bool
	Blocking      bool // wait until the task ends or waits for its client
	HistoryLength *int // nil: all
	AcceptedModes []string
	Push          *PushConfig
	Metadata      Raw
	Digest        [32]byte    // SHA-256 of the params as sent
	Idempotency   string      // Idempotency-Key header; the binding fills it in
	Traceparent   Traceparent // of the request; the binding fills it in
}

// StreamRules is what generations ask of a stream of events.
type StreamRules struct {
	LastEventID  string // Last-Event-ID header; the binding fills it in
	ResumeAsTask bool   // a resumed stream starts with the Task as of LastEventID instead of the next event
	LastStatus   bool   // of a task with no more to come, the last status follows the Task, for those who wait for one
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

// CancelTask ends one task. With RepeatOK the cancel of a canceled task answers with
// the task instead of CodeTaskNotCancelable: generations differ here.
type CancelTask struct {
	ID       string
	Metadata Raw
	RepeatOK bool
}

// Subscribe follows one task. With EndedOK a finished one answers with its snapshot
// instead of CodeUnsupportedOperation: generations differ here.
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

// GetPushConfig reads one webhook; an empty ConfigID asks for the default one.
type GetPushConfig struct{ TaskID, ConfigID string }

// ListPushConfigs reads the webhooks of a task.
type ListPushConfigs struct {
	TaskID    string
	PageSize  int // 0: all
	PageToken string
}

// DeletePushConfig ends one webhook.
type DeletePushConfig struct{ TaskID, ConfigID string }

// GetExtendedCard reads the card for signed-in callers. Undeclared is the error where the
// agent's card speaks of none: generations differ here.
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
