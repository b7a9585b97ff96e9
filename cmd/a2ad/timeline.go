package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/term"
)

const timelineWidth = 100

func showTimeline(app *App, rows []admin.Happening) error {
	head := []string{"TIME", "TOOK", "WHAT", "BY", "DETAIL"}
	return term.Rows(&app.Console, false, head, rows, func(r admin.Happening) []string {
		when, took := "-", "-"
		if r.At != nil {
			when = r.At.UTC().Format("2006-01-02 15:04:05.000Z")
		}
		if r.Ms != nil {
			took = term.Duration(time.Duration(*r.Ms) * time.Millisecond)
		}
		text := strings.Join(strings.Fields(term.Cell(r.Text)), " ")
		return []string{when, took, r.Kind, term.Cell(r.Actor), term.Shorten(text, timelineWidth)}
	})
}

// describeWait says what a task waits for.
func describeWait(w *admin.Wait) string {
	var ends []string
	if w.Until != nil {
		ends = append(ends, "until "+term.Moment(*w.Until))
	}
	if w.Message {
		ends = append(ends, "for a message")
	}
	if w.Signal != "" {
		ends = append(ends, "for the signal "+term.Cell(w.Signal))
	}
	if w.Calls > 0 {
		ends = append(ends, fmt.Sprintf("for %d of %s", w.Pending, term.Count(w.Calls, "called task")))
	}
	return strings.Join(ends, ", or ")
}
