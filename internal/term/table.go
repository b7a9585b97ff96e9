package term

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
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

// stateHead is the name of the columns whose words have colors.
const stateHead = "STATE"

// table is a list of rows. Where the terminal is too narrow, columns in which no row has a value are omitted. If that
// is not enough, all rows are folded between the same columns, and text longer than its line is wrapped. In a brief
// table, optional columns are left out instead, and then long texts are cut; a line below the table says so. Cells hold
// no tabs.
type table struct {
	width    int    // of the terminal; 0: do not fold
	indent   string // before each line
	head     []string
	rows     [][]string
	optional []string // names of columns, the first to leave out first
	brevity  bool     // no text is wrapped: long ones are cut if leaving out columns is not enough
	cut      bool     // the last column is not that of the full table, so it is not text that may be wrapped
	paint    Painter
}

// fold is a range of columns that share a line.
type fold struct{ from, to int }

func (t *table) write(w io.Writer) error {
	var omitted []string
	switch {
	case t.brevity && t.over() > 0:
		t, omitted = t.withoutEmptyColumns().brief()
	case !t.fits():
		t = t.withoutEmptyColumns()
		if len(t.optional) > 0 {
			t, omitted = t.brief()
		}
	}
	text := t.text(proseWidth)
	if t.wrapsBetweenWords(leastProse) {
		if narrow := t.text(leastProse); strings.Count(narrow, "\n") < strings.Count(text, "\n") {
			text = narrow
		}
	}
	if len(omitted) > 0 {
		last := len(omitted) - 1
		what := strings.Join(omitted[:last], ", ") + " and " + omitted[last]
		note := "Too narrow for " + strings.TrimPrefix(what, " and ") + ": see -o json."
		text += t.paint.Dim(Wrap(note, 0, t.width)) + "\n"
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
			if Width(word) > width {
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
			widths[i] = max(widths[i], Width(cell))
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
	kept := &table{
		width: t.width, indent: t.indent, optional: t.optional, brevity: t.brevity, cut: t.cut, paint: t.paint,
	}
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

// brief returns a table whose rows have one line each, and what it leaves out for that: the optional columns, and the
// seconds of times. If that is not enough, it cuts long texts. A table in which nothing can be cut is left as it is.
func (t *table) brief() (brief *table, omitted []string) {
	if brief = t; !t.fits() {
		brief = t.toTheMinute()
	}
	for _, name := range t.optional {
		if brief.fits() {
			break
		}
		if i := slices.Index(brief.head, name); i >= 0 {
			brief = brief.without(func(at int) bool { return at == i })
		}
	}
	short := brief
	if t.brevity {
		short = brief.shortened()
	}
	if short == nil || !short.fits() {
		return t, nil
	}
	for _, name := range t.head {
		if !slices.Contains(brief.head, name) {
			omitted = append(omitted, name)
		}
	}
	if len(omitted) > 0 {
		omitted = append(omitted, "seconds")
	}
	if short != brief {
		omitted = append(omitted, "long texts")
	}
	return short, omitted
}

// leastCut is how many columns of a text are left at least when it is cut.
const leastCut = 8

// shortened returns a table whose longest texts are cut so that it fits, or nil if that is not possible. Ids, times and
// numbers are never cut, because what is left of them would be something else.
func (t *table) shortened() *table {
	limits, over := t.widths(), t.over()
	if over <= 0 {
		return t
	}
	for i := range limits {
		if !t.isText(i) {
			limits[i] = 0
		}
	}
	for ; over > 0; over-- {
		longest := 0
		for i, n := range limits {
			if n > limits[longest] {
				longest = i
			}
		}
		if limits[longest] <= max(leastCut, Width(t.head[longest])) {
			return nil
		}
		limits[longest]--
	}
	short := *t
	short.rows = make([][]string, len(t.rows))
	for i, row := range t.rows {
		short.rows[i] = slices.Clone(row)
		for j, cell := range row {
			if limits[j] > 0 {
				short.rows[i][j] = cut(cell, limits[j])
			}
		}
	}
	return &short
}

// idHeads are the names of columns with ids.
var idHeads = []string{"TASK", "WEBHOOK", "KEY"}

// uncut matches cells that are not cut: times, numbers and durations.
var uncut = regexp.MustCompile(`^(-|[-+~<]?[0-9][0-9.:/%a-zA-Zµ -]*)$`)

// isText reports whether a column has texts, which may be cut.
func (t *table) isText(column int) bool {
	if t.head[column] == stateHead || slices.Contains(idHeads, t.head[column]) {
		return false
	}
	return slices.ContainsFunc(t.rows, func(row []string) bool { return !uncut.MatchString(row[column]) })
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

// over is how many columns the longest row takes too many, if no text is wrapped.
func (t *table) over() int {
	if t.width == 0 {
		return 0
	}
	over := len(t.indent) - columnGap - t.width
	for _, n := range t.widths() {
		over += n + columnGap
	}
	return over
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
		out.WriteString(t.painted(i, row[i]) + pad(row[i], widths[i]+columnGap))
		at += widths[i] + columnGap
	}
	last := row[f.to-1]
	if text := Wrap(last, at, t.width); text != last {
		out.WriteString(text + "\n")
	} else {
		out.WriteString(t.painted(f.to-1, last) + "\n")
	}
}

// painted returns a cell in its color: heads are bold, and states have a color.
func (t *table) painted(column int, cell string) string {
	switch t.head[column] {
	case cell:
		return t.paint.Bold(cell)
	case stateHead:
		return t.paint.Word(cell)
	}
	return cell
}

// Wrap breaks text that begins at column from so that it ends before column width: between words,
// and inside of words that are too long. A width of 0 leaves the text as it is.
func Wrap(text string, from, width int) string {
	room := width - from
	if width <= 0 || room < 8 || Width(text) <= room {
		return text
	}
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(text) {
		for n := Width(word); ; n = Width(word) {
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
			fits := prefix(word, room-at)
			b.WriteString(word[:fits])
			word, at = word[fits:], 0
			b.WriteString("\n" + strings.Repeat(" ", from))
		}
	}
	return b.String()
}
