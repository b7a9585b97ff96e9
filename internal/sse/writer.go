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

// DefaultWriteTimeout is how long one call of a Writer may take by default.
const DefaultWriteTimeout = 10 * time.Second

// restTimeout is the deadline between calls. It must be longer than every pause between two
// heartbeats, because HTTP/2 resets an idle stream whose deadline passes. There must be one,
// because net/http still writes after the handler has returned, to a client that may have stopped
// reading.
const restTimeout = time.Hour

// breaks are the characters that end a line of the stream.
const breaks = "\r\n"

// errInvalidID reports an id that would break out of its line.
var errInvalidID = errors.New("sse: event id with CR, LF or NUL")

// Writer writes one event stream as the response to one request. It sends nothing before the first
// call, so until then the handler may answer with an ordinary HTTP error. Each call ends with a
// flush: if it returns nil, the bytes have left the process.
//
// After a connection error every later call returns the same error. A Writer is not safe for
// concurrent use.
type Writer struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration // negative: do not change deadlines
	started bool
	err     error
}

// NewWriter returns a Writer of the response w. Each call must send its bytes within timeout, else it fails (over
// HTTP/1 with os.ErrDeadlineExceeded). So a client that reads too slowly is cut off, and resumes from its last id. Zero
// means DefaultWriteTimeout. A negative timeout leaves the deadlines of the connection unchanged.
func NewWriter(w http.ResponseWriter, timeout time.Duration) *Writer {
	if timeout == 0 {
		timeout = DefaultWriteTimeout
	}
	return &Writer{w: w, rc: http.NewResponseController(w), timeout: timeout}
}

// Event writes one event. An empty id writes none, so the client keeps its last id. The data is the
// concatenation of the given pieces, on one line: a CR or LF becomes a blank, which means the same
// in JSON. The pieces are neither kept nor changed. An id with a CR, LF or NUL is refused, and
// nothing is written.
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

// Comment writes a line that clients ignore: a heartbeat, or a hint for people who read the stream.
// A CR or LF in text becomes a blank.
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

// A Writer uses a buffer only during a call, so ten thousand idle streams use none. Pieces larger
// than a buffer are written without a copy.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 4<<10) }}

// begin renews the deadline, sends the headers if necessary, and returns a buffer, which end gives
// back.
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
		h.Set("X-Accel-Buffering", "no") // nginx would delay events
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

// writeLine writes p with a blank for each CR and LF. Text without them is written in one piece.
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

// indexBreak returns the index of the first CR or LF in p, or -1. It searches twice, because
// bytes.IndexByte is many times faster than a loop over a long line.
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
