package engine

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// PushRules says which webhooks may be set. Without Check none may.
type PushRules struct {
	// Check refuses a webhook that cannot be delivered to, with an *a2a.Error.
	Check func(c *a2a.PushConfig) error
	// Origin returns scheme://host:port of a URL that Check accepted.
	Origin func(url string) string
	// Seal encrypts the secrets of a webhook for its row.
	Seal func(row a2a.ID, c *a2a.PushConfig) (token, credentials []byte, err error)
	// SealURL encrypts the query of a webhook's URL and returns the URL without it. nil: URLs are
	// stored as they are.
	SealURL func(row a2a.ID, url string) (string, []byte, error)
	Max     int // per task; 0: no limit
}

// DefaultPushID is the id of a webhook without one, so that setting it again replaces it (T-10 in
// docs/reference/protocol.md).
const DefaultPushID = "default"

var errNoPush = &a2a.Error{Code: a2a.CodePushNotSupported, Message: "push notifications are not supported"}

// Pushes reports whether webhooks may be set on tasks of an agent.
func (e *Engine) Pushes(agent *a2a.Agent) bool { return e.cfg.Push.Check != nil && !agent.PushOff }

// newPush checks a webhook and fills in what its client left out. It returns nil for nil.
func (e *Engine) newPush(agent *a2a.Agent, c *a2a.PushConfig) (*webhooks.NewWebhook, error) {
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
	p := &webhooks.NewWebhook{
		ConfigID: c.ID, URL: c.URL, Origin: e.cfg.Push.Origin(c.URL), Schemes: c.Schemes, Version: c.Version,
		Seal: func(row a2a.ID) (token, credentials []byte, err error) { return e.cfg.Push.Seal(row, c) },
	}
	if e.cfg.Push.SealURL != nil {
		p.SealURL = func(row a2a.ID) (url string, query []byte, err error) { return e.cfg.Push.SealURL(row, c.URL) }
	}
	return p, nil
}

// SetPush adds a webhook to a task of the caller, or replaces the one with the same id. The result
// has no secrets.
func (e *Engine) SetPush(ctx context.Context, c db.Caller, agent *a2a.Agent,
	op *a2a.SetPushConfig) (*a2a.PushConfig, error) {
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
	if err := e.store.Tasks.SetWebhook(ctx, c, agent.Name, id, *push, e.cfg.Push.Max); err != nil {
		return nil, err
	}
	return &a2a.PushConfig{ID: push.ConfigID, URL: a2a.RedactURL(push.URL), Schemes: push.Schemes}, nil
}

// GetPush reads one webhook. Without an id it returns the default one, else the oldest.
func (e *Engine) GetPush(ctx context.Context, c db.Caller, agent *a2a.Agent,
	op *a2a.GetPushConfig) (*a2a.PushConfig, error) {
	_, rows, err := e.pushes(ctx, c, agent, op.TaskID, op.ConfigID)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, &a2a.Error{Code: a2a.CodeTaskNotFound, Message: "push notification config not found"}
	}
	i := max(slices.IndexFunc(rows, func(p webhooks.Webhook) bool { return p.ConfigID == DefaultPushID }), 0)
	return &configs(rows[i : i+1])[0], nil
}

func configs(rows []webhooks.Webhook) []a2a.PushConfig {
	list := make([]a2a.PushConfig, len(rows))
	for i, r := range rows {
		list[i] = a2a.PushConfig{ID: r.ConfigID, URL: r.URL, Schemes: r.Schemes}
	}
	return list
}

// ListPushes reads a page of the webhooks of a task, oldest first. There are few, so it reads all
// and returns a part.
func (e *Engine) ListPushes(ctx context.Context, c db.Caller, agent *a2a.Agent,
	op *a2a.ListPushConfigs) (*a2a.PushPage, error) {
	if op.PageSize < 0 {
		return nil, a2a.InvalidParams("pageSize", "must not be negative")
	}
	id, rows, err := e.pushes(ctx, c, agent, op.TaskID, "")
	if err != nil {
		return nil, err
	}
	if op.PageToken != "" {
		last, err := e.pages.open(op.PageToken, boundPush(c, id))
		if err != nil {
			return nil, err
		}
		rows = slices.DeleteFunc(rows, func(p webhooks.Webhook) bool {
			return cmp.Or(p.CreatedAt.Compare(last.At), bytes.Compare(p.Row[:], last.ID[:])) <= 0
		})
	}
	page := &a2a.PushPage{}
	if n := op.PageSize; n > 0 && n < len(rows) {
		page.NextToken = e.pages.seal(tasks.Position{At: rows[n-1].CreatedAt, ID: rows[n-1].Row}, boundPush(c, id))
		rows = rows[:n]
	}
	page.Configs = configs(rows)
	return page, nil
}

func (e *Engine) pushes(ctx context.Context, c db.Caller, agent *a2a.Agent,
	taskID, configID string) (a2a.ID, []webhooks.Webhook, error) {
	if !e.Pushes(agent) {
		return a2a.ID{}, nil, errNoPush
	}
	leave, err := e.reads.enter()
	if err != nil {
		return a2a.ID{}, nil, err
	}
	defer leave()
	id, _, err := e.head(ctx, c, agent, taskID)
	if err != nil {
		return id, nil, err
	}
	rows, err := e.store.Webhooks.OfTask(ctx, c, id, configID)
	return id, rows, err
}

// DeletePush removes a webhook. After it returns no request to the webhook starts. A webhook that
// does not exist counts as removed.
func (e *Engine) DeletePush(ctx context.Context, c db.Caller, agent *a2a.Agent, op *a2a.DeletePushConfig) error {
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
	return e.store.Webhooks.Delete(ctx, c, id, configID)
}
