package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// DefaultWriteTimeout is how long one call of a Writer may take if nothing else is set.
const DefaultWriteTimeout = 10 * time.Second

// restTimeout is the deadline in force between calls. It must outlast every pause
// between two heartbeats, since HTTP/2 resets a stream whose deadline passes while it
// is idle; and it must exist, since net/http still writes after the handler returned,
// to a client that may have stopped reading.
const restTimeout = time.Hour

// breaks are the characters that end a line of the stream.
const breaks = "\r\n"

// errInvalidID reports an id that would break out of its line.
var errInvalidID = errors.New("sse: event id with CR, LF or NUL")

// Writer writes one event stream as the response to one request. Nothing is sent
// before the first call, so that until then the handler may still answer with an
// ordinary HTTP error. Each call ends with a flush: when it returns nil, the bytes have
// left the process.
//
// The first error of the connection is returned by every later call too. A Writer is
// not safe for concurrent use.
type Writer struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration // negative: leave deadlines alone
	started bool
	err     error
}

// NewWriter returns a Writer of the response w. Each call must get its bytes out within
// timeout, else it fails (over HTTP/1 with os.ErrDeadlineExceeded): a client that reads
// too slowly is cut off, and resumes from its last id. Zero means DefaultWriteTimeout;
// a negative timeout leaves the deadlines of the connection as they are.
func NewWriter(w http.ResponseWriter, timeout time.Duration) *Writer {
	if timeout == 0 {
		timeout = DefaultWriteTimeout
	}
	return &Writer{w: w, rc: http.NewResponseController(w), timeout: timeout}
}

// Started reports whether the headers have been sent. From then on an error can only be
// told inside the stream.
func (w *Writer) Started() bool { return w.started }

// Event writes one event. An empty id writes none, which leaves the client's last id as
// it was. The data is the concatenation of the given pieces, always on one line: a CR or
// LF becomes a blank, which in JSON means the same. The pieces are not kept or changed.
// An id with a CR, LF or NUL is refused, and nothing is written.
func (w *Writer) Event(id string, data ...[]byte) error {
	if strings.ContainsAny(id, breaks+"\x00") {
		return errInvalidID
	}
	buf, err := w.begin()
	if err != nil {
		return err
	}
	if id != "" {
		_, _ = buf.WriteString("id: ") // buf keeps its first error for end
		_, _ = buf.WriteString(id)
		_ = buf.WriteByte('\n')
	}
	_, _ = buf.WriteString("data: ")
	for _, piece := range data {
		writeLine(buf, piece)
	}
	return w.end(buf)
}

// Comment writes a line that clients ignore: a heartbeat, or a hint to people who look
// at the stream. A CR or LF in text becomes a blank.
func (w *Writer) Comment(text string) error {
	buf, err := w.begin()
	if err != nil {
		return err
	}
	_, _ = buf.WriteString(": ")
	for i := strings.IndexAny(text, breaks); i >= 0; i = strings.IndexAny(text, breaks) {
		_, _ = buf.WriteString(text[:i])
		_ = buf.WriteByte(' ')
		text = text[i+1:]
	}
	_, _ = buf.WriteString(text)
	return w.end(buf)
}

// Retry tells the client how long to wait before it reconnects, in whole milliseconds.
func (w *Writer) Retry(d time.Duration) error {
	buf, err := w.begin()
	if err != nil {
		return err
	}
	_, _ = buf.WriteString("retry: ")
	_, _ = buf.Write(strconv.AppendInt(buf.AvailableBuffer(), max(d.Milliseconds(), 0), 10))
	return w.end(buf)
}

// buffers belong to a Writer only during a call: ten thousand idle streams hold none.
// Pieces larger than a buffer pass by it without being copied.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 4<<10) }}

// begin renews the deadline, sends the headers if they are still to be sent, and lends
// a buffer, which end takes back.
func (w *Writer) begin() (*bufio.Writer, error) {
	if w.err != nil {
		return nil, w.err
	}
	if err := w.deadline(w.timeout); err != nil {
		return nil, w.fail("set write deadline", err)
	}
	if !w.started {
		w.started = true
		h := w.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store, no-transform")
		h.Set("X-Accel-Buffering", "no") // nginx would hold events back
		h.Del("Content-Length")
		w.w.WriteHeader(http.StatusOK)
	}
	buf := buffers.Get().(*bufio.Writer)
	buf.Reset(w.w)
	return buf, nil
}

// end closes the block and sends it.
func (w *Writer) end(buf *bufio.Writer) error {
	_, _ = buf.WriteString("\n\n")
	err := buf.Flush()
	buf.Reset(nil)
	buffers.Put(buf)
	if err != nil {
		return w.fail("write event stream", err)
	}
	if err := w.rc.Flush(); err != nil {
		return w.fail("flush event stream", err)
	}
	if err := w.deadline(restTimeout); err != nil {
		return w.fail("set write deadline", err)
	}
	return nil
}

func (w *Writer) deadline(d time.Duration) error {
	if w.timeout < 0 {
		return nil
	}
	err := w.rc.SetWriteDeadline(time.Now().Add(d))
	if errors.Is(err, http.ErrNotSupported) { // a recorder in a test
		w.timeout = -1
		return nil
	}
	return err
}

func (w *Writer) fail(doing string, err error) error {
	w.err = fmt.Errorf("%s: %w", doing, err)
	return w.err
}

// writeLine writes p with a blank for each CR and LF. Text without any is written in one piece.
func writeLine(buf *bufio.Writer, p []byte) {
	for len(p) > 0 {
		i := indexBreak(p)
		if i < 0 {
			_, _ = buf.Write(p)
			return
		}
		_, _ = buf.Write(p[:i])
		_ = buf.WriteByte(' ')
		p = p[i+1:]
	}
}

// indexBreak returns the index of the first CR or LF in p, or -1. Two searches, because
// bytes.IndexByte is many times faster than a loop over a long line without breaks.
func indexBreak(p []byte) int {
	lf := bytes.IndexByte(p, '\n')
	if lf >= 0 {
		p = p[:lf]
	}
	if cr := bytes.IndexByte(p, '\r'); cr >= 0 {
		return cr
	}
	return lf
}
