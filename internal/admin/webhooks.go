package admin

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// WebhookQuery selects webhooks. Filters that are not given select all.
type WebhookQuery struct {
	Task   string `json:"task,omitempty" doc:"Only webhooks of this task."`
	Tenant string `json:"tenant,omitempty" doc:"Only webhooks of this tenant."`
	Owner  string `json:"owner,omitempty" doc:"Only webhooks of this owner."`
	Origin string `json:"origin,omitempty" doc:"Only webhooks to this destination: scheme://host:port."`
	State  string `json:"state,omitempty" doc:"Only webhooks in this state." enum:"active,done,dead,disabled"`
	Limit  int    `json:"limit,omitempty" doc:"At most this many webhooks: 50 unless given." range:"1-1000"`
	Cursor string `json:"cursor,omitempty" doc:"Only webhooks older than the one with this id: the next page."`
}

// WebhookList is a page of webhooks.
type WebhookList struct {
	Webhooks []Webhook `json:"webhooks"`
	Next     string    `json:"next,omitempty" doc:"The cursor of the next page; missing on the last one."`
}

// Webhook is one webhook. Its JSON does not change silently.
type Webhook struct {
	ID            string     `json:"id"`
	TaskID        string     `json:"taskId"`
	ConfigID      string     `json:"configId"`
	Tenant        string     `json:"tenant"`
	Owner         string     `json:"owner"`
	URL           string     `json:"url" doc:"Without its query, which may be secret."`
	Origin        string     `json:"origin" doc:"Its destination: scheme://host:port."`
	State         string     `json:"state" doc:"active, done, dead or disabled."`
	Reason        string     `json:"reason,omitempty" doc:"Why it is dead or disabled."`
	Cursor        int64      `json:"cursor" doc:"The newest event that was delivered."`
	Head          int64      `json:"head" doc:"The newest event."`
	Attempt       int        `json:"attempt"`
	NextAttemptAt *time.Time `json:"nextAttemptAt,omitempty" doc:"Missing if there is nothing to deliver."`
	CreatedAt     time.Time  `json:"createdAt"`
	DeletedAt     *time.Time `json:"deletedAt,omitempty"`
	OpenUntil     *time.Time `json:"destinationRestsUntil,omitempty" doc:"Its circuit breaker is open until then."`
	DisabledAt    *time.Time `json:"destinationDisabledAt,omitempty" doc:"Disabled since then."`
}

func newWebhook(p *webhooks.Row) Webhook {
	return Webhook{
		ID: p.Row.String(), TaskID: p.Task.String(), ConfigID: p.ConfigID, Tenant: p.Tenant, Owner: p.Owner,
		URL: p.URL, Origin: p.Origin, State: p.State, Reason: p.Reason, Cursor: p.Cursor, Head: p.Head,
		Attempt: p.Attempt, NextAttemptAt: orNil(p.NextAttemptAt), CreatedAt: p.CreatedAt,
		DeletedAt: orNil(p.DeletedAt), OpenUntil: orNil(p.OpenUntil), DisabledAt: orNil(p.DisabledAt),
	}
}

// AttemptQuery bounds a list of attempts to deliver.
type AttemptQuery struct {
	Limit int `json:"limit,omitempty" doc:"At most this many of the newest attempts: 50 unless given." range:"1-10000"`
}

// DeliveryList is the newest attempts of a webhook, the newest first.
type DeliveryList struct {
	Attempts []Delivery `json:"attempts"`
}

// Delivery is one attempt to deliver.
type Delivery struct {
	From      int64     `json:"from" doc:"The attempt covers the events after this one."`
	Seq       int64     `json:"seq" doc:"The last of these events."`
	Outcome   string    `json:"outcome" doc:"delivered, failed or skipped."`
	Attempt   int       `json:"attempt"`
	Trigger   string    `json:"trigger" doc:"auto; or manual, for a replay."`
	StartedAt time.Time `json:"startedAt"`
	Ms        int64     `json:"ms"`
	RemoteIP  string    `json:"remoteIp,omitempty"`
	Status    int       `json:"status,omitempty"`
	Class     string    `json:"class,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Answer    string    `json:"answer,omitempty" doc:"The beginning of what the receiver answered."`
}

func newDelivery(t *webhooks.LedgerEntry) Delivery {
	return Delivery{
		From: t.From, Seq: t.Seq, Outcome: t.Outcome, Attempt: t.Attempt, Trigger: t.Trigger, StartedAt: t.StartedAt,
		Ms: t.Took.Milliseconds(), RemoteIP: t.RemoteIP, Status: t.Status, Class: t.Class, Reason: t.Reason,
		Answer: string(t.Answer),
	}
}

// Replay is the body of a replay of a webhook.
type Replay struct {
	Why
	After *int64 `json:"after,omitempty" doc:"Deliver again what came after this event. Missing: what is left."`
}

// ReplayedWebhook is a webhook that delivers again.
type ReplayedWebhook struct {
	ID       string `json:"id"`
	Replayed bool   `json:"replayed"`
}

// ReasonNothingToReplay is the reason of a refused replay.
const ReasonNothingToReplay = "NOTHING_TO_REPLAY"

var errNoWebhook = refusal{http.StatusNotFound, reasonNotFound, webhooks.ErrNotFound.Error()}

// listWebhooks serves GET /webhooks.
func (a *API) listWebhooks(ctx context.Context, r *request) (any, error) {
	q := r.query.(*WebhookQuery) //nolint:forcetypeassert // the route says so
	f := webhooks.Filter{
		Tenant: q.Tenant, Owner: q.Owner, Origin: q.Origin, State: q.State, Limit: defaultLimit,
		Timeout: a.cfg.SearchTimeout,
	}
	var err error
	if q.Task != "" {
		if f.Task, err = a2a.ParseID(q.Task); err != nil {
			return nil, a2a.InvalidParams("task", "is not a task id")
		}
	}
	if q.Cursor != "" {
		if f.Before, err = a2a.ParseID(q.Cursor); err != nil {
			return nil, a2a.InvalidParams("cursor", "is not the next of an answer")
		}
	}
	if q.Limit > 0 {
		f.Limit = q.Limit
	}
	list := WebhookList{Webhooks: []Webhook{}}
	if ok, err := r.ownTenant(&f.Tenant); !ok || err != nil {
		return list, err
	}
	f.Limit++ // to see whether there is a next page
	found, err := a.store.Webhooks.List(ctx, f)
	if err != nil {
		return nil, searchError(err)
	}
	if len(found) == f.Limit {
		found = found[:f.Limit-1]
		list.Next = found[len(found)-1].Row.String()
	}
	for i := range found {
		list.Webhooks = append(list.Webhooks, newWebhook(&found[i]))
	}
	return list, nil
}

// ownTenant narrows what is asked about a tenant's webhooks to what the caller may see, and reports whether anything
// can be left.
func (r *request) ownTenant(tenant *string) (bool, error) {
	if err := r.mustBeForAllAgents("webhooks are"); err != nil || r.everyTenant() {
		return err == nil, err
	}
	if *tenant != "" && *tenant != r.principal.Tenant {
		return false, nil
	}
	*tenant = r.principal.Tenant
	return true, nil
}

// searchError turns the error of a search that was given up into one for callers.
func searchError(err error) error {
	if db.Blocked(err) {
		return operate.ErrSearchTooLong
	}
	return db.Unavailable(err)
}

// webhookOf returns the id of the webhook in the path of a request, if the caller may know of it.
func (a *API) webhookOf(ctx context.Context, r *request) (id a2a.ID, err error) {
	f := webhooks.Filter{Limit: 1, Timeout: a.cfg.SearchTimeout}
	if _, err := r.ownTenant(&f.Tenant); err != nil {
		return id, err
	}
	if f.Row, err = a2a.ParseID(r.PathValue("webhook")); err != nil {
		return id, errNoWebhook
	}
	found, err := a.store.Webhooks.List(ctx, f)
	if err == nil && len(found) == 0 {
		return id, errNoWebhook
	}
	return f.Row, err
}

// listDeliveries serves GET /webhooks/{webhook}/attempts.
func (a *API) listDeliveries(ctx context.Context, r *request) (any, error) {
	q := r.query.(*AttemptQuery) //nolint:forcetypeassert // the route says so
	limit := defaultLimit
	if q.Limit > 0 {
		limit = q.Limit
	}
	id, err := a.webhookOf(ctx, r)
	if err != nil {
		return nil, err
	}
	found, err := a.store.Webhooks.Attempts(ctx, id, limit)
	if err != nil {
		return nil, webhookError(err)
	}
	list := DeliveryList{Attempts: make([]Delivery, len(found))}
	for i := range found {
		list.Attempts[i] = newDelivery(&found[i])
	}
	return list, nil
}

// webhookError turns an error of the store into one for callers.
func webhookError(err error) error {
	switch {
	case errors.Is(err, webhooks.ErrNotFound):
		return errNoWebhook
	case errors.Is(err, webhooks.ErrNothingToReplay):
		return refusal{http.StatusConflict, ReasonNothingToReplay, webhooks.ErrNothingToReplay.Error()}
	}
	return err
}

// replayWebhook serves POST /webhooks/{webhook}/replay.
func (a *API) replayWebhook(ctx context.Context, r *request) (any, error) {
	b := r.body.(*Replay) //nolint:forcetypeassert // the route says so
	if err := checkReason(b.Reason); err != nil {
		return nil, err
	}
	after := int64(math.MaxInt64)
	if b.After != nil {
		if after = *b.After; after < 0 {
			return nil, a2a.InvalidParams("after", "must not be negative")
		}
	}
	id, err := a.webhookOf(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := a.store.Webhooks.Replay(ctx, id, after); err != nil {
		return nil, webhookError(err)
	}
	return ReplayedWebhook{id.String(), true}, nil
}
