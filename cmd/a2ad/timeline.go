package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/term"
)

// timelineRow is one thing that happened to a task. The JSON is for programs and does not change silently.
type timelineRow struct {
	At    *time.Time `json:"at,omitempty"` // nil: it is there, and shows with the next event
	Ms    *int64     `json:"ms,omitempty"` // how long it took: a state until the next one, a run until its end; nil: it goes on, or is a moment
	Kind  string     `json:"kind"`         // state, message, artifact, attempt, delivery or action
	Actor string     `json:"actor"`
	Seq   int64      `json:"seq,omitempty"` // of the event, if it is one
	Text  string     `json:"text"`
	rank  int        // among what has the same time
}

// newTimeline puts everything that happened to a task of owner into one order.
func newTimeline(owner string, t *store.Timeline) []timelineRow {
	rows := eventRows(owner, t.Events)
	rows = append(rows, messageRows(owner, t)...)
	for _, a := range t.Attempts {
		text := fmt.Sprintf("attempt %d, epoch %d", a.Attempt, a.Epoch)
		if a.Outcome != "" {
			text += ": " + a.Outcome
		}
		if a.Error != "" {
			text += ", " + a.Error
		}
		row := timelineRow{At: at(a.ClaimedAt), Kind: "attempt", Actor: a.Worker, Text: text, rank: 2}
		if !a.EndedAt.IsZero() {
			row.Ms = since(a.ClaimedAt, a.EndedAt)
		}
		rows = append(rows, row)
	}
	for _, d := range t.Tries {
		actor, ms := "server", d.Took.Milliseconds()
		if d.Trigger == store.TriggerManual {
			actor = "operator"
		}
		text := fmt.Sprintf("try %d: %s", d.Attempt, d.Outcome)
		if d.Reason != "" {
			text += ", " + d.Reason
		} else if d.Status != 0 {
			text += fmt.Sprintf(", %d", d.Status)
		}
		text += fmt.Sprintf(", %s to %s, %s", eventRange(d.From+1, d.Seq), d.URL, d.ConfigID)
		rows = append(rows, timelineRow{At: at(d.StartedAt), Ms: &ms, Kind: "delivery", Actor: actor, Text: text, rank: 4})
	}
	for _, a := range t.Actions {
		rows = append(rows, timelineRow{At: at(a.At), Kind: "action", Actor: a.Actor, Text: strings.TrimSuffix(a.Name+" "+string(a.Detail), " {}"), rank: 1})
	}
	slices.SortStableFunc(rows, func(a, b timelineRow) int {
		switch {
		case a.At == nil && b.At == nil:
			return 0
		case a.At == nil:
			return 1
		case b.At == nil:
			return -1
		}
		return cmp.Or(a.At.Compare(*b.At), cmp.Compare(a.rank, b.rank))
	})
	return rows
}

func eventRange(from, to int64) string {
	if from == to {
		return fmt.Sprintf("event %d", to)
	}
	return fmt.Sprintf("events %d-%d", from, to)
}

// at is a time as events have it: to the millisecond, so that what happens in one sorts by rank.
func at(t time.Time) *time.Time {
	t = t.Truncate(time.Millisecond)
	return &t
}

func since(from, to time.Time) *int64 {
	ms := max(to.Sub(from).Milliseconds(), 0)
	return &ms
}

// eventRows shows each state until the next one, and the chunks of an artifact that come one
// after the other as one.
func eventRows(owner string, events []store.Logged) []timelineRow {
	var rows []timelineRow
	state, chunks := -1, 0 // the row of the last state; how many events the last artifact row is
	var size int64
	artifact := ""
	for _, e := range events {
		actor := map[int16]string{store.SourceWorker: e.Worker, store.SourceCaller: owner, store.SourceServer: "server"}[e.Source]
		switch ev := e.Event.(type) {
		case *a2a.StatusUpdate:
			if state >= 0 {
				rows[state].Ms = since(*rows[state].At, e.At)
			}
			text := ev.Status.State.String()
			if said := client.Text(messageParts(ev.Status.Message)); said != "" {
				text += ": " + said
			} else if why := term.DescribeAttempt(ev.Metadata); why != "" && !ev.Status.State.EndsTurn() {
				text += ": " + why
			}
			state, artifact = len(rows), ""
			row := timelineRow{At: at(e.At), Kind: "state", Actor: actor, Seq: e.Seq, Text: text, rank: 3}
			if e.Seq == 1 {
				row.rank = 0 // whatever has the same time came of it
			}
			rows = append(rows, row)
		case *a2a.ArtifactUpdate:
			if artifact != ev.Artifact.ID || artifact == "" {
				artifact, chunks, size = ev.Artifact.ID, 0, 0
				rows = append(rows, timelineRow{At: at(e.At), Kind: "artifact", Actor: actor, rank: 3})
			}
			chunks++
			size += e.Bytes
			row := &rows[len(rows)-1]
			row.Seq = e.Seq
			row.Text = fmt.Sprintf("%s, %s", term.ArtifactName(client.Artifact{ID: ev.Artifact.ID, Name: ev.Artifact.Name}), term.Size(size))
			if chunks > 1 {
				row.Ms = since(*row.At, e.At)
				row.Text += fmt.Sprintf(" in %d chunks", chunks)
			}
		}
	}
	return rows
}

// messageRows shows what the client said at the event that it brought about, or that came next.
func messageRows(owner string, t *store.Timeline) []timelineRow {
	var rows []timelineRow
	for _, m := range t.Messages {
		if m.Message.Role != a2a.RoleUser {
			continue // the agent's are in its states
		}
		row := timelineRow{rank: -1, Kind: "message", Actor: owner, Text: strings.TrimSpace(term.DescribeParts(m.Message.Parts))}
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

const timelineWidth = 100

func showTimeline(app *App, rows []timelineRow) error {
	head := []string{"TIME", "TOOK", "WHAT", "BY", "DETAIL"}
	return term.Rows(&app.Console, false, head, rows, func(r timelineRow) []string {
		when, took := "-", "-"
		if r.At != nil {
			when = r.At.UTC().Format("2006-01-02 15:04:05.000Z")
		}
		if r.Ms != nil {
			took = term.Duration(time.Duration(*r.Ms) * time.Millisecond)
		}
		return []string{when, took, r.Kind, term.Cell(r.Actor), term.Shorten(strings.Join(strings.Fields(term.Cell(r.Text)), " "), timelineWidth)}
	})
}
