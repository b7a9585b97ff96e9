package timeline

import (
	"fmt"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/term"
)

// stepRows shows the steps, waits, calls and signals of a task. A wait or a call lasts until it is over.
func stepRows(t *operate.Timeline) (rows []Row) {
	for i := range t.Steps {
		s := &t.Steps[i]
		row := Row{
			At: s.At, Kind: s.Kind.String(), Who: s.Worker, Text: describeStep(s), Child: s.Child, Bad: s.Failed,
			order: orderStep,
		}
		if s.Kind != a2a.StepWork && !s.EndedAt.IsZero() {
			row.Took = took(s.At, s.EndedAt)
		}
		rows = append(rows, row)
	}
	for _, s := range t.Signals {
		rows = append(rows, Row{
			At: s.At, Kind: "signal", Who: s.Sender, Text: s.Name + ": " + s.Value, order: orderAction,
		})
	}
	return rows
}

func describeStep(s *operate.Recorded) string {
	text := s.Key
	if s.Name != "" && s.Name != s.Key {
		text += " (" + s.Name + ")"
	}
	if s.Artifact != "" {
		text += ", artifact " + term.Cell(s.Artifact)
		if s.EndedAt.IsZero() && s.NextAt.IsZero() {
			text += ", not finished"
		}
	}
	if s.Attempts > 1 {
		text += fmt.Sprintf(", try %d", s.Attempts)
	}
	if s.Failed {
		text += " failed"
	}
	if s.Says != "" {
		text += ": " + s.Says
	}
	if !s.NextAt.IsZero() {
		text += ", again at " + term.Moment(s.NextAt)
	}
	return text
}
