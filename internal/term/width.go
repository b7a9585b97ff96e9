package term

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Width returns how many columns of a terminal a text takes. Characters of East Asian scripts and emoji take two, and
// marks that combine with the character before them take none.
func Width(text string) (columns int) {
	for _, r := range text {
		columns += columnsOf(r)
	}
	return columns
}

func columnsOf(r rune) int {
	switch {
	case r < 0x7f:
		return 1
	case deceives(r) && r <= 0xffff:
		return len(`\u0000`) // safeWriter escapes it
	case unicode.In(r, unicode.Mn, unicode.Me), r == 0x200c, r == 0x200d:
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// cut shortens a text to a number of columns.
func cut(text string, columns int) string {
	if Width(text) <= columns {
		return text
	}
	used := 0
	for i, r := range text {
		used += columnsOf(r)
		if used > columns-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// pad returns spaces that fill a cell up to a number of columns.
func pad(text string, columns int) string { return strings.Repeat(" ", max(columns-Width(text), 0)) }

// prefix returns how many bytes of a text fit into a number of columns: those of one character at least.
func prefix(text string, columns int) int {
	used := 0
	for i, r := range text {
		if used += columnsOf(r); used > columns && i > 0 {
			return i
		}
	}
	return len(text)
}
