package console

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/operate"
)

// scopesOfEntry names the scopes of which the console needs one.
const scopesOfEntry = "operator:read, tenant:read and tasks:write"

// mayEnter reports whether there is any page for a principal.
func mayEnter(p *auth.Principal) bool {
	return p.Has(auth.ScopeOperatorRead) || p.Has(auth.ScopeTenantRead) || p.Has(auth.ScopeTasksWrite)
}

// mayRead reports whether the viewer may see tasks of others: all of them, or those of the own tenant.
func (v *viewer) mayRead() bool {
	return v.principal.Has(auth.ScopeOperatorRead) || v.principal.Has(auth.ScopeTenantRead)
}

// Reader reports whether the viewer sees what happened inside the server: attempts, workers and actions.
func (v *viewer) Reader() bool { return v.mayRead() }

// MayWrite reports whether the viewer may act on all tasks that it sees.
func (v *viewer) MayWrite() bool { return v.principal.Has(auth.ScopeOperatorWrite) && v.mayRead() }

// Operator reports whether the viewer sees the pages about the whole server.
func (v *viewer) Operator() bool { return v.principal.Has(auth.ScopeOperatorRead) }

// MayPlay reports whether the playground is for the viewer.
func (v *viewer) MayPlay() bool {
	return v.Operator() || !v.mayRead() && v.principal.Has(auth.ScopeTasksWrite)
}

// tenant returns the only tenant that the viewer sees; empty: all.
func (v *viewer) tenant() string {
	if v.principal.Has(auth.ScopeOperatorRead) {
		return ""
	}
	return v.principal.Tenant
}

// owner returns the only owner in the tenant whose tasks the viewer sees; empty: all.
func (v *viewer) owner() string {
	if v.mayRead() {
		return ""
	}
	return v.principal.Owner
}

// mayAct reports whether the viewer may answer or cancel a task: an operator, or its owner.
func (v *viewer) mayAct(t *operate.TaskRow) bool {
	p := &v.principal
	return v.MayWrite() || p.Has(auth.ScopeTasksWrite) && t.Tenant == p.Tenant && t.Owner == p.Owner
}

// lacks is the answer to a viewer without any of the scopes that a page or an action needs.
func lacks(scopes ...auth.Scope) error {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	return &problem{http.StatusForbidden, "Not permitted",
		fmt.Sprintf("This needs the scope %s, and you signed in without it.", strings.Join(names, " or "))}
}

// errForbidden is for actions of operators.
var errForbidden = lacks(auth.ScopeOperatorWrite)

// owners is for pages that every viewer sees, with the tasks that the viewer may see.
func owners(h func(*request) error) func(*request) error {
	return func(q *request) error {
		if !mayEnter(&q.principal) {
			return lacks(auth.ScopeOperatorRead, auth.ScopeTenantRead, auth.ScopeTasksWrite)
		}
		return h(q)
	}
}

// readers is for pages about tasks that show more than their owners may see.
func readers(h func(*request) error) func(*request) error {
	return func(q *request) error {
		if !q.mayRead() {
			return lacks(auth.ScopeOperatorRead, auth.ScopeTenantRead)
		}
		return h(q)
	}
}

// operators is for pages about the whole server.
func operators(h func(*request) error) func(*request) error {
	return func(q *request) error {
		if q.Operator() {
			return h(q)
		}
		if q.r.URL.Path == Prefix+"/" && mayEnter(&q.principal) { // the start page of others
			start := "/tasks"
			if !q.mayRead() {
				start = "/inbox"
			}
			http.Redirect(q.w, q.r, Prefix+start, http.StatusFound)
			return nil
		}
		return lacks(auth.ScopeOperatorRead)
	}
}

// changes is for actions of operators.
func changes(h func(*request) error) func(*request) error {
	return func(q *request) error {
		if err := q.checkForm(); err != nil {
			return err
		}
		if !q.MayWrite() {
			return errForbidden
		}
		return h(q)
	}
}

// acts is for what operators and owners do with a task. The action asks mayAct about the task.
func acts(h func(*request) error) func(*request) error {
	return func(q *request) error {
		if err := q.checkForm(); err != nil {
			return err
		}
		return owners(h)(q)
	}
}

// players is for the playground.
func players(h func(*request) error) func(*request) error {
	return func(q *request) error {
		if !q.MayPlay() {
			return lacks(auth.ScopeOperatorRead)
		}
		return h(q)
	}
}

// sends is for messages that the viewer sends as a client of agents.
func sends(h func(*request) error) func(*request) error {
	return func(q *request) error {
		if err := q.checkForm(); err != nil {
			return err
		}
		if !q.principal.Has(auth.ScopeTasksWrite) {
			return lacks(auth.ScopeTasksWrite)
		}
		return players(h)(q)
	}
}
