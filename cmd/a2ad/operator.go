package main

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store"
)

// operator is what the operator's commands ask of the database: the tasks and keys of
// every tenant. Ids are as the person typed them; one that does not exist, or is none,
// is an error that says so and names it.
type operator interface {
	// Tasks returns tasks, newest first.
	Tasks(ctx context.Context, f taskFilter) ([]taskRow, error)
	Task(ctx context.Context, id string) (taskDetail, error)
	// Watch yields the task as it is, unless after is positive, and then its events
	// behind that, until the task has ended.
	Watch(ctx context.Context, id string, after int64) iter.Seq2[watched, error]
	// Cancel ends a task and returns it; a finished one is an error that says so.
	Cancel(ctx context.Context, id string) (taskRow, error)
	// Retry makes a new task of the input of one that did not end well, and returns it.
	Retry(ctx context.Context, id string) (retriedTask, error)
	// CountPurge returns how many tasks Purge would remove, and Purge how many it has.
	CountPurge(ctx context.Context, f purgeFilter) (int64, error)
	Purge(ctx context.Context, f purgeFilter) (int, error)

	Overview(ctx context.Context) (*store.Overview, error)
	// Actions returns what was done, newest first.
	Actions(ctx context.Context, f actionFilter) ([]actionRow, error)

	CreateKey(ctx context.Context, k keySpec) (createdKey, error)
	Keys(ctx context.Context, tenant string) ([]keyRow, error)
	RevokeKey(ctx context.Context, id string) (keyRow, error)

	// Pushes returns webhooks, newest first; empty filters select all.
	Pushes(ctx context.Context, f pushFilter) ([]pushRow, error)
	PushAttempts(ctx context.Context, id string, limit int) ([]pushTryRow, error)
	// ReplayPush delivers again what follows an event; a negative one means what is not settled.
	ReplayPush(ctx context.Context, id string, after int64) error
	EnableDestination(ctx context.Context, tenant, origin string) (bool, error)
	// Rewrap seals what is stored with the first key of the ring, and returns how much that was:
	// of what it could do too, when it fails at the rest.
	Rewrap(ctx context.Context, ring seal.Ring) (int, error)
	// SealedWith counts the sealed secrets by key.
	SealedWith(ctx context.Context) ([]store.Sealed, error)

	Close()
}

// taskFilter selects tasks; zero values select all.
type taskFilter struct {
	Tenant, Owner, Agent, ContextID string
	States                          []a2a.State
	Prefix                          string // of the id
	Since, Until                    time.Time
	Before                          string // id: only older tasks
	Limit                           int
}

// purgeFilter says what to remove: a task, or what an owner has, or has in a context.
type purgeFilter struct {
	ID, Tenant, Owner, ContextID string
}

// retriedTask is a new task and the one that it was made of.
type retriedTask struct {
	ID        string `json:"id"`
	Of        string `json:"of"`
	ContextID string `json:"contextId"`
	State     string `json:"state"`
}

// taskRow is one task in a list. The JSON is for programs and does not change silently.
type taskRow struct {
	ID         string     `json:"id"`
	State      string     `json:"state"`
	Agent      string     `json:"agent"`
	Tenant     string     `json:"tenant"`
	Owner      string     `json:"owner"`
	ContextID  string     `json:"contextId"`
	CreatedAt  time.Time  `json:"createdAt"`
	UpdatedAt  time.Time  `json:"updatedAt"` // of the state
	Events     int64      `json:"events"`    // seq of the last one
	Attempt    int        `json:"attempt"`
	Epoch      int64      `json:"epoch"`
	Worker     string     `json:"worker,omitempty"`     // who runs it
	LeaseUntil *time.Time `json:"leaseUntil,omitempty"` // nil: nobody does
	ReadyAt    *time.Time `json:"readyAt,omitempty"`    // nil: it does not wait for a worker
}

// attemptRow is one run of a task.
type attemptRow struct {
	Epoch     int64      `json:"epoch"`
	Attempt   int        `json:"attempt"`
	Worker    string     `json:"worker"`
	ClaimedAt time.Time  `json:"claimedAt"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
	Outcome   string     `json:"outcome,omitempty"`
	Error     string     `json:"error,omitempty"`
}

// taskDetail is everything about one task.
type taskDetail struct {
	taskRow
	Attempts []attemptRow    `json:"attempts"`
	Timeline []timelineRow   `json:"timeline"`
	Raw      json.RawMessage `json:"task"` // as A2A 0.3 shows it
	Task     a2a.Task        `json:"-"`
}

// watched is one thing that Watch shows: a snapshot or an event of the log.
type watched struct {
	ID       string // of the event, as SSE names it
	Raw      json.RawMessage
	Snapshot *a2a.Task  // or nil
	Entry    *a2a.Entry // or nil
}

// keySpec is a key to make.
type keySpec struct {
	Tenant, Owner, Name string
	Scopes              []string
	Agents              []string      // nil: all
	ExpiresIn           time.Duration // 0: never
	Env                 string        // what the key says it is for
}

// keyRow is an API key without its secret.
type keyRow struct {
	ID         string     `json:"id"`
	Tenant     string     `json:"tenant"`
	Owner      string     `json:"owner"`
	Name       string     `json:"name,omitempty"`
	Scopes     []string   `json:"scopes"`
	Agents     []string   `json:"agents,omitempty"` // nil: all
	CreatedAt  time.Time  `json:"createdAt"`
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
	RevokedAt  *time.Time `json:"revokedAt,omitempty"`
}

// createdKey is a key at the only moment at which its secret is known.
type createdKey struct {
	ID        string     `json:"id"`
	Key       string     `json:"key"`
	Tenant    string     `json:"tenant"`
	Owner     string     `json:"owner"`
	Name      string     `json:"name,omitempty"`
	Scopes    []string   `json:"scopes"`
	Agents    []string   `json:"agents,omitempty"` // nil: all
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}
