package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/jobs"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// bulkAction is an action on all tasks that filters select.
type bulkAction struct {
	Name   jobs.Action // in URLs
	Verb   string      // on buttons
	Past   string      // "3 tasks were …"
	Effect string      // what it means
}

var bulkActions = []*bulkAction{
	{
		jobs.Cancel, "Cancel", "canceled",
		"Canceling ends tasks for good: their agents are stopped, their callers see them canceled, and tasks that " +
			"they have called are canceled, too.",
	},
	{
		jobs.Retry, "Retry", "retried",
		"A retry makes a new task from the first message of each, with the same caller, context and webhooks. Work " +
			"of the old tasks that had effects may be done twice. Tasks that were retried before are left out.",
	},
	{
		jobs.Resume, "Resume", "resumed",
		"Resuming gives parked tasks fresh attempts and puts them into the queue. Their callers see your reason.",
	},
}

func bulkNamed(name jobs.Action) *bulkAction {
	i := slices.IndexFunc(bulkActions, func(a *bulkAction) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return bulkActions[i]
}

// bulkLink leads to the page that asks whether to act on all tasks that match.
type bulkLink struct{ Verb, URL string }

func bulkLinks(form url.Values) (list []bulkLink) {
	for _, a := range bulkActions {
		list = append(list, bulkLink{a.Verb, pathWith("/tasks/bulk", form, "action", string(a.Name))})
	}
	return list
}

// bulkView asks whether to start a job.
type bulkView struct {
	*bulkAction
	jobs.Count
	Stored string // the filter of the job, for the form
	Filter []filterText
	Back   string
}

type filterText struct{ Name, Value string }

// showBulk counts the tasks that the filters select, and asks. The form leaves out tasks that are created later, which
// the viewer has not seen.
func (c *Console) showBulk(q *request) error {
	form := q.r.URL.Query()
	action := bulkNamed(jobs.Action(form.Get("action")))
	if action == nil {
		return errNotFound
	}
	if !q.MayWrite() {
		return errForbidden
	}
	form.Del("action")
	form.Del("before")
	if name := unknownFilter(form); name != "" {
		return invalid("This server does not know the filter %q. Without it, more tasks would match.", name)
	}
	v := &bulkView{bulkAction: action, Back: pathWith("/tasks", form, "", ""), Filter: filterTexts(form)}
	filter, some, err := c.jobFilter(q, form)
	if err != nil {
		return err
	}
	if some {
		if v.Count, err = c.cfg.Store.Jobs.Count(q.Context(), action.Name, &filter, searchTimeout); err != nil &&
			!errors.Is(err, operate.ErrNoPrefix) {
			return err
		}
	}
	if filter.Until.IsZero() || filter.Until.After(v.At) {
		filter.Until = v.At
	}
	stored, err := json.Marshal(filter)
	if err != nil {
		return err
	}
	v.Stored = string(stored)
	return c.render(q, "bulk", action.Verb+" tasks", v)
}

// unknownFilter returns the name of a filter in a URL that this server does not know, or of one with such a value. The
// link may be that of a newer server. It returns "" if there is none.
func unknownFilter(form url.Values) string {
	for name, values := range form {
		for _, value := range values {
			known := slices.Contains(filters, name) || name == "failure"
			switch name {
			case "state":
				known = slices.ContainsFunc(states, func(s a2a.State) bool { return s.String() == value })
			case "since":
				known = periods[value] > 0
			}
			if value != "" && !known {
				return name
			}
		}
	}
	return ""
}

func filterTexts(form url.Values) (list []filterText) {
	for name, values := range form {
		for _, value := range values {
			if value != "" {
				list = append(list, filterText{name, value})
			}
		}
	}
	slices.SortFunc(list, func(a, b filterText) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return list
}

// jobFilter returns what the filters of a URL select. It reports false if that is nothing.
func (c *Console) jobFilter(q *request, form url.Values) (f jobs.Filter, some bool, err error) {
	if group := form.Get("failure"); group != "" {
		rows, _, err := c.failuresOf(q, group)
		for i := range rows {
			f.IDs = append(f.IDs, rows[i].ID.String())
		}
		return f, len(rows) > 0, err
	}
	s := taskSearch(q, form)
	f = jobs.Filter{
		ID: s.Prefix, Agent: s.Agents, Tenant: s.Tenant, Owner: s.Owner, Context: s.ContextID, Since: s.Since,
		Text: s.Text, Error: s.Error, Parked: s.Parked,
	}
	for _, state := range s.States {
		f.State = append(f.State, state.String())
	}
	return f, true, nil
}

// startJob starts the job that the viewer has confirmed.
func (c *Console) startJob(q *request) error {
	action := bulkNamed(jobs.Action(q.r.PostForm.Get("action")))
	if action == nil {
		return errNotFound
	}
	if err := q.needsReason(); err != nil {
		return err
	}
	var filter jobs.Filter
	form := json.NewDecoder(strings.NewReader(q.r.PostForm.Get("filter")))
	form.DisallowUnknownFields() // the form may be that of a newer server
	if err := form.Decode(&filter); err != nil {
		return invalid("The filter of the form cannot be read. Count the tasks again.")
	}
	if _, err := filter.Search(); err != nil {
		return err
	}
	if only := q.tenant(); only != "" { // whatever the form says
		filter.Tenant = only
	}
	job, err := c.cfg.Store.Jobs.Start(q.acting(), jobs.NewJob{Action: action.Name, Filter: filter, Webhooks: true})
	if err != nil {
		return err
	}
	http.Redirect(q.w, q.r, Prefix+"/jobs/"+job.ID.String(), http.StatusSeeOther)
	return nil
}
