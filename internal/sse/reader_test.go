package sse_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/a2ad/a2ad/internal/leaktest"
	"github.com/a2ad/a2ad/internal/sse"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// readAll returns each event as one line of text, and the error that ended the stream.
func readAll(r *sse.Reader) (lines []string, err error) {
	for {
		ev, err := r.Next()
		if err != nil {
			return lines, err
		}
		if ev.Comment {
			lines = append(lines, fmt.Sprintf("comment %q", ev.Data))
		} else {
			lines = append(lines, fmt.Sprintf("%s %q id %q", ev.Type, ev.Data, ev.ID))
		}
	}
}

func TestReaderFollowsTheStandard(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, stream string
		want         []string
	}{
		{"one event", "data: x\n\n", []string{`message "x" id ""`}},
		{"all fields", "event: add\nid: 7\ndata: x\n\n", []string{`add "x" id "7"`}},
		{"lines are joined", "data: a\ndata: b\ndata\n\n", []string{`message "a\nb\n" id ""`}},
		{"one blank is dropped", "data:x\n\ndata:  x\n\n", []string{`message "x" id ""`, `message " x" id ""`}},
		{"empty data is an event", "data\n\ndata:\n\n", []string{`message "" id ""`, `message "" id ""`}},
		{"CRLF", "data: x\r\n\r\ndata: y\r\n\r\n", []string{`message "x" id ""`, `message "y" id ""`}},
		{"CR", "data: x\r\rdata: y\r\r", []string{`message "x" id ""`, `message "y" id ""`}},
		{"mixed ends", "data: x\r\n\ndata: y\r\r\n", []string{`message "x" id ""`, `message "y" id ""`}},
		{"BOM", "\xef\xbb\xbfdata: x\n\n", []string{`message "x" id ""`}},
		{"only one BOM", "\xef\xbb\xbf\xef\xbb\xbfdata: x\n\ndata: y\n\n", []string{`message "y" id ""`}},
		{"comment", ": hi\n:\n:: x\n\n", []string{`comment "hi"`, `comment ""`, `comment ": x"`}},
		{"comment inside an event", "data: a\n: hi\ndata: b\n\n", []string{`comment "hi"`, `message "a\nb" id ""`}},
		{"id lasts", "id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
			[]string{`message "a" id "1"`, `message "b" id "1"`, `message "c" id ""`}},
		{"id without data", "id: 1\n\ndata: a\n\n", []string{`message "a" id "1"`}},
		{"id with NUL", "id: 1\nid: 2\x003\ndata: a\n\n", []string{`message "a" id "1"`}},
		{"event does not last", "event: e\n\ndata: a\n\n", []string{`message "a" id ""`}},
		{"unknown fields", "foo: x\nDATA: x\n data: x\ndata : x\ndata: y\n\n", []string{`message "y" id ""`}},
		{"not closed", "data: x\n\ndata: y\n", []string{`message "x" id ""`}},
		{"last line not ended", "data: x\n\n: half", []string{`message "x" id ""`}},
		{"nothing", "", nil},
		{"not UTF-8", "data: \xff\n\n", []string{`message "\xff" id ""`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []io.Reader{
				strings.NewReader(tt.stream),
				iotest.OneByteReader(strings.NewReader(tt.stream)),
				iotest.DataErrReader(strings.NewReader(tt.stream)),
			} {
				got, err := readAll(sse.NewReader(r, sse.ReaderOptions{Comments: true}))
				if !errors.Is(err, io.EOF) || !slices.Equal(got, tt.want) {
					t.Errorf("%q:\n got %q, %v\nwant %q, EOF", tt.stream, got, err, tt.want)
				}
			}
		})
	}
}

func TestReaderHidesCommentsUnlessAsked(t *testing.T) {
	t.Parallel()
	got, _ := readAll(sse.NewReader(strings.NewReader(": ping\n\ndata: x\n\n"), sse.ReaderOptions{}))
	if want := []string{`message "x" id ""`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An event that was cut off is lost: resuming after its id would skip it.
func TestLastEventIDIgnoresAnEventThatWasCutOff(t *testing.T) {
	t.Parallel()
	r := sse.NewReader(strings.NewReader("id: 1\ndata: x\n\nid: 2\ndata: half"), sse.ReaderOptions{})
	if _, err := readAll(r); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if got := r.LastEventID(); got != "1" {
		t.Errorf("LastEventID = %q, want 1", got)
	}
}

func TestReaderRetry(t *testing.T) {
	t.Parallel()
	tests := []struct {
		stream string
		want   time.Duration
		ok     bool
	}{
		{"", 0, false},
		{"retry: 1500\n", 1500 * time.Millisecond, true},
		{"retry: 0\n", 0, true},
		{"retry: 5\nretry: x\nretry\nretry: -1\nretry: 1.5\n", 5 * time.Millisecond, true},
		{"retry: 9223372036854\n", 9223372036854 * time.Millisecond, true},
		{"retry: 9223372036855\n", 0, false}, // no Duration holds it
		{"retry: 99999999999999999999\n", 0, false},
	}
	for _, tt := range tests {
		r := sse.NewReader(strings.NewReader(tt.stream), sse.ReaderOptions{})
		_, _ = r.Next()
		if got, ok := r.Retry(); got != tt.want || ok != tt.ok {
			t.Errorf("%q: Retry = %v, %t, want %v, %t", tt.stream, got, ok, tt.want, tt.ok)
		}
	}
}

func TestReaderIsBounded(t *testing.T) {
	t.Parallel()
	limits := sse.ReaderOptions{MaxLine: 10_006, MaxEvent: 10_000}
	tests := []struct {
		name, stream string
		fits         bool
	}{
		{"data at the limit", "data: " + strings.Repeat("x", 10_000) + "\n\n", true},
		{"data above", "data: " + strings.Repeat("x", 10_001) + "\n\n", false},
		{"line above, no end", strings.Repeat("x", 20_000), false},
		{"short line above", ":" + strings.Repeat("x", 10_006) + "\ndata: x\n\n", false},
		{"lines at the limit", strings.Repeat("data:\n", 10_001) + "\n", true},
		{"lines above", strings.Repeat("data:\n", 10_002) + "\n", false},
	}
	for _, tt := range tests {
		r := sse.NewReader(strings.NewReader(tt.stream), limits)
		_, err := r.Next()
		if tt.fits && err != nil || !tt.fits && !errors.Is(err, sse.ErrTooLarge) {
			t.Errorf("%s: err = %v, fits = %t", tt.name, err, tt.fits)
		}
		if _, again := r.Next(); !tt.fits && !errors.Is(again, sse.ErrTooLarge) {
			t.Errorf("%s: second Next = %v, want the same error", tt.name, again)
		}
	}
}

// The byte after a CR may be minutes away: the event must not wait for it.
func TestReaderDoesNotReadPastTheEndOfAnEvent(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"data: x\n\n", "data: x\r\r", "data: x\r\n\r"} {
		blocks := iotest.ErrReader(errors.New("read past the event"))
		r := sse.NewReader(io.MultiReader(strings.NewReader(stream), blocks), sse.ReaderOptions{})
		if ev, err := r.Next(); err != nil || string(ev.Data) != "x" {
			t.Errorf("%q: Next = %q, %v", stream, ev.Data, err)
		}
	}
}

func TestReaderKeepsTheErrorOfItsSource(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	r := sse.NewReader(io.MultiReader(strings.NewReader("data: x\n"), iotest.ErrReader(broken)), sse.ReaderOptions{})
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, broken) {
			t.Errorf("Next = %v, want %v", err, broken)
		}
	}
}

// model parses a whole stream in the words of the standard, without bounds or buffers.
func model(stream []byte) (lines []string) {
	text := strings.TrimPrefix(string(stream), "\xef\xbb\xbf")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	all := strings.Split(text, "\n")
	var data, typ, id string
	for _, line := range all[:len(all)-1] { // the last one has no end
		if line == "" {
			if data != "" {
				if typ == "" {
					typ = "message"
				}
				lines = append(lines, fmt.Sprintf("%s %q id %q", typ, strings.TrimSuffix(data, "\n"), id))
			}
			data, typ = "", ""
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "":
			lines = append(lines, fmt.Sprintf("comment %q", value))
		case "data":
			data += value + "\n"
		case "event":
			typ = value
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		}
	}
	return lines
}

func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"id: 1-00c0ffee\ndata: {\"a\":1}\n\n", ": ping\n\n", "data: a\r\ndata: b\r\n\r\n", "data\r\rretry: 10\r\r",
		"\xef\xbb\xbfevent: x\nid\ndata:  y\n\n", "data: half",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		want := model(stream)
		for _, r := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream))} {
			got, err := readAll(sse.NewReader(r, sse.ReaderOptions{Comments: true}))
			if !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
				t.Fatalf("%q:\n got %q, %v\nwant %q", stream, got, err, want)
			}
		}
		r := sse.NewReader(bytes.NewReader(stream), sse.ReaderOptions{MaxLine: 16, MaxEvent: 8})
		for {
			ev, err := r.Next()
			if err != nil {
				break
			}
			if len(ev.Data) > 8 || len(ev.ID) > 16 || len(ev.Type) > 16 {
				t.Fatalf("%q: %+v is above the limits", stream, ev)
			}
		}
		if d, ok := r.Retry(); d < 0 || !ok && d != 0 {
			t.Fatalf("%q: retry %v", stream, d)
		}
	})
}
