package console

import (
	"slices"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/schedules"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

const listPage = 100

// agentRow is an agent that this server serves.
type agentRow struct {
	*a2a.Agent
	Outage *operate.Outage
	Paused *tasks.Stop // nil: it is not
}

func (c *Console) showAgents(q *request) error {
	outages, err := c.cfg.Store.Tasks.Outages(q.Context())
	if err != nil {
		return err
	}
	stops, err := c.cfg.Store.Tasks.Stops(q.Context())
	if err != nil {
		return err
	}
	var rows []agentRow
	for _, a := range c.cfg.Agents() {
		r := agentRow{Agent: a}
		if i := slices.IndexFunc(outages, func(o operate.Outage) bool { return o.Agent == a.Name }); i >= 0 {
			r.Outage = &outages[i]
		}
		r.Paused = stopOf(stops, tasks.StopAgent, a.Name)
		rows = append(rows, r)
	}
	return c.render(q, "agents", "Agents", rows)
}

// stopOf returns the stop of an agent or a worker, or nil.
func stopOf(list []tasks.Stop, kind tasks.Stoppable, name string) *tasks.Stop {
	i := slices.IndexFunc(list, func(s tasks.Stop) bool { return s.Kind == kind && s.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// webhooksView is the page of webhooks.
type webhooksView struct {
	Rows  []webhooks.Row
	Down  []operate.DestinationDown
	State string
	More  string
}

func (c *Console) showWebhooks(q *request) error {
	f := webhooks.Filter{State: q.r.URL.Query().Get("state"), Limit: listPage + 1}
	if before, err := a2a.ParseID(q.r.URL.Query().Get("before")); err == nil {
		f.Before = before
	}
	list, err := c.cfg.Store.Webhooks.List(q.Context(), f)
	if err != nil {
		return err
	}
	v := &webhooksView{Rows: list, State: f.State}
	if v.Down, err = c.cfg.Store.Operate.DestinationsDown(q.Context()); err != nil {
		return err
	}
	if len(list) > listPage {
		v.Rows = list[:listPage]
		v.More = Prefix + "/webhooks?state=" + f.State + "&before=" + v.Rows[listPage-1].Row.String()
	}
	return c.render(q, "webhooks", "Webhooks", v)
}

func (c *Console) showSchedules(q *request) error {
	list, err := c.cfg.Store.Schedules.List(q.Context(), nil)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(s schedules.Schedule) bool { return !s.RemovedAt.IsZero() })
	return c.render(q, "schedules", "Schedules", list)
}

// auditView is the page of the audit log.
type auditView struct {
	Rows   []access.Recorded
	Action string
	Actor  string
	More   string
}

func (c *Console) showAudit(q *request) error {
	form := q.r.URL.Query()
	f := access.ActionFilter{Name: form.Get("action"), Actor: strings.TrimSpace(form.Get("actor")), Limit: listPage + 1}
	f.Before, _ = strconv.ParseInt(form.Get("before"), 10, 64)
	list, err := c.cfg.Store.Access.Actions(q.Context(), f)
	if err != nil {
		return err
	}
	v := &auditView{Rows: list, Action: f.Name, Actor: f.Actor}
	if len(list) > listPage {
		v.Rows = list[:listPage]
		form.Set("before", strconv.FormatInt(v.Rows[listPage-1].ID, 10))
		v.More = Prefix + "/audit?" + form.Encode()
	}
	return c.render(q, "audit", "Audit log", v)
}
