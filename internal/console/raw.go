package console

import (
	"errors"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/tasks"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// rawView shows a task as the protocol sends it.
type rawView struct {
	operate.TaskRow
	Tabs     []rawTab
	Form     string    // whose tab is shown
	Versions []rawForm // one, or both beside each other
	TooLarge int64     // bytes of the task, if it is not shown for its size
	First    bool      // the page begins with the first event
	More     int64     // seq after which further events are; 0: none
}

// rawTab is a link to a form.
type rawTab struct {
	Name, Form string
	On         bool
}

// rawForm is a task and its events as one version of the protocol writes them.
type rawForm struct {
	Version string
	Task    string // empty: it is too large
	Events  []rawEvent
}

// rawForms are the forms of the page by the value of the parameter form, in the order of the tabs.
var rawForms = []struct{ form, name string }{{"", "A2A 1.0"}, {"0.3", "A2A 0.3"}, {"both", "Both"}}

type rawEvent struct {
	Seq  int64
	ID   string // in the stream
	At   time.Time
	JSON string
}

const rawEvents = 200

// showRaw shows a task and its events as a version of the protocol writes them, or as both do.
func (c *Console) showRaw(q *request) error {
	t, err := c.find(q)
	if err != nil {
		return err
	}
	after, _ := strconv.ParseInt(q.r.URL.Query().Get("after"), 10, 64)
	v := &rawView{TaskRow: t, First: after <= 0, Form: q.r.URL.Query().Get("form")}
	for _, f := range rawForms {
		v.Tabs = append(v.Tabs, rawTab{f.name, f.form, f.form == v.Form})
	}
	task, err := c.content(q, t.ID)
	var large *tasks.TooMuch
	if errors.As(err, &large) {
		v.TooLarge = large.Bytes
	} else if err != nil {
		return err
	}
	if v.Form != "0.3" {
		err = c.addRaw(q, v, task, after, "1.0", v1.Codec{})
	}
	if v.Form == "0.3" || v.Form == "both" && err == nil {
		err = c.addRaw(q, v, task, after, "0.3", v03.Codec{})
	}
	if err != nil {
		return err
	}
	return c.render(q, "raw", "Raw task "+shortID(t.ID), v)
}

// addRaw adds what one version writes. The task is nil if it is too large.
func (c *Console) addRaw(q *request, v *rawView, task *a2a.Task, after int64, version string, form wireForm) error {
	f := rawForm{Version: version}
	if task != nil && v.First {
		f.Task = q.shown.frame(form.AppendTask(nil, task))
	}
	var err error
	f.Events, v.More, err = c.frames(q, &v.TaskRow, after, form)
	v.Versions = append(v.Versions, f)
	return err
}

// wireForm is how a version of the protocol writes a task and its events.
type wireForm interface {
	eventForm
	AppendTask(dst []byte, t *a2a.Task) []byte
}
