package term

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Painter colors text; false leaves it plain.
type Painter bool

// SGR returns text in the colors of an SGR code of the terminal, such as "1;31".
func (p Painter) SGR(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Dim returns faint text.
func (p Painter) Dim(text string) string { return p.SGR("2", text) }

// Bold returns bold text.
func (p Painter) Bold(text string) string { return p.SGR("1", text) }

const (
	green  = "32"
	red    = "31"
	yellow = "33"
	cyan   = "36"
)

// wordColors are the colors of states: of tasks, agents, workers, webhooks, keys and ticks.
var wordColors = map[string]string{
	"completed": green, "active": green, "done": green, "ok": green, "started": green, "applied": green,
	"failed": red, "rejected": red, "lost": red, "unreachable": red, "dead": red, "disabled": red, "revoked": red,
	"expired": red, "missed": red,
	"canceled": yellow, "input-required": yellow, "auth-required": yellow, "paused": yellow, "drained": yellow,
	"gone": yellow, "parked": yellow, "pending": yellow, "open": yellow, "failing": yellow, "skipped": yellow,
	"submitted": cyan, "working": cyan,
}

// Word colors the cell of a state by its first word that has a color, as in "active replica".
func (p Painter) Word(cell string) string {
	for word := range strings.FieldsFuncSeq(cell, func(r rune) bool { return r == ' ' || r == ',' }) {
		if code := wordColors[word]; code != "" {
			return p.SGR(code, cell)
		}
	}
	return cell
}

// State returns a function that colors text by the state of a task.
func (p Painter) State(s a2a.State) func(string) string {
	code := cmp.Or(wordColors[s.String()], cyan)
	return func(text string) string { return p.SGR(code, text) }
}

// JSON writes a value on one line.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

const momentLayout = "2006-01-02 15:04:05Z"

// Moment returns a time in UTC, to the second.
func Moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(momentLayout)
}

// MomentOf is Moment of a time that may be absent.
func MomentOf(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return Moment(*t)
}

// Duration returns a duration to about three digits.
func Duration(d time.Duration) string {
	switch {
	case d > 0 && d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Age returns how long ago something was, in one unit, for a narrow column.
func Age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Size returns a number of bytes with a unit.
func Size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), 0
	for v >= 1024 && unit < 5 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, " KMGTP"[unit])
}

// Number returns a number, or "-" for 0.
func Number(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// Count returns a number with a noun: "1 task", "2 tasks".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Shorten cuts text to a number of columns.
func Shorten(text string, columns int) string { return cut(text, columns) }
