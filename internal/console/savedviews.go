package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/store/access"
)

// filters are the parameters of the list of tasks that a saved view keeps.
var filters = []string{"q", "agent", "since", "tenant", "owner", "state", "text", "error", "context", "parked"}

// What a saved view may have, in characters and in bytes.
const (
	maxViewName  = 60
	maxViewQuery = 2000
)

// filterQuery returns the filters of a URL in one form, so that equal filters are equal texts.
func filterQuery(form url.Values) string {
	kept := url.Values{}
	for _, name := range filters {
		list := slices.Clone(form[name])
		slices.Sort(list)
		list = slices.DeleteFunc(list, func(v string) bool { return strings.TrimSpace(v) == "" })
		if len(list) > 0 {
			kept[name] = list
		}
	}
	return kept.Encode()
}

// savedView is a saved view as a link.
type savedView struct{ access.SavedView }

// URL returns the address of the view.
func (v savedView) URL() string { return Prefix + "/tasks?" + v.Query }

// savedViews are the views that the page of tasks shows.
type savedViews struct {
	Views   []savedView
	Current *savedView // whose filters are set; nil: none
	Query   string     // the filters that are set; empty: none are
	Change  bool       // the viewer may save and remove views
}

// readViews reads the views for an operator. They name tenants and owners, so support staff of one tenant do not see
// them.
func (c *Console) readViews(q *request) (v savedViews, err error) {
	if !q.Operator() {
		return v, nil
	}
	v.Query, v.Change = filterQuery(q.r.URL.Query()), q.MayWrite()
	list, err := c.cfg.Store.Access.SavedViews(q.Context())
	if err != nil {
		return v, err
	}
	for _, s := range list {
		v.Views = append(v.Views, savedView{s})
		if s.Query == v.Query {
			v.Current = &v.Views[len(v.Views)-1]
		}
	}
	return v, nil
}

// ofViews is for changes of saved views, which all operators share.
func ofViews(h func(*request) error) func(*request) error {
	return changes(func(q *request) error {
		if !q.Operator() {
			return errForbidden
		}
		return h(q)
	})
}

func (c *Console) saveView(q *request) error {
	name := strings.TrimSpace(q.r.PostForm.Get("name"))
	if n := utf8.RuneCountInString(name); n == 0 || n > maxViewName || !utf8.ValidString(name) ||
		strings.Contains(name, "\x00") {
		return invalid("A view needs a name of at most %d characters.", maxViewName)
	}
	form, err := url.ParseQuery(q.r.PostForm.Get("query"))
	query := filterQuery(form)
	if err != nil || query == "" || len(query) > maxViewQuery {
		return invalid("Set filters before you save a view, of at most %d characters.", maxViewQuery)
	}
	if err := c.cfg.Store.Access.SaveView(q.acting(), name, query); err != nil {
		return err
	}
	http.Redirect(q.w, q.r, Prefix+"/tasks?"+query, http.StatusSeeOther)
	return nil
}

func (c *Console) removeView(q *request) error {
	removed, err := c.cfg.Store.Access.RemoveView(q.acting(), q.r.PostForm.Get("name"))
	if err != nil {
		return err
	}
	if !removed {
		return &problem{http.StatusNotFound, "Not found",
			"There is no such view. Another operator may have removed it."}
	}
	return q.backTo("/tasks")
}
