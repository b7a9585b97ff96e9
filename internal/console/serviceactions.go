package console

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// ofService is for actions on the whole service: they need to read and to write all of it.
func ofService(h func(*request) error) func(*request) error {
	return changes(func(q *request) error {
		if !q.Operator() {
			return lacks(auth.ScopeOperatorRead)
		}
		if err := q.needsReason(); err != nil {
			return err
		}
		return h(q)
	})
}

// maxNamed bounds the name of an agent or a worker in a form, in bytes.
const maxNamed = 256

// named returns the name of what an action is about.
func (q *request) named() (string, error) {
	name := q.r.PostForm.Get("name")
	if name == "" || len(name) > maxNamed {
		return "", &problem{http.StatusUnprocessableEntity, "Not done", "The form names nothing."}
	}
	return name, nil
}

// backTo shows a page again after an action.
func (q *request) backTo(page string) error {
	http.Redirect(q.w, q.r, Prefix+page, http.StatusSeeOther)
	return nil
}

func (c *Console) pauseAgent(q *request) error { return c.beginStop(q, tasks.StopAgent, "/agents") }

func (c *Console) resumeAgent(q *request) error { return c.endStop(q, tasks.StopAgent, "/agents") }

func (c *Console) drainWorker(q *request) error { return c.beginStop(q, tasks.StopWorker, "/workers") }

func (c *Console) resumeWorker(q *request) error { return c.endStop(q, tasks.StopWorker, "/workers") }

func (c *Console) beginStop(q *request, kind tasks.Stoppable, page string) error {
	name, err := q.named()
	if err != nil {
		return err
	}
	expire := kind == tasks.StopWorker && q.r.PostForm.Get("expire") != ""
	if _, _, err := c.cfg.Store.Tasks.BeginStop(q.acting(), kind, name, expire); err != nil {
		return err
	}
	return q.backTo(page)
}

func (c *Console) endStop(q *request, kind tasks.Stoppable, page string) error {
	name, err := q.named()
	if err != nil {
		return err
	}
	if _, err := c.cfg.Store.Tasks.EndStop(q.acting(), kind, name); err != nil {
		return err
	}
	return q.backTo(page)
}

// destination returns the tenant and the origin in a form.
func (q *request) destination() (tenant, origin string, err error) {
	tenant, origin = q.r.PostForm.Get("tenant"), q.r.PostForm.Get("origin")
	if tenant == "" || origin == "" {
		err = &problem{http.StatusUnprocessableEntity, "Not done", "The form names no destination."}
	}
	return tenant, origin, err
}

func (c *Console) enableDestination(q *request) error {
	tenant, origin, err := q.destination()
	if err != nil {
		return err
	}
	if _, err := c.cfg.Store.Webhooks.EnableDestination(q.acting(), tenant, origin); err != nil {
		return err
	}
	return q.backTo("/webhooks")
}

const (
	replayMost  = 1000 // webhooks of a destination, for one form
	replayHours = 24 * 365
)

// replayDestination delivers again what a destination may have missed.
func (c *Console) replayDestination(q *request) error {
	tenant, origin, err := q.destination()
	if err != nil {
		return err
	}
	hours, err := strconv.Atoi(q.r.PostForm.Get("hours"))
	if err != nil || hours < 1 || hours > replayHours {
		return &problem{http.StatusUnprocessableEntity, "Not done", "Write for how many hours to deliver again."}
	}
	done, err := c.cfg.Store.Webhooks.ReplaySince(q.acting(), webhooks.ReplayRange{
		Tenant: tenant, Origin: origin, Since: time.Now().Add(-time.Duration(hours) * time.Hour), Limit: replayMost,
	})
	if err != nil {
		return err
	}
	if done.More {
		return &problem{http.StatusConflict, "Partly done", fmt.Sprintf("%s will be delivered again, and there are "+
			"more. Run \"a2ad push replay --tenant %s --origin %s --since %dh\" for the rest.",
			term.Count(done.Webhooks, "webhook"), tenant, origin, hours)}
	}
	return q.backTo("/webhooks")
}

// replayWebhook makes a dead or disabled webhook active again.
func (c *Console) replayWebhook(q *request) error {
	id, err := a2a.ParseID(q.r.PostForm.Get("name"))
	if err != nil {
		return errNotFound
	}
	const undelivered = 1<<63 - 1 // only events that were not delivered yet
	err = c.cfg.Store.Webhooks.Replay(q.acting(), id, undelivered)
	switch {
	case errors.Is(err, webhooks.ErrNotFound):
		return errNotFound
	case errors.Is(err, webhooks.ErrNothingToReplay):
		return &problem{http.StatusConflict, "Not done", "The webhook has delivered everything."}
	case err != nil:
		return err
	}
	return q.backTo("/webhooks")
}

// serviceForm is what the form of an action on the service needs.
type serviceForm struct {
	Action, Name, Token string // path below the console, what it is about, and the token of forms
	Tenant, Origin      string // of a destination, instead of a name
	Summary, Text       string
}

func newServiceForm(action, name, token, summary, text string) serviceForm {
	return serviceForm{Action: action, Name: name, Token: token, Summary: summary, Text: text}
}

func newDestinationForm(action string, d operate.DestinationDown, token, summary, text string) serviceForm {
	return serviceForm{
		Action: action, Tenant: d.Tenant, Origin: d.Origin, Token: token, Summary: summary, Text: text,
	}
}

// Key tells the forms of a page apart.
func (f serviceForm) Key() string { return f.Action + f.Name + f.Tenant + f.Origin }
