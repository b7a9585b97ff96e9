//go:build unix

package exec

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// The command ends long before its output is read. The deadline set at the exit has passed, but the content of
// the pipe must still be read.
func TestSlowReaderMissesNothing(t *testing.T) {
	t.Parallel()
	// The second deadline passes before the reader reads, as on a busy machine.
	for _, lull := range []time.Duration{50 * time.Millisecond, 1} {
		slowReaderMissesNothing(t, lull)
	}
}

func slowReaderMissesNothing(t *testing.T, lull time.Duration) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close() // kept open, as by a process that has left the group
	if _, err := w.WriteString("a\nb"); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	o := newOutput(r, lull, 100)
	if line, err := o.line(10); string(line) != "a" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
	if line, err := o.line(10); string(line) != "b" || !errors.Is(err, errAbandoned) {
		t.Errorf("got %q, %v, want b and %v", line, err, errAbandoned)
	}
}

func TestEndlessWriterIsAbandoned(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for err := error(nil); err == nil; {
			_, err = w.WriteString("flood\n")
		}
	}()
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	o := newOutput(r, time.Millisecond, 10_000)
	for err = nil; err == nil; {
		_, err = o.line(10)
	}
	if !errors.Is(err, errAbandoned) {
		t.Errorf("got %v, want %v", err, errAbandoned)
	}
	r.Close()
	<-done
	w.Close()
}

func TestWholeCutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "a": "a", "ä": "ä", "a\xc3": "a", "a\xe2\x82": "a", "a\xf0\x9f\x98": "a",
		"a😀": "a😀", "\xff": "\xff",
		"a\x80\x80\x80\x80": "a\x80\x80\x80\x80",
	} {
		if got := string(whole([]byte(in))); got != want {
			t.Errorf("whole(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLineBounds(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, "12345\r\n123456\n")
		w.Close()
	}()
	o := &output{}
	o.buf = newOutput(nil, 0, 0).buf
	o.buf.Reset(r)
	if line, err := o.line(5); string(line) != "12345\r" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
	if _, err := o.line(5); !errors.Is(err, errLineTooLong) {
		t.Errorf("got %v", err)
	}
	r.Close()
}
