package term

import (
	"fmt"
	"io"
)

// Rows writes a list to stdout: one JSON object per line, or a table whose cells come from cells. If the terminal is
// narrow, rows may take several lines.
func Rows[R any](c *Console, asJSON bool, head []string, rows []R, cells func(R) []string) error {
	return Records(c, asJSON, head, nil, rows, cells)
}

// Records is Rows with optional columns: if the terminal is too narrow for one line a row, it leaves them out, the
// first ones first, and the seconds of times. Text in the last column is wrapped.
func Records[R any](c *Console, asJSON bool, head, optional []string, rows []R, cells func(R) []string) error {
	return writeRows(&table{head: head, optional: optional}, c, asJSON, rows, cells)
}

// List is Records for a list that people scan: each row has one line. If leaving out columns is not enough, it cuts
// long texts, but no ids.
func List[R any](c *Console, asJSON bool, head, optional []string, rows []R, cells func(R) []string) error {
	return writeRows(&table{head: head, optional: optional, brevity: true}, c, asJSON, rows, cells)
}

func writeRows[R any](t *table, c *Console, asJSON bool, rows []R, cells func(R) []string) error {
	if asJSON {
		for _, r := range rows {
			if err := JSON(c.Stdout, r); err != nil {
				return err
			}
		}
		return nil
	}
	t.width, t.paint = c.Width(), c.Paint()
	for _, r := range rows {
		t.rows = append(t.rows, cells(r))
	}
	return t.write(c.Stdout)
}

// Sections writes tables under titles. After an error it writes nothing more; Err returns it.
type Sections struct {
	w     io.Writer
	width int
	paint Painter
	began bool
	err   error
}

// NewSections writes to stdout.
func NewSections(c *Console) *Sections {
	return &Sections{w: c.Stdout, width: c.Width(), paint: c.Paint()}
}

// Table writes a section. One without rows is a single line.
func (s *Sections) Table(title string, head []string, rows [][]string) {
	if s.err != nil {
		return
	}
	if s.began {
		fmt.Fprintln(s.w)
	}
	s.began = true
	if len(rows) == 0 {
		_, s.err = fmt.Fprintf(s.w, "%s: none\n", s.paint.Bold(title))
		return
	}
	fmt.Fprintln(s.w, s.paint.Bold(title))
	t := table{width: s.width, indent: "  ", head: head, rows: rows, paint: s.paint}
	s.err = t.write(s.w)
}

// Remark writes a line below the last table.
func (s *Sections) Remark(text string) {
	if s.err == nil {
		_, s.err = fmt.Fprintln(s.w, "  "+Wrap(text, 2, s.width))
	}
}

// Err returns the first error of writing.
func (s *Sections) Err() error { return s.err }
