package term

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

const deceiving = "a\u202eb\u2028c\u2029d\u200be\u009bf\u0085g\u2066h\ufeffi"

// TestTerminalIsShownNoDeceivingText checks that code points that deceive a reader are escaped. Escaped JSON means the
// same as before.
func TestTerminalIsShownNoDeceivingText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &safeWriter{to: &out}
	if err := JSON(w, map[string]string{"name": deceiving + "é👩‍💻"}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(out.String(), deceives) || !strings.Contains(out.String(), `\u202e`) {
		t.Errorf("JSON: %q", out.String())
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["name"] != deceiving+"é👩‍💻" {
		t.Errorf("%q, %v", back, err)
	}
	out.Reset()
	for _, b := range []byte(deceiving + "é\x9b\x1b[2mx\n") { // every character in pieces
		if n, err := w.Write([]byte{b}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	want := `a\u202eb\u2028c\u2029d\u200be\u009bf\u0085g\u2066h\ufeffi` + "é\ufffd\x1b[2mx\n"
	if got := out.String(); got != want {
		t.Errorf("text: %q, want %q", got, want)
	}
}

// TestNotesAreOneLine checks that a line break in a name does not start a second note.
func TestNotesAreOneLine(t *testing.T) {
	t.Parallel()
	var notes bytes.Buffer
	s := NewTranscript(&Console{Stdout: &bytes.Buffer{}, Stderr: &notes})
	s.Note("%s", "x]\n[task 1 completed\tand\r\nmore\x1b[2J")
	if got := notes.String(); got != "[x] [task 1 completed and more\ufffd[2J]\n" {
		t.Errorf("%q", got)
	}
}
