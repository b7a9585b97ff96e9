package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
)

const tasksPage = 50

// states are all states, in the order in which a task passes them.
var states = []a2a.State{
	a2a.StateSubmitted, a2a.StateWorking, a2a.StateInputRequired, a2a.StateAuthRequired, a2a.StateCompleted,
	a2a.StateFailed, a2a.StateCanceled, a2a.StateRejected,
}

// choice is one value of a filter.
type choice struct {
	Value string
	State a2a.State // of a filter by state
	On    bool
}

// searchTimeout is how long a search may take.
const searchTimeout = 5 * time.Second

// tasksView is the page of tasks.
type tasksView struct {
	Rows    []operate.FoundTask
	States  []choice
	Agents  []choice
	Since   []choice
	Form    url.Values    // the filters that are texts
	Wide    bool          // one of the filters that are seldom used is set
	Failure *failureGroup // of which these are the tasks; nil: no filter by it
	Bulk    []bulkLink    // what can be done with all tasks that match
	More    string        // URL of the next page; empty: this is the last one
	Newest  string        // URL of the first page; empty: this is it
	Problem string
	Fixed   bool // the viewer sees one tenant only
	Saved   savedViews
}

// Text returns the value of a filter.
func (v *tasksView) Text(name string) string { return v.Form.Get(name) }

// periods are the choices of the filter by time.
var periods = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour}

func (c *Console) showTasks(q *request) error {
	form := q.r.URL.Query()
	if id, err := a2a.ParseID(strings.TrimSpace(form.Get("q"))); err == nil {
		http.Redirect(q.w, q.r, Prefix+"/tasks/"+id.String(), http.StatusFound)
		return nil
	}
	v := &tasksView{Form: form, Fixed: q.tenant() != "", Agents: c.agentChoices(form.Get("agent"))}
	v.Wide = form.Get("text")+form.Get("error")+form.Get("context")+form.Get("parked") != ""
	for _, s := range states {
		v.States = append(v.States, choice{s.String(), s, slices.Contains(form["state"], s.String())})
	}
	for _, p := range []string{"1h", "24h", "7d"} {
		v.Since = append(v.Since, choice{Value: p, On: form.Get("since") == p})
	}
	if q.MayWrite() {
		v.Bulk = bulkLinks(form)
	}
	var err error
	if v.Saved, err = c.readViews(q); err != nil {
		return err
	}
	if group := form.Get("failure"); group != "" && q.mayRead() {
		if err := c.tasksOfFailure(q, v, group); err != nil {
			return err
		}
		return c.render(q, "tasks", "Tasks", v)
	}
	f := taskSearch(q, form)
	f.Limit = tasksPage + 1
	if before, err := a2a.ParseID(form.Get("before")); err == nil {
		if f.After, err = c.position(q, before); err != nil {
			return err
		}
		v.Newest = pathWith("/tasks", form, "before", "")
	}
	var rows []operate.FoundTask
	rows, err = c.cfg.Store.Operate.SearchTasks(q.Context(), f)
	switch {
	case errors.Is(err, operate.ErrNoPrefix):
		v.Problem = "No id begins like this. An id has the digits 0-9 and a-f."
	case errors.Is(err, operate.ErrSearchTooLong):
		v.Problem = "The search took too long. Narrow it, for example by agent or time."
	case err != nil:
		return err
	}
	if len(rows) > tasksPage {
		rows = rows[:tasksPage]
		v.More = pathWith("/tasks", form, "before", rows[tasksPage-1].ID.String())
	}
	for i := range rows {
		q.hideInside(&rows[i].TaskRow)
		if !q.mayRead() {
			rows[i].Error = ""
		}
	}
	v.Rows = rows
	return c.render(q, "tasks", "Tasks", v)
}

// hideInside removes from a row what only readers may see: how the server works on the task.
func (q *request) hideInside(t *operate.TaskRow) {
	if !q.mayRead() {
		t.Worker, t.LeaseUntil, t.Attempt, t.Parked, t.Assignee = "", time.Time{}, 0, nil, ""
	}
}

// taskSearch returns what the filters of a URL select among the tasks that the viewer may see.
func taskSearch(q *request, form url.Values) operate.TaskSearch {
	text := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	f := operate.TaskSearch{
		Prefix: text("q"), Tenant: text("tenant"), Owner: text("owner"), ContextID: text("context"),
		Text: text("text"), Error: text("error"), Parked: form.Get("parked") != "", Timeout: searchTimeout,
	}
	if only := q.tenant(); only != "" {
		f.Tenant = only
	}
	if only := q.owner(); only != "" { // errors of attempts are not for owners
		f.Owner, f.Error = only, ""
	}
	if agent := form.Get("agent"); agent != "" {
		f.Agents = []string{agent}
	}
	for _, s := range states {
		if slices.Contains(form["state"], s.String()) {
			f.States = append(f.States, s)
		}
	}
	if d := periods[form.Get("since")]; d > 0 {
		f.Since = time.Now().Add(-d)
	}
	return f
}

// position returns where a list continues after a task. A task that was removed since is found by its id.
func (c *Console) position(q *request, id a2a.ID) (operate.Position, error) {
	at := operate.Position{CreatedAt: db.IDTime(id), ID: id}
	found, err := c.cfg.Store.Operate.SearchTasks(q.Context(), operate.TaskSearch{
		ID: id, Tenant: q.tenant(), Owner: q.owner(), Limit: 1, Timeout: searchTimeout,
	})
	if len(found) > 0 {
		at.CreatedAt = found[0].CreatedAt
	}
	return at, err
}

// pathWith returns the URL of a page with one parameter changed; an empty value removes it.
func pathWith(path string, form url.Values, name, value string) string {
	next := url.Values{}
	for k, list := range form {
		if k != name {
			next[k] = list
		}
	}
	if value != "" {
		next.Set(name, value)
	}
	return Prefix + path + "?" + next.Encode()
}

func (c *Console) agentChoices(chosen string) []choice {
	var list []choice
	known := chosen == ""
	for _, a := range c.cfg.Agents() {
		list = append(list, choice{Value: a.Name, On: a.Name == chosen})
		known = known || a.Name == chosen
	}
	if !known { // an agent that this server no longer has
		list = append(list, choice{Value: chosen, On: true})
	}
	return list
}

// find returns the task of a path, if the viewer may see it.
func (c *Console) find(q *request) (operate.TaskRow, error) {
	id, err := a2a.ParseID(q.r.PathValue("id"))
	if err != nil {
		return operate.TaskRow{}, errNotFound
	}
	found, err := c.cfg.Store.Operate.SearchTasks(q.Context(), operate.TaskSearch{
		ID: id, Tenant: q.tenant(), Owner: q.owner(), Limit: 1, Timeout: searchTimeout,
	})
	if err != nil {
		return operate.TaskRow{}, err
	}
	if len(found) == 0 {
		return operate.TaskRow{}, errNotFound
	}
	q.hideInside(&found[0].TaskRow)
	return found[0].TaskRow, nil
}
