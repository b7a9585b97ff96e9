package admin

import (
	"time"

	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/timeline"
)

// Happening is one thing that happened to a task. Its JSON does not change silently.
type Happening struct {
	At    *time.Time `json:"at,omitempty" doc:"When; missing for a message that shows with the next event."`
	Ms    *int64     `json:"ms,omitempty" doc:"How long it took; missing if it continues, or is a moment."`
	Kind  string     `json:"kind" doc:"Such as state, message, attempt or action."`
	Actor string     `json:"actor" doc:"The worker, the caller, the server or the operator."`
	Seq   int64      `json:"seq,omitempty" doc:"Number of the event, if it is one."`
	Text  string     `json:"text"`
}

func newTimeline(owner string, t *operate.Timeline) []Happening {
	rows := timeline.Of(owner, t)
	list := make([]Happening, len(rows))
	for i := range rows {
		r := &rows[i]
		list[i] = Happening{At: orNil(r.At), Kind: r.Kind, Actor: r.Who, Seq: r.Seq, Text: r.Text}
		if r.Took != nil {
			ms := r.Took.Milliseconds()
			list[i].Ms = &ms
		}
		if r.Kind == "state" {
			list[i].Text = r.State.String()
			if r.Text != "" {
				list[i].Text += ": " + r.Text
			}
		}
		if !r.Child.IsZero() {
			list[i].Text += ", task " + r.Child.String()
		}
	}
	return list
}
