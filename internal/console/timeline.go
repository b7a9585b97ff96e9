package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
	"github.com/a2ad/a2ad/internal/timeline"
)

// maxRowText is how many characters of a text the timeline shows. The page has all of it elsewhere.
const maxRowText = 400

// timelineOf returns the timeline of a task of owner, with short texts.
func timelineOf(owner string, t *operate.Timeline) []timeline.Row {
	rows := timeline.Of(owner, t)
	for i := range rows {
		rows[i].Text = term.Shorten(rows[i].Text, maxRowText)
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
		if timeline.Failed(a.Outcome) {
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
		b := bar{Name: s.Kind.String() + " " + cmp.Or(s.Name, s.Key)}
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
