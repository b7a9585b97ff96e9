package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/a2ad/a2ad/internal/a2a"
)

// painter colours text; false leaves it plain.
type painter bool

func (p painter) sgr(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p painter) dim(text string) string  { return p.sgr("2", text) }
func (p painter) bold(text string) string { return p.sgr("1", text) }

// state returns how to write about a task in that state.
func (p painter) state(s a2a.State) func(string) string {
	code := "36"
	switch s {
	case a2a.StateCompleted:
		code = "32"
	case a2a.StateFailed, a2a.StateRejected:
		code = "31"
	case a2a.StateCanceled, a2a.StateInputRequired, a2a.StateAuthRequired:
		code = "33"
	}
	return func(text string) string { return p.sgr(code, text) }
}

// printJSON writes one value on one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printRows writes rows as one JSON object per line, or as a table: cells returns the
// cells of a row, without a tab in them.
func printRows[R any](app *App, asJSON bool, head []string, rows []R, cells func(R) []string) error {
	if asJSON {
		for _, r := range rows {
			if err := printJSON(app.Stdout, r); err != nil {
				return err
			}
		}
		return nil
	}
	t := table{width: app.width(), head: head, rows: turned(rows, cells)}
	return t.write(app.Stdout)
}

// isTerminal reports whether a person looks at w.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// taskExit is how a command ends that has followed a task to this state.
func taskExit(s a2a.State) error {
	switch {
	case s == a2a.StateCompleted, s == a2a.StateNone, s == a2a.StateSubmitted, s == a2a.StateWorking:
		return nil
	case s.Interrupted():
		return &exitError{code: exitTaskWaits}
	default:
		return &exitError{code: exitTaskFailed}
	}
}
