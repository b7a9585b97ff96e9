// Package timeline puts everything that happened to a task into one order, in words for operators: for the command
// line, the admin API and the console.
package timeline

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

// Row is one thing that happened to a task.
type Row struct {
	At    time.Time      // when, cut to the millisecond; zero: a message that shows with the next event
	Took  *time.Duration // nil: it continues, or is a moment
	Kind  string         // state, message, artifact, attempt, step, wait, call, signal, delivery or action
	Who   string         // the worker, the caller, the server or the operator
	State a2a.State      // of a state
	Text  string         // what there is to say, besides State and Child
	Seq   int64          // of an event
	Child a2a.ID         // of a call
	Bad   bool           // it failed
	order int            // among rows of the same time
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

// Of returns the timeline of a task of owner.
func Of(owner string, t *operate.Timeline) []Row {
	rows := slices.Concat(
		eventRows(owner, t.Events), messageRows(owner, t), attemptRows(t.Attempts), stepRows(t),
		deliveryRows(t.Tries),
	)
	for _, a := range t.Actions {
		text := strings.TrimSuffix(a.Name+" "+string(a.Detail), " {}")
		rows = append(rows, Row{At: a.At, Kind: "action", Who: a.Actor, Text: text, order: orderAction})
	}
	for i := range rows { // as events have it, so that rows of one millisecond sort by order
		rows[i].At = rows[i].At.Truncate(time.Millisecond)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		switch {
		case a.At.IsZero() && b.At.IsZero():
			return 0
		case a.At.IsZero():
			return 1
		case b.At.IsZero():
			return -1
		}
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.order, b.order))
	})
	return rows
}

func took(from, to time.Time) *time.Duration {
	d := max(to.Sub(from), 0)
	return &d
}

// Failed reports whether an attempt with this outcome did not do its work.
func Failed(outcome string) bool {
	return outcome == "failed" || outcome == "expired" || outcome == "retry"
}

func attemptRows(attempts []operate.Attempt) (rows []Row) {
	for _, a := range attempts {
		text := fmt.Sprintf("attempt %d, epoch %d", a.Attempt, a.Epoch)
		if a.Outcome != "" {
			text += ": " + a.Outcome
		}
		if a.Error != "" {
			text += ", " + a.Error
		}
		row := Row{At: a.ClaimedAt, Kind: "attempt", Who: a.Worker, Text: text, order: orderAttempt,
			Bad: Failed(a.Outcome)}
		if !a.EndedAt.IsZero() {
			row.Took = took(a.ClaimedAt, a.EndedAt)
		}
		rows = append(rows, row)
	}
	return rows
}

func deliveryRows(tries []operate.Tried) (rows []Row) {
	for _, d := range tries {
		actor := "server"
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
		rows = append(rows, Row{
			At: d.StartedAt, Took: &d.Took, Kind: "delivery", Who: actor, Text: text, order: orderDelivery,
			Bad: d.Outcome != "delivered" && d.Outcome != "skipped",
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
	rows     []Row
	state    int    // row of the last state, or -1
	artifact string // id of the artifact in the last row, or ""
	chunks   int    // of that artifact
	size     int64  // of these chunks
}

func eventRows(owner string, events []operate.Logged) []Row {
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
		l.rows[l.state].Took = took(l.rows[l.state].At, e.At)
	}
	state, text := ev.Status.State, ""
	if ev.Status.Message != nil {
		text = client.Text(ev.Status.Message.Parts)
	}
	if text == "" && !state.EndsTurn() {
		text = term.DescribeAttempt(ev.Metadata)
	}
	l.state, l.artifact = len(l.rows), ""
	row := Row{At: e.At, Kind: "state", Who: actor, State: state, Seq: e.Seq, Text: text, order: orderEvent,
		Bad: state == a2a.StateFailed || state == a2a.StateRejected}
	if e.Seq == 1 {
		row.order = orderFirst
	}
	l.rows = append(l.rows, row)
}

func (l *eventLog) addChunk(actor string, e operate.Logged, ev *a2a.ArtifactUpdate) {
	if l.artifact != ev.Artifact.ID || l.artifact == "" {
		l.artifact, l.chunks, l.size = ev.Artifact.ID, 0, 0
		l.rows = append(l.rows, Row{At: e.At, Kind: "artifact", Who: actor, order: orderEvent})
	}
	l.chunks++
	l.size += e.Bytes
	row := &l.rows[len(l.rows)-1]
	row.Seq = e.Seq
	name := term.ArtifactName(client.Artifact{ID: ev.Artifact.ID, Name: ev.Artifact.Name})
	row.Text = fmt.Sprintf("%s, %s", name, term.Size(l.size))
	if l.chunks > 1 {
		row.Took = took(row.At, e.At)
		row.Text += fmt.Sprintf(" in %d chunks", l.chunks)
	}
}

// messageRows shows each message of the client at the event that it caused, or at the next one.
func messageRows(owner string, t *operate.Timeline) (rows []Row) {
	for _, m := range t.Messages {
		if m.Message.Role != a2a.RoleUser {
			continue // messages of the agent are in its states
		}
		text := strings.TrimSpace(term.DescribeParts(m.Message.Parts))
		row := Row{order: orderMessage, Kind: "message", Who: owner, Text: text}
		for _, e := range t.Events {
			if e.Seq >= m.AtSeq {
				row.At = e.At
				break
			}
		}
		rows = append(rows, row)
	}
	return rows
}
