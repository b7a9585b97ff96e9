package term

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	columnGap  = 2  // between two columns
	foldIndent = 4  // before the further lines of a row
	proseWidth = 30 // room for text that is wrapped
	leastProse = 16 // the same, where that makes fewer lines than a fold

	momentWidth = len(momentLayout)
)

// noValue is what a cell shows where a row has no value for its column.
const noValue = "-"

// table is a list of rows. Where the terminal is too narrow, columns in which no row has a value are omitted. If that
// is not enough, all rows are folded between the same columns, and text longer than its line is wrapped. Values are
// left out only of optional columns, if that leaves one line for each row; a line below the table names the columns.
// Cells hold no tabs.
type table struct {
	width    int    // of the terminal; 0: do not fold
	indent   string // before each line
	head     []string
	rows     [][]string
	optional []string // names of columns, the first to leave out first
	cut      bool     // the last column is not that of the full table, so it is not text that may be wrapped
}

// fold is a range of columns that share a line.
type fold struct{ from, to int }

func (t *table) write(w io.Writer) error {
	var omitted []string
	if !t.fits() {
		t, omitted = t.withoutEmptyColumns().brief()
	}
	text := t.text(proseWidth)
	if t.wrapsBetweenWords(leastProse) {
		if narrow := t.text(leastProse); strings.Count(narrow, "\n") < strings.Count(text, "\n") {
			text = narrow
		}
	}
	if len(omitted) > 0 {
		text += Wrap("Too narrow for "+strings.Join(omitted, ", ")+" and seconds: see -o json.", 0, t.width) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// wrapsBetweenWords reports whether the last column can be so narrow without a break inside of a word or of a time.
func (t *table) wrapsBetweenWords(width int) bool {
	if widths := t.widths(); t.cut || widths[len(widths)-1] <= momentWidth {
		return false
	}
	for _, row := range t.rows {
		for word := range strings.FieldsSeq(row[len(row)-1]) {
			if utf8.RuneCountInString(word) > width {
				return false
			}
		}
	}
	return true
}

// text writes the table with at least this much room for the last column.
func (t *table) text(prose int) string {
	var out strings.Builder
	widths := t.widths()
	folds := t.folds(widths, prose)
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, f := range folds {
			if i == 0 || !empty(row[f.from:f.to]) {
				t.line(&out, f, i > 0, widths, row)
			}
		}
	}
	return out.String()
}

func (t *table) widths() []int {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func empty(cells []string) bool {
	return !slices.ContainsFunc(cells, func(cell string) bool { return cell != noValue })
}

// withoutEmptyColumns returns a table without the columns in which no row has a value. The first column stays.
func (t *table) withoutEmptyColumns() *table {
	return t.without(func(i int) bool {
		hasValue := func(row []string) bool { return row[i] != noValue }
		return i > 0 && len(t.rows) > 0 && !slices.ContainsFunc(t.rows, hasValue)
	})
}

// without returns a table without some of the columns.
func (t *table) without(omit func(i int) bool) *table {
	kept := &table{width: t.width, indent: t.indent, optional: t.optional, cut: t.cut}
	kept.rows = make([][]string, len(t.rows))
	for i, name := range t.head {
		if omit(i) {
			kept.cut = kept.cut || i == len(t.head)-1
			continue
		}
		kept.head = append(kept.head, name)
		for j, row := range t.rows {
			kept.rows[j] = append(kept.rows[j], row[i])
		}
	}
	return kept
}

// brief returns a table whose rows have one line each, and the optional columns that it leaves out for that, as well as
// seconds. If leaving out all of them is not enough, nothing is left out.
func (t *table) brief() (brief *table, omitted []string) {
	if len(t.optional) == 0 || t.fits() {
		return t, nil
	}
	brief = t.toTheMinute()
	for _, name := range t.optional {
		if brief.fits() {
			break
		}
		if i := slices.Index(brief.head, name); i >= 0 {
			brief = brief.without(func(at int) bool { return at == i })
		}
	}
	if !brief.fits() {
		return t, nil
	}
	for _, name := range t.head {
		if !slices.Contains(brief.head, name) {
			omitted = append(omitted, name)
		}
	}
	return brief, omitted
}

// toTheMinute returns a table with the same times, but without their seconds.
func (t *table) toTheMinute() *table {
	short := *t
	short.rows = make([][]string, len(t.rows))
	for i, row := range t.rows {
		short.rows[i] = slices.Clone(row)
		for j, cell := range row {
			if at, err := time.Parse(momentLayout, cell); err == nil {
				short.rows[i][j] = at.Format("2006-01-02 15:04Z")
			}
		}
	}
	return &short
}

// fits reports whether no row is folded.
func (t *table) fits() bool { return len(t.folds(t.widths(), proseWidth)) == 1 }

// folds puts as many columns on a line as fit. Text in the last column can be wrapped.
func (t *table) folds(widths []int, prose int) []fold {
	first, begin := 0, len(t.indent)
	at := begin
	var list []fold
	for i, width := range widths {
		if i == len(widths)-1 && !t.cut {
			width = min(width, prose)
		}
		if i > first && t.width > 0 && at+width > t.width {
			list = append(list, fold{first, i})
			first, at = i, len(t.indent)+foldIndent
		}
		at += width + columnGap
	}
	return append(list, fold{first, len(widths)})
}

func (t *table) line(out *strings.Builder, f fold, further bool, widths []int, row []string) {
	indent := t.indent
	if further {
		indent += strings.Repeat(" ", foldIndent)
	}
	at := len(indent)
	out.WriteString(indent)
	for i := f.from; i < f.to-1; i++ {
		out.WriteString(row[i] + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(row[i])+columnGap))
		at += widths[i] + columnGap
	}
	out.WriteString(Wrap(row[f.to-1], at, t.width) + "\n")
}

// Wrap breaks text that begins at column from so that it ends before column width: between words,
// and inside of words that are too long. A width of 0 leaves the text as it is.
func Wrap(text string, from, width int) string {
	room := width - from
	if width <= 0 || room < 8 || utf8.RuneCountInString(text) <= room {
		return text
	}
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(text) {
		for n := utf8.RuneCountInString(word); ; n = utf8.RuneCountInString(word) {
			if at > 0 && at+1+n > room && (n <= room || at+1 >= room/2) {
				b.WriteString("\n" + strings.Repeat(" ", from))
				at = 0
			}
			if at > 0 {
				b.WriteByte(' ')
				at++
			}
			if at+n <= room {
				b.WriteString(word)
				at += n
				break
			}
			runes := []rune(word)
			b.WriteString(string(runes[:room-at]))
			word, at = string(runes[room-at:]), 0
			b.WriteString("\n" + strings.Repeat(" ", from))
		}
	}
	return b.String()
}

// Rows writes a list to stdout: one JSON object per line, or a table whose cells come from cells. If the terminal is
// narrow, rows may take several lines.
func Rows[R any](c *Console, asJSON bool, head []string, rows []R, cells func(R) []string) error {
	return List(c, asJSON, head, nil, rows, cells)
}

// List is Rows for a list that people scan: if the terminal is too narrow for one line a row, it leaves out optional
// columns, the first ones first, and the seconds of times.
func List[R any](c *Console, asJSON bool, head, optional []string, rows []R, cells func(R) []string) error {
	if asJSON {
		for _, r := range rows {
			if err := JSON(c.Stdout, r); err != nil {
				return err
			}
		}
		return nil
	}
	t := table{width: c.Width(), head: head, optional: optional}
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
	t := table{width: s.width, indent: "  ", head: head, rows: rows}
	s.err = t.write(s.w)
}

// Remark writes a line below the last table.
func (s *Sections) Remark(text string) {
	if s.err == nil {
		_, s.err = fmt.Fprintln(s.w, "  "+text)
	}
}

// Err returns the first error of writing.
func (s *Sections) Err() error { return s.err }
