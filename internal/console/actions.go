package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// acting returns the context of an action: the audit log names the viewer, and the reason that the form has.
func (q *request) acting() context.Context {
	return access.ActingBy(q.Context(), access.By{Actor: q.Who(), Reason: q.reason()})
}

func (q *request) reason() string { return strings.TrimSpace(q.r.PostForm.Get("reason")) }

// needsReason is for actions whose reason must be given.
func (q *request) needsReason() error {
	if q.reason() == "" {
		return &problem{http.StatusUnprocessableEntity, "Not done", "Say why: the reason goes into the audit log."}
	}
	return nil
}

func (c *Console) cancelTask(q *request) error {
	t, err := c.find(q)
	if err != nil {
		return err
	}
	ctx, owner, err := q.inNameOf(&t)
	if err == nil && q.MayWrite() {
		err = q.needsReason()
	}
	if err != nil {
		return err
	}
	if _, err := c.cfg.Store.Tasks.Cancel(ctx, owner, "", t.ID); err != nil {
		return err
	}
	return c.toTask(q, t.ID, "cancel")
}

func (c *Console) retryTask(q *request) error {
	t, err := c.find(q)
	if err == nil {
		err = q.needsReason()
	}
	if err != nil {
		return err
	}
	made, err := c.cfg.Store.Tasks.RetryTask(q.acting(), t.ID, c.cfg.MoveSecrets)
	if err != nil {
		return err
	}
	return c.toTask(q, made.Task, "retry")
}

func (c *Console) resumeTask(q *request) error {
	t, err := c.find(q)
	if err != nil {
		return err
	}
	reason := cmp.Or(q.reason(), "resumed by an operator")
	done, err := c.cfg.Store.Tasks.Resume(q.acting(), []a2a.ID{t.ID}, reason)
	if err != nil {
		return err
	}
	if len(done) == 0 {
		return &problem{http.StatusConflict, "Not done", "The task is not parked."}
	}
	return c.toTask(q, t.ID, "resume")
}

// inNameOf returns the context and the caller of what the viewer does with a task in the name of its owner. The audit
// log names an operator. What the owner does itself is what any client would do.
func (q *request) inNameOf(t *operate.TaskRow) (context.Context, db.Caller, error) {
	switch {
	case q.MayWrite():
		return q.acting(), db.Caller{Tenant: t.Tenant, Owner: t.Owner, Actor: q.Who()}, nil
	case q.mayAct(t):
		return q.Context(), q.caller(), nil
	case q.mayRead():
		return nil, db.Caller{}, errForbidden
	}
	return nil, db.Caller{}, lacks(auth.ScopeTasksWrite)
}

var (
	errAnswered      = &problem{http.StatusConflict, "Not done", "The task no longer waits for an answer."}
	errOtherQuestion = &problem{
		http.StatusConflict, "Not done", "The task now asks another question. Go back, reload the page, and read it.",
	}
)

// answerTask answers the question of a task in the name of its owner.
func (c *Console) answerTask(q *request) error {
	t, err := c.find(q)
	if err != nil {
		return err
	}
	ctx, owner, err := q.inNameOf(&t)
	if err != nil {
		return err
	}
	asked, err := c.questionOf(q, t.ID)
	if err != nil {
		return err
	}
	if asked == nil {
		return errAnswered
	}
	part, err := asked.answer(q.r.PostForm)
	if err != nil {
		return err
	}
	served := c.cfg.Agents()
	i := slices.IndexFunc(served, func(a *a2a.Agent) bool { return a.Name == t.Agent })
	if i < 0 {
		return &problem{http.StatusConflict, "Not done", fmt.Sprintf("This server has no agent %q.", t.Agent)}
	}
	message := a2a.Message{
		ID: db.NewUID().String(), Role: a2a.RoleUser, TaskID: t.ID.String(), ContextID: t.ContextID,
		Parts: []a2a.Part{part},
	}
	_, err = c.cfg.Engine.Send(ctx, owner, served[i], &a2a.SendMessage{
		Message: message, Digest: sha256.Sum256([]byte(message.ID)), Asked: asked.StatusAt,
	})
	switch {
	case errors.Is(err, tasks.ErrNotWaiting):
		return errAnswered
	case errors.Is(err, tasks.ErrOtherQuestion):
		return errOtherQuestion
	case err != nil:
		return err
	}
	if q.r.PostForm.Get("from") == "inbox" {
		http.Redirect(q.w, q.r, Prefix+"/inbox?done="+t.ID.String(), http.StatusSeeOther)
		return nil
	}
	return c.toTask(q, t.ID, "answer")
}

// assignTask says which person is to answer the question of a task.
func (c *Console) assignTask(q *request) error {
	t, err := c.find(q)
	if err != nil {
		return err
	}
	asked, err := strconv.ParseInt(q.r.PostForm.Get("asked"), 10, 64)
	if err != nil {
		return invalid("The form names no question.")
	}
	to := strings.TrimSpace(q.r.PostForm.Get("assignee"))
	if to != "" && !tasks.ValidAssignee(to) {
		return invalid("Write a name of up to %d characters.", tasks.MaxAssignee)
	}
	err = c.cfg.Store.Tasks.Assign(q.acting(), tasks.Assignment{Task: t.ID, Asked: time.UnixMilli(asked), To: to})
	if errors.Is(err, tasks.ErrNotWaiting) {
		return &problem{http.StatusConflict, "Not done", "The task no longer asks this question."}
	}
	if err != nil {
		return err
	}
	if q.r.PostForm.Get("from") == "inbox" {
		return q.backTo("/inbox")
	}
	return c.toTask(q, t.ID, "assign")
}

func (c *Console) questionOf(q *request, id a2a.ID) (*question, error) {
	list, err := c.cfg.Store.Operate.Questions(q.Context(), operate.QuestionFilter{
		Task: id, Tenant: q.tenant(), Owner: q.owner(), Limit: 1,
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return newQuestion(&list[0], &q.viewer), nil
}
