package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/term"
)

// Happening is one thing that happened to a task. Its JSON does not change silently.
type Happening struct {
	At    *time.Time `json:"at,omitempty" doc:"When; missing for a message that shows with the next event."`
	Ms    *int64     `json:"ms,omitempty" doc:"How long it took; missing if it continues, or is a moment."`
	Kind  string     `json:"kind" doc:"Such as state, message, attempt or action."`
	Actor string     `json:"actor" doc:"The worker, the caller, the server or the operator."`
	Seq   int64      `json:"seq,omitempty" doc:"Number of the event, if it is one."`
	Text  string     `json:"text"`
	order int        // among happenings of the same time
}

// Rows of the same time are in this order: a cause comes before its effect.
const (
	orderMessage = iota - 1
	orderFirst   // the first event
	orderAction
	orderAttempt
	orderStep
	orderEvent
	orderDelivery
)

// newTimeline puts everything that happened to a task of owner into one order.
func newTimeline(owner string, t *operate.Timeline) []Happening {
	rows := slices.Concat(
		eventRows(owner, t.Events), messageRows(owner, t), attemptRows(t.Attempts), stepRows(t),
		deliveryRows(t.Tries),
	)
	for _, a := range t.Actions {
		text := strings.TrimSuffix(a.Name+" "+string(a.Detail), " {}")
		rows = append(rows, Happening{At: at(a.At), Kind: "action", Actor: a.Actor, Text: text, order: orderAction})
	}
	slices.SortStableFunc(rows, func(a, b Happening) int {
		switch {
		case a.At == nil && b.At == nil:
			return 0
		case a.At == nil:
			return 1
		case b.At == nil:
			return -1
		}
		return cmp.Or(a.At.Compare(*b.At), cmp.Compare(a.order, b.order))
	})
	return rows
}

// at cuts a time to the millisecond, as events have it, so that rows of one millisecond sort by order.
func at(t time.Time) *time.Time {
	t = t.Truncate(time.Millisecond)
	return &t
}

func since(from, to time.Time) *int64 {
	ms := max(to.Sub(from).Milliseconds(), 0)
	return &ms
}

func attemptRows(attempts []operate.Attempt) (rows []Happening) {
	for _, a := range attempts {
		text := fmt.Sprintf("attempt %d, epoch %d", a.Attempt, a.Epoch)
		if a.Outcome != "" {
			text += ": " + a.Outcome
		}
		if a.Error != "" {
			text += ", " + a.Error
		}
		row := Happening{At: at(a.ClaimedAt), Kind: "attempt", Actor: a.Worker, Text: text, order: orderAttempt}
		if !a.EndedAt.IsZero() {
			row.Ms = since(a.ClaimedAt, a.EndedAt)
		}
		rows = append(rows, row)
	}
	return rows
}

func deliveryRows(tries []operate.Tried) (rows []Happening) {
	for _, d := range tries {
		actor, ms := "server", d.Took.Milliseconds()
		if d.Trigger == webhooks.TriggerManual {
			actor = "operator"
		}
		text := fmt.Sprintf("attempt %d: %s", d.Attempt, d.Outcome)
		switch {
		case d.Reason != "":
			text += ", " + d.Reason
		case d.Status != 0:
			text += fmt.Sprintf(", %d", d.Status)
		}
		text += fmt.Sprintf(", %s to %s, %s", eventRange(d.From+1, d.Seq), d.URL, d.ConfigID)
		rows = append(rows, Happening{
			At: at(d.StartedAt), Ms: &ms, Kind: "delivery", Actor: actor, Text: text, order: orderDelivery,
		})
	}
	return rows
}

func eventRange(from, to int64) string {
	if from == to {
		return fmt.Sprintf("event %d", to)
	}
	return fmt.Sprintf("events %d-%d", from, to)
}

// eventLog makes rows of events. A state lasts until the next one, and consecutive chunks of an artifact are one row.
type eventLog struct {
	rows     []Happening
	state    int    // row of the last state, or -1
	artifact string // id of the artifact in the last row, or ""
	chunks   int    // of that artifact
	size     int64  // of these chunks
}

func eventRows(owner string, events []operate.Logged) []Happening {
	l := eventLog{state: -1}
	for _, e := range events {
		actor := "server"
		switch e.Source {
		case operate.SourceWorker:
			actor = e.Worker
		case operate.SourceCaller:
			actor = owner
		}
		switch ev := e.Event.(type) {
		case *a2a.StatusUpdate:
			l.addStatus(actor, e, ev)
		case *a2a.ArtifactUpdate:
			l.addChunk(actor, e, ev)
		}
	}
	return l.rows
}

func (l *eventLog) addStatus(actor string, e operate.Logged, ev *a2a.StatusUpdate) {
	if l.state >= 0 {
		l.rows[l.state].Ms = since(*l.rows[l.state].At, e.At)
	}
	text := ev.Status.State.String()
	if message := client.Text(parts(ev.Status.Message)); message != "" {
		text += ": " + message
	} else if why := term.DescribeAttempt(ev.Metadata); why != "" && !ev.Status.State.EndsTurn() {
		text += ": " + why
	}
	l.state, l.artifact = len(l.rows), ""
	row := Happening{At: at(e.At), Kind: "state", Actor: actor, Seq: e.Seq, Text: text, order: orderEvent}
	if e.Seq == 1 {
		row.order = orderFirst
	}
	l.rows = append(l.rows, row)
}

func (l *eventLog) addChunk(actor string, e operate.Logged, ev *a2a.ArtifactUpdate) {
	if l.artifact != ev.Artifact.ID || l.artifact == "" {
		l.artifact, l.chunks, l.size = ev.Artifact.ID, 0, 0
		l.rows = append(l.rows, Happening{At: at(e.At), Kind: "artifact", Actor: actor, order: orderEvent})
	}
	l.chunks++
	l.size += e.Bytes
	row := &l.rows[len(l.rows)-1]
	row.Seq = e.Seq
	name := term.ArtifactName(client.Artifact{ID: ev.Artifact.ID, Name: ev.Artifact.Name})
	row.Text = fmt.Sprintf("%s, %s", name, term.Size(l.size))
	if l.chunks > 1 {
		row.Ms = since(*row.At, e.At)
		row.Text += fmt.Sprintf(" in %d chunks", l.chunks)
	}
}

// messageRows shows each message of the client at the event that it caused, or at the next one.
func messageRows(owner string, t *operate.Timeline) (rows []Happening) {
	for _, m := range t.Messages {
		if m.Message.Role != a2a.RoleUser {
			continue // messages of the agent are in its states
		}
		text := strings.TrimSpace(term.DescribeParts(m.Message.Parts))
		row := Happening{order: orderMessage, Kind: "message", Actor: owner, Text: text}
		for _, e := range t.Events {
			if e.Seq >= m.AtSeq {
				row.At = at(e.At)
				break
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func parts(m *a2a.Message) []a2a.Part {
	if m == nil {
		return nil
	}
	return m.Parts
}
