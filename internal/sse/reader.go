package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// DefaultMaxBytes is the default limit of a line and of an event: the largest Task that our server
// stores.
const DefaultMaxBytes = 64 << 20

// maxKept is the largest line buffer that is kept for the next line.
const maxKept = 1 << 20

// ErrTooLarge is returned by Next for a line or an event above its limit.
var ErrTooLarge = errors.New("sse: line or event too large")

// Event is an event or, if requested, a comment.
type Event struct {
	ID   string // the last id in the stream so far
	Type string // "message" if the stream names none
	Data []byte // the data lines joined with LF, or the text of a comment; owned by the caller

	// Comment says that this is a comment. ID and Type are empty then.
	Comment bool
}

// ReaderOptions are the options of a Reader. The zero value works.
type ReaderOptions struct {
	MaxLine  int  // bytes of one line; 0 means DefaultMaxBytes
	MaxEvent int  // bytes of one event's data; 0 means DefaultMaxBytes
	Comments bool // Next returns comments too
}

// Blank reports whether the data of an event says nothing. Servers keep connections open, or mark the end of a stream,
// with events without data, with {} or with [DONE].
func Blank(data []byte) bool {
	switch string(bytes.TrimSpace(data)) {
	case "", "{}", "[DONE]":
		return true
	}
	return false
}

// Reader parses an event stream as the HTML standard defines. Lines end with LF, CRLF or CR, a
// leading byte order mark is skipped, unknown fields are ignored, and an event without a final
// empty line is dropped. It returns an event as soon as the byte that ends it has arrived. Bytes
// that are not UTF-8 are returned unchanged.
//
// A Reader is not safe for concurrent use.
type Reader struct {
	br       *bufio.Reader
	comments bool
	maxLine  int
	maxEvent int

	line    []byte // a line that did not fit into br
	skipLF  bool   // the last line ended with CR: a following LF belongs to it
	begun   bool   // the first line has been read
	err     error
	lastID  string // after the last complete block
	retry   time.Duration
	retryOK bool

	// The current block.
	id      string // kept after the block
	typ     string
	data    []byte
	hasData bool
}

// NewReader returns a Reader of the stream r. It may read more from r than it returns.
func NewReader(r io.Reader, opts ReaderOptions) *Reader {
	rd := &Reader{br: bufio.NewReader(r), comments: opts.Comments, maxLine: opts.MaxLine, maxEvent: opts.MaxEvent}
	if rd.maxLine <= 0 {
		rd.maxLine = DefaultMaxBytes
	}
	if rd.maxEvent <= 0 {
		rd.maxEvent = DefaultMaxBytes
	}
	return rd
}

// Next returns the next event. It returns io.EOF at the end of the stream, ErrTooLarge at a limit,
// else the error of the underlying reader. After an error it always returns the same one.
func (r *Reader) Next() (Event, error) {
	for r.err == nil {
		line, err := r.readLine()
		if err != nil {
			r.err = err
			break
		}
		ev, ok, err := r.handle(line)
		if err != nil {
			r.err = err
			break
		}
		if ok {
			return ev, nil
		}
	}
	return Event{}, r.err
}

// LastEventID returns the id to resume from: the id after the last complete block. The id of an
// event that was cut off does not count, because its data is lost.
func (r *Reader) LastEventID() string { return r.lastID }

// Retry returns the reconnection time that the stream last asked for. ok is false if it never did.
func (r *Reader) Retry() (d time.Duration, ok bool) { return r.retry, r.retryOK }

// handle processes one line. ok means that ev is complete.
func (r *Reader) handle(line []byte) (ev Event, ok bool, err error) {
	if len(line) == 0 {
		ev, ok = r.dispatch()
		return ev, ok, nil
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "": // the line began with a colon
		if r.comments {
			return Event{Comment: true, Data: bytes.Clone(value)}, true, nil
		}
	case "data":
		return Event{}, false, r.addData(value)
	case "event":
		r.typ = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.id = string(value)
		}
	case "retry":
		r.setRetry(value)
	}
	return Event{}, false, nil
}

func (r *Reader) addData(value []byte) error {
	if r.hasData {
		r.data = append(r.data, '\n')
	}
	if len(r.data)+len(value) > r.maxEvent {
		return ErrTooLarge
	}
	r.data = append(r.data, value...)
	r.hasData = true
	return nil
}

// setRetry ignores values that are not all digits, as the standard says, and values that no
// Duration can hold.
func (r *Reader) setRetry(value []byte) {
	if len(value) == 0 || !all(string(value), isDigit) {
		return
	}
	ms, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || ms > int64(1<<63-1)/int64(time.Millisecond) {
		return
	}
	r.retry, r.retryOK = time.Duration(ms)*time.Millisecond, true
}

// dispatch ends a block. Without a data line there is no event.
func (r *Reader) dispatch() (Event, bool) {
	r.lastID = r.id
	ev, ok := Event{ID: r.id, Type: r.typ, Data: r.data}, r.hasData
	r.typ, r.data, r.hasData = "", nil, false
	if ev.Type == "" {
		ev.Type = "message"
	}
	if ev.Data == nil {
		ev.Data = []byte{}
	}
	return ev, ok
}

// readLine returns the next line without its end. It is valid until the next call.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	if cap(r.line) > maxKept {
		r.line = nil // one huge event must not use memory for the rest of the stream
	}
	for {
		if _, err := r.br.Peek(1); err != nil {
			return nil, err // a line without an end is not a line
		}
		chunk, _ := r.br.Peek(r.br.Buffered())
		if r.skipLF {
			r.skipLF = false
			if chunk[0] == '\n' {
				_, _ = r.br.Discard(1)
				continue
			}
		}
		end := indexBreak(chunk)
		if end < 0 {
			if len(r.line)+len(chunk) > r.maxLine {
				return nil, ErrTooLarge
			}
			r.line = append(r.line, chunk...)
			_, _ = r.br.Discard(len(chunk))
			continue
		}
		r.skipLF = chunk[end] == '\r'
		_, _ = r.br.Discard(end + 1)
		line := chunk[:end]
		if len(r.line)+len(line) > r.maxLine {
			return nil, ErrTooLarge
		}
		if len(r.line) > 0 {
			r.line = append(r.line, line...)
			line = r.line
		}
		return r.withoutBOM(line), nil
	}
}

func (r *Reader) withoutBOM(line []byte) []byte {
	if r.begun {
		return line
	}
	r.begun = true
	return bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
}
