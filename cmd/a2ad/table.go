package main

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// columnGap is between two columns, foldIndent before what a row has on further lines, and proseWidth is enough of a line for
// text to go on there.
const (
	columnGap  = 2
	foldIndent = 4
	proseWidth = 30
)

// table is rows for people. Where the terminal is too narrow for them, each row is folded between columns, in the same places, and
// a text that is longer than its line is broken between words: nothing is left out. Cells hold no tabs.
type table struct {
	width  int    // of the terminal; 0: lines are as long as they are
	indent string // before each line
	head   []string
	rows   [][]string
}

// fold is a range of columns that share a line.
type fold struct{ from, to int }

func (t *table) write(w io.Writer) error {
	out := bufio.NewWriter(w)
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	folds := t.folds(widths)
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, f := range folds {
			t.line(out, f, i > 0, widths, row)
		}
	}
	return out.Flush()
}

// folds puts as many columns into a line as there is room for. The last one is text, which can be broken.
func (t *table) folds(widths []int) []fold {
	first, begin := 0, len(t.indent)
	at := begin
	var list []fold
	for i, width := range widths {
		if i == len(widths)-1 {
			width = min(width, proseWidth)
		}
		if i > first && t.width > 0 && at+width > t.width {
			list = append(list, fold{first, i})
			first, at = i, len(t.indent)+foldIndent
		}
		at += width + columnGap
	}
	return append(list, fold{first, len(widths)})
}

func (t *table) line(out *bufio.Writer, f fold, further bool, widths []int, row []string) {
	indent := t.indent
	if further {
		indent += strings.Repeat(" ", foldIndent)
	}
	at := len(indent)
	_, _ = out.WriteString(indent) // its errors come with Flush
	for i := f.from; i < f.to-1; i++ {
		_, _ = out.WriteString(row[i] + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(row[i])+columnGap))
		at += widths[i] + columnGap
	}
	_, _ = out.WriteString(wrap(row[f.to-1], at, t.width) + "\n")
}

// wrap breaks a text that begins at a column so that it ends before another one: between words, and within those that are too
// long. A width of 0 leaves it as it is.
func wrap(text string, from, width int) string {
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

// width is how many columns the terminal has that stdout is; 0: it is none, or does not say.
func (a *App) width() int {
	if a.columns > 0 {
		return a.columns
	}
	return int(a.window().Col)
}

// height is how many lines the terminal has; 0 as for width.
func (a *App) height() int {
	if a.lines > 0 {
		return a.lines
	}
	return int(a.window().Row)
}

func (a *App) window() unix.Winsize {
	f, ok := fileOf(a.Stdout)
	if !ok || !a.Terminal {
		return unix.Winsize{}
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return unix.Winsize{}
	}
	return *size
}

// firstLines passes so many lines on, and drops what is behind them.
type firstLines struct {
	w    io.Writer
	left int
}

// firstScreen is a whose output ends where the terminal does, but for the line of the cursor.
func (a *App) firstScreen() *App {
	screen := *a
	screen.columns = a.width()
	if lines := a.height(); lines > 1 {
		screen.Stdout = &firstLines{a.Stdout, lines - 1}
	}
	return &screen
}

func (f *firstLines) Write(p []byte) (int, error) {
	end := 0
	for ; f.left > 0 && end < len(p); f.left-- {
		if at := bytes.IndexByte(p[end:], '\n'); at >= 0 {
			end += at + 1
			continue
		}
		end = len(p)
		break
	}
	_, err := f.w.Write(p[:end])
	return len(p), err
}
