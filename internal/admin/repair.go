package admin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// maxReason bounds the text of a reason, in bytes.
const maxReason = 1000

// Why is the body of an action that needs nothing but its task.
type Why struct {
	Reason string `json:"reason,omitempty" doc:"Why, for the audit log. At most 1,000 bytes."`
}

func (b *Why) why() string { return b.Reason }

// Retry is the body of a retry.
type Retry struct {
	Why
	Webhooks *bool `json:"webhooks,omitempty" doc:"Whether to copy the webhooks: true unless given."`
}

// Signal is the body of a signal.
type Signal struct {
	Why
	Name  string          `json:"name" doc:"The signal that the task waits for."`
	Value json.RawMessage `json:"value,omitempty" doc:"Any JSON, for the agent: null unless given."`
	Key   string          `json:"key,omitempty" doc:"Idempotency key: with it, the signal is stored once."`
}

// Answer is the body of an answer to a task that waits for input or authentication.
type Answer struct {
	Why
	Text  string          `json:"text,omitempty" doc:"The answer as text. Give it, or data, or both."`
	Data  json.RawMessage `json:"data,omitempty" doc:"The answer as JSON, for a question with a schema."`
	Asked time.Time       `json:"asked,omitempty,omitzero" doc:"Answer only what it asked then: updatedAt of the task."`
	Key   string          `json:"key,omitempty" doc:"Idempotency key: with it, the answer is stored once."`
}

// RetriedTask is a new task and the one that it was made from.
type RetriedTask struct {
	ID        string `json:"id"`
	Of        string `json:"of"`
	ContextID string `json:"contextId"`
	State     string `json:"state"`
}

// ResumedTask is a task that was parked.
type ResumedTask struct {
	ID     string `json:"id"`
	Agent  string `json:"agent"`
	Tenant string `json:"tenant"`
	Owner  string `json:"owner"`
	Parked string `json:"parked" doc:"Why it was parked."`
}

// SignaledTask is a task and the signal that it got.
type SignaledTask struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func checkReason(reason string) error {
	if len(reason) > maxReason {
		return a2a.InvalidParams("reason", "must have at most %d bytes", maxReason)
	}
	return nil
}

// cancelTask serves POST /tasks/{task}/cancel.
func (a *API) cancelTask(ctx context.Context, r *request) (any, error) {
	if err := checkReason(r.body.(*Why).Reason); err != nil { //nolint:forcetypeassert // the route says so
		return nil, err
	}
	id, t, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	if _, err := a.store.Tasks.Cancel(ctx, db.Caller{Tenant: t.Tenant, Owner: t.Owner}, "", id); err != nil {
		return nil, err
	}
	return a.read(ctx, id)
}

var errUnknownKey = refusal{
	http.StatusConflict, "UNKNOWN_KEY",
	"a secret of its webhooks is encrypted with a key that this server lacks: set A2AD_KEYS, or use webhooks=false",
}

// retryTask serves POST /tasks/{task}/retry.
func (a *API) retryTask(ctx context.Context, r *request) (any, error) {
	b := r.body.(*Retry) //nolint:forcetypeassert // the route says so
	if err := checkReason(b.Reason); err != nil {
		return nil, err
	}
	id, _, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	move := a.cfg.MoveSecrets
	if b.Webhooks != nil && !*b.Webhooks {
		move = nil
	}
	made, err := a.store.Tasks.RetryTask(ctx, id, move)
	if errors.Is(err, seal.ErrUnknownKey) {
		return nil, errUnknownKey
	}
	if err != nil {
		return nil, err
	}
	return RetriedTask{made.Task.String(), id.String(), made.ContextID, made.State.String()}, nil
}

// resumeTask serves POST /tasks/{task}/resume. Clients see the reason.
func (a *API) resumeTask(ctx context.Context, r *request) (any, error) {
	reason := r.body.(*Why).Reason //nolint:forcetypeassert // the route says so
	if err := checkReason(reason); err != nil {
		return nil, err
	}
	id, _, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	if reason == "" {
		reason = "resumed by an operator"
	}
	list, err := a.store.Tasks.Resume(ctx, []a2a.ID{id}, reason)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, refusal{http.StatusConflict, ReasonNotParked, "the task is not parked"}
	}
	t := &list[0]
	return ResumedTask{t.Task.String(), t.Agent, t.Tenant, t.Owner, t.Parked}, nil
}

// signalTask serves POST /tasks/{task}/signal.
func (a *API) signalTask(ctx context.Context, r *request) (any, error) {
	b := r.body.(*Signal) //nolint:forcetypeassert // the route says so
	if err := checkReason(b.Reason); err != nil {
		return nil, err
	}
	id, _, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	err = a.store.Tasks.SendSignal(ctx, tasks.Signal{
		Task: id, Name: b.Name, Value: a2a.Raw(b.Value), Key: b.Key, Sender: r.principal.Actor(), Record: true,
	})
	if err != nil {
		return nil, err
	}
	return SignaledTask{id.String(), b.Name}, nil
}

// answerTask serves POST /tasks/{task}/answer. The message belongs to the owner of the task, as all its messages do.
// The audit log says who wrote it.
func (a *API) answerTask(ctx context.Context, r *request) (any, error) {
	b := r.body.(*Answer) //nolint:forcetypeassert // the route says so
	if err := checkReason(b.Reason); err != nil {
		return nil, err
	}
	if b.Text == "" && b.Data == nil {
		return nil, a2a.InvalidParams("text", "give an answer: text, data, or both")
	}
	id, t, err := a.find(ctx, r)
	if err != nil {
		return nil, err
	}
	m := b.message()
	in := tasks.Submission{
		Caller: db.Caller{Tenant: t.Tenant, Owner: t.Owner}, Agent: t.Agent, Task: id, Message: m,
		OnlyWaiting: true, Asked: b.Asked,
		Digest:   sha256.Sum256(append([]byte(b.Text+"\x00"), b.Data...)),
		MaxBytes: a.cfg.MaxTaskBytes, MaxSeq: a.cfg.MaxHistory,
		Answers: func(expects a2a.Raw) error { return agents.CheckAnswer(expects, &m) },
	}
	if b.Key != "" {
		in.Key = "h:" + b.Key
	}
	switch _, err := a.store.Tasks.Submit(ctx, in); {
	case errors.Is(err, tasks.ErrNotWaiting):
		return nil, errNotWaiting
	case errors.Is(err, tasks.ErrOtherQuestion):
		return nil, errOtherQuestion
	case err != nil:
		return nil, err
	}
	return a.read(ctx, id)
}

var (
	errNotWaiting    = refusal{http.StatusConflict, reasonNotWaiting, "the task does not wait for an answer"}
	errOtherQuestion = refusal{
		http.StatusConflict, reasonOtherQuestion, "the task asks another question now: read it, and answer that one",
	}
)

// message returns the answer as a message of the client.
func (b *Answer) message() a2a.Message {
	m := a2a.Message{ID: db.NewUID().String(), Role: a2a.RoleUser}
	if b.Text != "" {
		m.Parts = append(m.Parts, a2a.Part{Kind: a2a.PartText, Text: b.Text})
	}
	if b.Data != nil {
		m.Parts = append(m.Parts, a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(b.Data)})
	}
	return m
}
