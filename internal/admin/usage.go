package admin

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/store/operate"
)

// Defaults of a request for usage.
const (
	usageDays = 30
	mostUsage = 1000
)

// UsageQuery selects usage.
type UsageQuery struct {
	Since time.Time `json:"since,omitempty" doc:"The first day, in UTC: 30 days ago unless given."`
	By    []string  `json:"by,omitempty" doc:"Agent and model unless given." enum:"day,tenant,owner,agent,model"`
}

// UsageList is sums of usage: by day, the oldest first, and then those with the most tokens first.
type UsageList struct {
	Usage []Usage `json:"usage"`
	More  bool    `json:"more,omitempty" doc:"Whether there are more than these 1,000."`
}

// Usage is the usage of a task, or a sum of usage.
type Usage struct {
	Day    string `json:"day,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Model  string `json:"model,omitempty"`

	InputTokens       int64 `json:"inputTokens"`
	OutputTokens      int64 `json:"outputTokens"`
	CachedInputTokens int64 `json:"cachedInputTokens"`
	ReasoningTokens   int64 `json:"reasoningTokens"`
	Requests          int64 `json:"requests"`
}

// NewUsage returns a sum as it is shown.
func NewUsage(s *operate.UsageSum) Usage {
	return Usage{
		Day: s.Day, Tenant: s.Tenant, Owner: s.Owner, Agent: s.Agent, Model: s.Model,
		InputTokens: s.Input, OutputTokens: s.Output, CachedInputTokens: s.Cached, ReasoningTokens: s.Reasoning,
		Requests: s.Requests,
	}
}

// listUsage serves GET /usage.
func (a *API) listUsage(ctx context.Context, r *request) (any, error) {
	if err := r.mustBeForAllAgents("usage is"); err != nil {
		return nil, err
	}
	q := r.query.(*UsageQuery) //nolint:forcetypeassert // the route says so
	since, by := q.Since, q.By
	if since.IsZero() {
		since = time.Now().AddDate(0, 0, -usageDays)
	}
	if len(by) == 0 {
		by = []string{operate.ByAgent, operate.ByModel}
	}
	sums, err := a.store.Operate.Usage(ctx, operate.UsageQuery{Since: since, By: by, Limit: mostUsage + 1})
	if err != nil {
		return nil, err
	}
	list := UsageList{Usage: []Usage{}, More: len(sums) > mostUsage}
	for i := range sums[:min(len(sums), mostUsage)] {
		list.Usage = append(list.Usage, NewUsage(&sums[i]))
	}
	return list, nil
}
