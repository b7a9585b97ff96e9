package console

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

// row is one thing that happened to a task.
type row struct {
	At    time.Time
	Took  time.Duration // 0: it is a moment, or continues
	Kind  string        // message, state, artifact, attempt, step, wait, call, signal, webhook or action
	Who   string
	Text  string
	State a2a.State // of a state
	Bad   bool
	Seq   int64 // of an event
	Child a2a.ID
	order int // among rows of one time: a cause comes before its effect
}

// maxRowText is how many characters of a text the timeline shows. The page has all of it elsewhere.
const maxRowText = 400

func timelineOf(owner string, t *operate.Timeline) []row {
	rows := slices.Concat(messageRows(owner, t), eventRows(owner, t.Events), attemptRows(t.Attempts), stepRows(t.Steps),
		signalRows(t.Signals), webhookRows(t.Tries))
	for _, a := range t.Actions {
		text := strings.TrimSuffix(a.Name+" "+string(a.Detail), " {}")
		rows = append(rows, row{At: a.At, Kind: "action", Who: a.Actor, Text: text, order: 1})
	}
	for i := range rows {
		rows[i].Text = term.Shorten(rows[i].Text, maxRowText)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(
			a.At.Truncate(time.Millisecond).Compare(b.At.Truncate(time.Millisecond)), cmp.Compare(a.order, b.order))
	})
	return rows
}

// messageRows shows each message of the client at the event that it caused, or at the next one.
func messageRows(owner string, t *operate.Timeline) (rows []row) {
	for _, m := range t.Messages {
		if m.Message.Role != a2a.RoleUser {
			continue // messages of the agent are in its states
		}
		r := row{Kind: "message", Who: owner, Text: strings.TrimSpace(term.DescribeParts(m.Message.Parts))}
		for _, e := range t.Events {
			if r.At = e.At; e.Seq >= m.AtSeq {
				break
			}
		}
		rows = append(rows, r)
	}
	return rows
}

func eventRows(owner string, events []operate.Logged) (rows []row) {
	last := -1 // row of the last state
	for _, e := range events {
		who := map[int16]string{operate.SourceWorker: e.Worker, operate.SourceCaller: owner}[e.Source]
		who = cmp.Or(who, "server")
		switch ev := e.Event.(type) {
		case *a2a.StatusUpdate:
			if last >= 0 {
				rows[last].Took = max(e.At.Sub(rows[last].At), 0)
			}
			last = len(rows)
			text := ""
			if m := ev.Status.Message; m != nil {
				text = client.Text(m.Parts)
			}
			text = cmp.Or(text, term.DescribeAttempt(ev.Metadata))
			state := ev.Status.State
			rows = append(rows, row{
				At: e.At, Kind: "state", Who: who, Text: text, State: state, Seq: e.Seq,
				Bad: state == a2a.StateFailed || state == a2a.StateRejected, order: 3,
			})
		case *a2a.ArtifactUpdate:
			rows = addChunk(rows, who, &e, ev)
		}
	}
	return rows
}

// addChunk adds a chunk of an artifact: consecutive chunks are one row.
func addChunk(rows []row, who string, e *operate.Logged, ev *a2a.ArtifactUpdate) []row {
	name := term.ArtifactName(client.Artifact{ID: ev.Artifact.ID, Name: ev.Artifact.Name})
	if n := len(rows); n > 0 && rows[n-1].Kind == "artifact" && strings.HasPrefix(rows[n-1].Text, name+",") {
		r := &rows[n-1]
		r.Took, r.Text = max(e.At.Sub(r.At), 0), fmt.Sprintf("%s, events %d-%d", name, r.Seq, e.Seq)
		return rows
	}
	return append(rows, row{
		At: e.At, Kind: "artifact", Who: who, Text: name + ", " + term.Size(e.Bytes), Seq: e.Seq, order: 3,
	})
}

func attemptRows(attempts []operate.Attempt) (rows []row) {
	for _, a := range attempts {
		text := fmt.Sprintf("attempt %d", a.Attempt)
		if a.Outcome != "" {
			text += ": " + a.Outcome
		}
		if a.Error != "" {
			text += ", " + a.Error
		}
		r := row{At: a.ClaimedAt, Kind: "attempt", Who: a.Worker, Text: text, order: 2,
			Bad: a.Outcome == "failed" || a.Outcome == "expired" || a.Outcome == "retry"}
		if !a.EndedAt.IsZero() {
			r.Took = max(a.EndedAt.Sub(a.ClaimedAt), 0)
		}
		rows = append(rows, r)
	}
	return rows
}

func stepRows(steps []operate.Recorded) (rows []row) {
	for _, s := range steps {
		r := row{At: s.At, Kind: stepWord(s.Kind), Who: s.Worker, Text: cmp.Or(s.Name, s.Key),
			Bad: s.Failed, Child: s.Child,
			order: 2}
		if s.Says != "" {
			r.Text += ": " + s.Says
		}
		if s.Attempts > 1 {
			r.Text += fmt.Sprintf(" (tried %d times)", s.Attempts)
		}
		if s.EndedAt.After(s.At) {
			r.Took = s.EndedAt.Sub(s.At)
		}
		rows = append(rows, r)
	}
	return rows
}

func stepWord(k a2a.StepKind) string {
	switch k {
	case a2a.StepWait:
		return "wait"
	case a2a.StepCall:
		return "call"
	}
	return "step"
}

func signalRows(signals []operate.Signaled) (rows []row) {
	for _, s := range signals {
		rows = append(rows, row{At: s.At, Kind: "signal", Who: s.Sender, order: 1,
			Text: strings.TrimSpace(s.Name + " " + s.Value)})
	}
	return rows
}

func webhookRows(tries []operate.Tried) (rows []row) {
	for _, d := range tries {
		who := "server"
		if d.Trigger == webhooks.TriggerManual {
			who = "operator"
		}
		text := fmt.Sprintf("%s, attempt %d: %s", d.URL, d.Attempt, d.Outcome)
		switch {
		case d.Reason != "":
			text += ", " + d.Reason
		case d.Status != 0:
			text += fmt.Sprintf(", status %d", d.Status)
		}
		rows = append(rows, row{At: d.StartedAt, Took: d.Took, Kind: "webhook", Who: who, Text: text,
			Bad: d.Outcome != "delivered" && d.Outcome != "skipped", order: 4})
	}
	return rows
}

// barWidth is the width of a bar chart in its own units.
const barWidth = 1000

// bar is one line of the chart that shows where the time went.
type bar struct {
	Name  string
	Parts []segment
	Took  time.Duration // of all parts
}

// segment is a part of a bar.
type segment struct {
	X, Width float64
	Class    string
	Title    string
}

const maxStepBars = 12

// barsOf divides the time of a task: waiting for a worker, running, and waiting for a person, and then its steps.
func barsOf(t *operate.Timeline, from, to time.Time) []bar {
	c := chart{from: from, to: to}
	queued, running, asking := bar{Name: "in the queue"}, bar{Name: "running"}, bar{Name: "waits for a person"}
	for i, e := range t.Events {
		ev, ok := e.Event.(*a2a.StatusUpdate)
		if !ok {
			continue
		}
		end := nextState(t.Events[i+1:], to)
		switch state := ev.Status.State; {
		case state == a2a.StateSubmitted:
			c.add(&queued, "s-submitted", e.At, end, "")
		case state.Interrupted():
			c.add(&asking, "s-input-required", e.At, end, "")
		}
	}
	for _, a := range t.Attempts {
		class := "s-working"
		if a.Outcome == "failed" || a.Outcome == "expired" || a.Outcome == "retry" {
			class = "s-failed"
		}
		c.add(&running, class, a.ClaimedAt, cmp.Or(a.EndedAt, to), fmt.Sprintf("attempt %d, %s", a.Attempt, a.Worker))
	}
	bars := []bar{queued, running, asking}
	for _, s := range t.Steps {
		if len(bars) == 3+maxStepBars {
			break
		}
		class := map[a2a.StepKind]string{a2a.StepWait: "s-input-required", a2a.StepCall: "s-submitted"}[s.Kind]
		b := bar{Name: stepWord(s.Kind) + " " + cmp.Or(s.Name, s.Key)}
		c.add(&b, cmp.Or(class, "s-completed"), s.At, cmp.Or(s.EndedAt, s.At), "")
		bars = append(bars, b)
	}
	return slices.DeleteFunc(bars, func(b bar) bool { return len(b.Parts) == 0 })
}

// nextState returns when a state ends: at the next one, or at to.
func nextState(rest []operate.Logged, to time.Time) time.Time {
	for _, e := range rest {
		if _, ok := e.Event.(*a2a.StatusUpdate); ok {
			return e.At
		}
	}
	return to
}

// chart is the time that bars share.
type chart struct{ from, to time.Time }

func (c *chart) add(b *bar, class string, from, to time.Time, what string) {
	if from.Before(c.from) {
		from = c.from
	}
	if to.After(c.to) {
		to = c.to
	}
	took, whole := max(to.Sub(from), 0), max(c.to.Sub(c.from), time.Millisecond)
	x := min(float64(from.Sub(c.from))/float64(whole)*barWidth, barWidth-2)
	width := max(float64(took)/float64(whole)*barWidth, 2) // a moment is still seen
	title := b.Name + ", " + term.Duration(took)
	if what != "" {
		title = what + ", " + term.Duration(took)
	}
	b.Parts = append(b.Parts, segment{X: max(x, 0), Width: min(width, barWidth-max(x, 0)), Class: class, Title: title})
	b.Took += took
}
