package console

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/timeline"
)

// What a page of a task shows at most.
const (
	maxContent = 8 << 20 // bytes of messages and artifacts that are read
	maxTree    = 200
	maxRows    = 500 // of the timeline
)

// taskView is the page of a task.
type taskView struct {
	operate.TaskRow
	Live      string // URL of the events that change the page; empty: the task has ended
	Messages  []shownMessage
	Artifacts []shownArtifact
	TooLarge  int64 // bytes of the content, if it is not shown for its size
	Rows      []timeline.Row
	Left      int  // rows that are not shown
	Cut       bool // there are still older ones
	Bars      []bar
	Took      time.Duration
	Tree      []operate.Called
	Usage     []a2a.Usage
	TraceID   string // of the newest message that had one; empty: none had
	TraceURL  string // empty: it is no link
	RetryOf   string
	RetriedAs []string
	Waits     *operate.Waiting
	Outage    *tasks.Outage
	Question  *question
	Address   string // of the server, before the link of the question
	MayAct    bool   // the viewer may answer or cancel it
	CanRetry  bool
	Ended     bool
	Done      string // what the viewer has just done
}

func (c *Console) showTask(q *request) error {
	t, err := c.find(q)
	if err != nil {
		return err
	}
	v := &taskView{
		TaskRow: t, Ended: t.State.Terminal(), MayAct: q.mayAct(&t), Done: doneText[q.r.URL.Query().Get("done")],
		Address: c.addressOf(q.r),
	}
	v.CanRetry = v.Ended && t.State != a2a.StateCompleted
	end := time.Now()
	if v.Ended {
		end = v.StatusAt
	}
	v.Took = max(end.Sub(v.CreatedAt), 0)
	if !v.Ended {
		v.Live = Prefix + "/tasks/" + t.ID.String() + "/live?after=" + strconv.FormatInt(t.LastSeq, 10)
	}
	task, err := c.content(q, t.ID)
	var large *tasks.TooMuch
	switch {
	case errors.As(err, &large):
		v.TooLarge = large.Bytes
	case err != nil:
		return err
	default:
		v.show(&q.shown, task)
	}
	if t.State.Interrupted() {
		if v.Question, err = c.questionOf(q, t.ID); err != nil {
			return err
		}
	}
	if q.mayRead() {
		err = c.showInside(q, v, end)
	}
	if err != nil {
		return err
	}
	return c.render(q, "task", "Task "+shortID(t.ID), v)
}

// showInside sets what happened to a task inside the server, which its owner does not see.
func (c *Console) showInside(q *request, v *taskView, end time.Time) error {
	happened, err := c.cfg.Store.Operate.Timeline(q.Context(), v.ID)
	if err != nil {
		return err
	}
	v.fill(happened, end)
	if v.TraceID = happened.TraceID; v.TraceID != "" {
		v.TraceURL = strings.Replace(c.cfg.TraceURL, "{trace_id}", v.TraceID, 1)
	}
	if v.Tree, err = c.cfg.Store.Operate.Tree(q.Context(), v.ID, maxTree); err != nil {
		return err
	}
	if len(v.Tree) == 1 {
		v.Tree = nil
	}
	if !v.ReadyAt.IsZero() {
		return c.readOutage(q, v)
	}
	return nil
}

// content reads the messages and artifacts of a task, unless they are too large for a page.
func (c *Console) content(q *request, id a2a.ID) (*a2a.Task, error) {
	return c.cfg.Store.Tasks.SnapshotOfAny(q.Context(), id, tasks.Want{Artifacts: true, Most: maxContent})
}

// fill sets what the page shows of the timeline.
func (v *taskView) fill(t *operate.Timeline, end time.Time) {
	v.Rows, v.Cut = timelineOf(v.Tenant+"/"+v.Owner, t), t.Cut
	if len(v.Rows) > maxRows {
		v.Left = len(v.Rows) - maxRows
		v.Rows = v.Rows[v.Left:]
	}
	v.Bars = barsOf(t, v.CreatedAt, end)
	v.Waits, v.Usage = t.Waits, t.Usage
	for _, a := range t.Actions {
		if id, _ := rawjson.String(rawjson.Get(a.Detail, "new")); a.Name == access.ActionTaskRetry && id != "" {
			v.RetriedAs = append(v.RetriedAs, id)
		}
	}
}

// show sets the content.
func (v *taskView) show(s *shown, t *a2a.Task) {
	v.Messages, v.Artifacts = s.content(t)
	if len(t.History) > 0 {
		v.RetryOf, _ = rawjson.String(rawjson.Get(t.History[0].Metadata, tasks.RetryOf))
	}
}

// content returns the messages and artifacts of a task.
func (s *shown) content(t *a2a.Task) (messages []shownMessage, artifacts []shownArtifact) {
	history := t.History
	if m := t.Status.Message; m != nil {
		history = append(history[:len(history):len(history)], *m)
	}
	for i := range history {
		messages = append(messages, s.message(&history[i]))
	}
	for i := range t.Artifacts {
		artifacts = append(artifacts, s.artifact(t.ID, i, &t.Artifacts[i]))
	}
	return messages, artifacts
}

func (c *Console) readOutage(q *request, v *taskView) error {
	outages, err := c.cfg.Store.Tasks.Outages(q.Context())
	for _, o := range outages {
		if o.Agent == v.Agent {
			v.Outage = &o
		}
	}
	return err
}

// doneText says what an action has done, on the page that follows it.
var doneText = map[string]string{
	"cancel": "The task was canceled.",
	"resume": "The task has fresh attempts and is in the queue.",
	"retry":  "This is the new task. The old one stays as it was.",
	"assign": "The assignment was stored.",
	"answer": "Your answer was stored, and the task is in the queue again.",
}

func (c *Console) toTask(q *request, id a2a.ID, done string) error {
	http.Redirect(q.w, q.r, Prefix+"/tasks/"+id.String()+"?done="+done, http.StatusSeeOther)
	return nil
}
