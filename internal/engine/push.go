package engine

import (
	"context"
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
)

// PushRules say which webhooks may be set. Without Check none may.
type PushRules struct {
	// Check refuses a webhook that could not be delivered to, with an *a2a.Error.
	Check func(c *a2a.PushConfig) error
	// Origin is scheme://host:port of a URL that Check let pass.
	Origin func(url string) string
	// Seal encrypts the secrets of a webhook for its row.
	Seal func(row a2a.ID, c *a2a.PushConfig) (token, credentials []byte, err error)
	Max  int // per task; 0: no limit
}

// DefaultPushID is the id of a webhook that its client did not name, so that setting it again
// replaces it (T-10 in docs/protocol.md).
const DefaultPushID = "default"

var errNoPush = &a2a.Error{Code: a2a.CodePushNotSupported, Message: "push notifications are not supported"}

// Pushes reports whether webhooks may be set on tasks of an agent.
func (e *Engine) Pushes(agent *a2a.Agent) bool { return e.cfg.Push.Check != nil && !agent.PushOff }

// newPush checks a webhook and fills in what its client may leave out. nil stays nil.
func (e *Engine) newPush(agent *a2a.Agent, c *a2a.PushConfig) (*store.NewPush, error) {
	if c == nil {
		return nil, nil
	}
	if !e.Pushes(agent) {
		return nil, errNoPush
	}
	if err := e.cfg.Push.Check(c); err != nil {
		return nil, err
	}
	if c.ID == "" {
		c.ID = DefaultPushID
	}
	version := store.PushV03
	if c.Generation == "1.0" {
		version = store.PushV10
	}
	return &store.NewPush{
		ConfigID: c.ID, URL: c.URL, Origin: e.cfg.Push.Origin(c.URL), Schemes: c.Schemes, Version: version,
		Seal: func(row a2a.ID) (token, credentials []byte, err error) { return e.cfg.Push.Seal(row, c) },
	}, nil
}

// SetPush adds a webhook to a task of the caller, or replaces the one with its id. It is
// returned without its secrets.
func (e *Engine) SetPush(ctx context.Context, c store.Caller, agent *a2a.Agent, op *a2a.SetPushConfig) (*a2a.PushConfig, error) {
	if !e.Pushes(agent) {
		return nil, errNoPush
	}
	leave, err := e.writes.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	id, _, err := e.head(ctx, c, agent, op.TaskID)
	if err != nil {
		return nil, err
	}
	push, err := e.newPush(agent, &op.Config)
	if err != nil {
		return nil, err
	}
	if err := e.store.SetPush(ctx, c, agent.Name, id, *push, e.cfg.Push.Max); err != nil {
		return nil, err
	}
	return &a2a.PushConfig{ID: push.ConfigID, URL: push.URL, Schemes: push.Schemes}, nil
}

// GetPush reads one webhook. Without an id it is the default one, else the oldest.
func (e *Engine) GetPush(ctx context.Context, c store.Caller, agent *a2a.Agent, op *a2a.GetPushConfig) (*a2a.PushConfig, error) {
	all, err := e.pushes(ctx, c, agent, op.TaskID, op.ConfigID)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, &a2a.Error{Code: a2a.CodeTaskNotFound, Message: "push notification config not found"}
	}
	i := max(slices.IndexFunc(all, func(p a2a.PushConfig) bool { return p.ID == DefaultPushID }), 0)
	return &all[i], nil
}

// ListPushes reads the webhooks of a task, oldest first.
func (e *Engine) ListPushes(ctx context.Context, c store.Caller, agent *a2a.Agent, op *a2a.ListPushConfigs) ([]a2a.PushConfig, error) {
	return e.pushes(ctx, c, agent, op.TaskID, "")
}

func (e *Engine) pushes(ctx context.Context, c store.Caller, agent *a2a.Agent, taskID, configID string) ([]a2a.PushConfig, error) {
	if !e.Pushes(agent) {
		return nil, errNoPush
	}
	leave, err := e.reads.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	id, _, err := e.head(ctx, c, agent, taskID)
	if err != nil {
		return nil, err
	}
	rows, err := e.store.Pushes(ctx, c, id, configID)
	if err != nil {
		return nil, err
	}
	all := make([]a2a.PushConfig, len(rows))
	for i, r := range rows {
		all[i] = a2a.PushConfig{ID: r.ConfigID, URL: r.URL, Schemes: r.Schemes}
	}
	return all, nil
}

// DeletePush ends a webhook: when it returns no request to it starts any more. One that does
// not exist is deleted already.
func (e *Engine) DeletePush(ctx context.Context, c store.Caller, agent *a2a.Agent, op *a2a.DeletePushConfig) error {
	if !e.Pushes(agent) {
		return errNoPush
	}
	leave, err := e.writes.enter()
	if err != nil {
		return err
	}
	defer leave()
	id, _, err := e.head(ctx, c, agent, op.TaskID)
	if err != nil {
		return err
	}
	configID := op.ConfigID
	if configID == "" {
		configID = DefaultPushID
	}
	return e.store.DeletePush(ctx, c, id, configID)
}
