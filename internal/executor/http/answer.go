package http

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	nethttp "net/http"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/vocab"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/sse"
)

// answer is the body of an answer, with limits for its size and its pauses.
type answer struct {
	x       *exchange
	body    io.Reader
	decoder *vocab.Decoder
	vague   bool // its end cannot be distinguished from a cut
	left    int  // bytes that may still be read
	n       int  // events so far
}

func newAnswer(x *exchange, resp *nethttp.Response) *answer {
	return &answer{
		x: x, body: resp.Body, decoder: vocab.NewDecoder(x.run), left: x.e.c.MaxOutput,
		vague: resp.ContentLength < 0 && !slices.Contains(resp.TransferEncoding, "chunked"),
	}
}

var (
	errTooMuch = errors.New("answer too long")
	errCut     = errors.New("the agent's connection was cut before the end of its answer")
)

// Read reads the body. The idle timeout only runs while it waits for bytes: a slow caller is not the agent's fault.
func (a *answer) Read(b []byte) (int, error) {
	if a.left <= 0 {
		return 0, errTooMuch
	}
	if limit := a.x.e.c.IdleTimeout; limit > 0 {
		t := time.AfterFunc(limit, func() { a.x.abort(errIdle) })
		defer t.Stop()
	}
	n, err := a.body.Read(b)
	a.left -= n
	return n, err
}

// read reads events until one ends the turn, which is errTurnEnded, or an error occurs.
func (a *answer) read(ctx context.Context, h nethttp.Header) error {
	if enc := h.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return executor.InvalidResponse("the answer has the Content-Encoding %.40q, which was not requested", enc)
	}
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type")) // after an error the kind is not one of these
	switch kind {
	case "application/x-ndjson", "application/ndjson",
		"application/jsonl", "application/x-jsonlines", "application/jsonlines":
		return a.lines(ctx)
	case "text/event-stream":
		return a.stream(ctx)
	case "application/json":
		return a.document(ctx)
	}
	return executor.InvalidResponse(
		"the answer has the Content-Type %.80q; it must be application/x-ndjson, text/event-stream or application/json",
		h.Get("Content-Type"))
}

// event decodes one event and emits it.
func (a *answer) event(data []byte) error {
	a.n++
	event, err := a.decoder.Decode(data)
	if err != nil {
		return executor.InvalidResponse("event %d of the answer: %w", a.n, err)
	}
	final := a2a.EndsRun(event)
	if final {
		a.x.last()
	}
	if err := a.x.emit(event); err != nil {
		return err
	}
	if final {
		return errTurnEnded
	}
	return nil
}

// end returns the error for the end of the body, if no status ended the turn. ctx is the context of the request.
func (a *answer) end(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause != nil:
		return cause
	case errors.Is(err, errTooMuch):
		return executor.InvalidResponse("the answer is longer than %d bytes", a.x.e.c.MaxOutput)
	case errors.Is(err, sse.ErrTooLarge), errors.Is(err, bufio.ErrTooLong):
		return executor.InvalidResponse("event %d of the answer is longer than %d bytes", a.n+1, a.x.e.c.MaxEvent)
	}
	a.x.open = false // the agent has closed it
	if errors.Is(err, io.EOF) && !a.vague {
		return executor.InvalidResponse("the answer ended after event %d without a status that ends the turn", a.n)
	}
	a.x.log.Warn("agent's answer was cut", "events", a.n, "err", err)
	return errCut
}

// lines reads one event per line.
func (a *answer) lines(ctx context.Context) error {
	r := bufio.NewReaderSize(a, 64<<10)
	for {
		line, err := readLine(r, a.x.e.c.MaxEvent)
		// In a body that may have been cut, a line without a line break only counts if it is valid JSON: the beginning
		// of an event never is.
		line = bytes.TrimSpace(line)
		whole := err == nil || errors.Is(err, io.EOF) && (!a.vague || rawjson.Check(line, maxDepth) == nil)
		if len(line) > 0 && whole {
			if err := a.event(line); err != nil {
				return err
			}
		}
		if err != nil {
			return a.end(ctx, err)
		}
	}
}

// maxDepth is the maximum depth of JSON: an event inside an array.
const maxDepth = 65

// readLine returns the next line in new memory. The error is io.EOF with the last line.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		line = append(line, piece...)
		if len(bytes.TrimRight(line, "\r\n")) > most {
			return nil, bufio.ErrTooLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// stream reads server-sent events. Their types do not matter.
func (a *answer) stream(ctx context.Context) error {
	r := sse.NewReader(a, sse.ReaderOptions{MaxLine: a.x.e.c.MaxEvent + len("data: "), MaxEvent: a.x.e.c.MaxEvent})
	for {
		ev, err := r.Next()
		if err != nil {
			return a.end(ctx, err)
		}
		if sse.Blank(ev.Data) {
			continue
		}
		if err := a.event(ev.Data); err != nil {
			return err
		}
	}
}

// document reads one JSON value: an event, or an array of events.
func (a *answer) document(ctx context.Context) error {
	data, err := io.ReadAll(a)
	if err != nil {
		return a.end(ctx, err)
	}
	a.x.open = false
	data = rawjson.Trim(data)
	if err := rawjson.Check(data, maxDepth); err != nil {
		if a.vague {
			return a.end(ctx, io.EOF)
		}
		return executor.InvalidResponse("the answer: %w", err)
	}
	if rawjson.KindOf(data) != rawjson.KindArray {
		err = a.one(ctx, data)
	} else {
		for e := range rawjson.Elements(data) {
			if err = a.one(ctx, e); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	a.vague = false // it is complete
	return a.end(ctx, io.EOF)
}

// one emits one event of a document.
func (a *answer) one(ctx context.Context, data []byte) error {
	if len(data) > a.x.e.c.MaxEvent {
		return a.end(ctx, sse.ErrTooLarge)
	}
	return a.event(data)
}
