package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// Error is a refusal by the server: a JSON-RPC error, an HTTP status, or both.
type Error struct {
	Status     int           // HTTP status if it was not 200
	Code       int           // of JSON-RPC; 0 if the answer was no JSON-RPC
	Message    string        // as the server wrote it
	Data       []byte        // raw JSON; nil if there is none
	RetryAfter time.Duration // what the server asked for; 0 if it did not
}

// Error describes the refusal for the person who runs the client.
func (e *Error) Error() string {
	said := ""
	if e.Message != "" {
		said = ": " + e.Message
	}
	wait := ""
	if e.RetryAfter > 0 {
		wait = fmt.Sprintf(" (try again in %s)", e.RetryAfter)
	}
	switch e.Status {
	case http.StatusUnauthorized:
		return "not signed in" + said
	case http.StatusForbidden:
		return "the credentials do not allow this" + said
	case http.StatusNotFound:
		if e.Code == 0 {
			return "there is no A2A agent at this URL (404)" + said
		}
	case http.StatusTooManyRequests:
		return "the server takes no more requests from this caller for now" + said + wait
	case http.StatusServiceUnavailable:
		return "the server cannot take requests now" + said + wait
	}
	if e.Code != 0 {
		return fmt.Sprintf("%s (%d)", e.Message, e.Code)
	}
	return fmt.Sprintf("the server answered %d %s%s", e.Status, http.StatusText(e.Status), said)
}

// Reason returns the stable reason of the error, such as TASK_NOT_FOUND, or "".
func (e *Error) Reason() string {
	if s, ok := rawjson.String(rawjson.Get(e.Data, "reason")); ok {
		return s
	}
	for detail := range rawjson.Elements(e.Data) { // as in 1.0
		if s := str(detail, "reason"); s != "" {
			return s
		}
	}
	return ""
}

// Temporary reports whether the same request may succeed later.
func (e *Error) Temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Status >= 500 && e.Status != http.StatusNotImplemented
}

// ErrUnknown is returned when the connection broke before the server named the task: the server may
// have accepted the message or not.
var ErrUnknown = errors.New("the connection broke before the server answered: " +
	"the server may have accepted the message or not")

// unknown marks an error after which it is not known whether the server has the message.
func unknown(err error) error { return fmt.Errorf("%w (%w)", ErrUnknown, err) }

// temporary reports whether another try may help: after a cut, a network failure, or if the server
// asks for it.
func temporary(err error) bool {
	var refused *Error
	if errors.As(err, &refused) {
		return refused.Temporary()
	}
	var network *url.Error
	return errors.Is(err, errCut) || errors.As(err, &network)
}

// turnedAway reports whether the server has said that it did not accept the request. Other errors
// from 500 on may come from a proxy.
func turnedAway(err error) bool {
	var refused *Error
	return errors.As(err, &refused) &&
		(refused.Status == http.StatusTooManyRequests || refused.Status == http.StatusServiceUnavailable)
}

// rpcError decodes the error member of a checked response.
func rpcError(object []byte) *Error {
	code, _ := rawjson.Int(rawjson.Get(object, "code"))
	text, _ := rawjson.String(rawjson.Get(object, "message"))
	return &Error{Code: int(code), Message: text, Data: rawjson.Get(object, "data")}
}

// httpError reads enough of an answer without a result to say why.
func httpError(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	e := &Error{}
	if rawjson.Check(body, maxDepth) == nil {
		if object := rawjson.Get(rawjson.Trim(body), "error"); rawjson.KindOf(object) == rawjson.KindObject {
			e = rpcError(object)
		} else if text, ok := rawjson.String(rawjson.Get(rawjson.Trim(body), "message")); ok {
			e.Message = text
		}
	} else if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t == "text/plain" {
		e.Message = firstLine(string(body))
	}
	e.Status = resp.StatusCode
	e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
	if resp.StatusCode == http.StatusOK {
		if e.Code != 0 {
			e.Status = 0
			return e
		}
		return fmt.Errorf("the answer is not JSON-RPC but %q: is this the URL of an A2A agent?",
			resp.Header.Get("Content-Type"))
	}
	return e
}

// firstLine keeps an error on one line of a terminal.
func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}

// retryAfter reads the header in seconds. a2ad sends no other form.
func retryAfter(s string) time.Duration {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 24*3600 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// isJSON reports whether an answer is JSON. The media type decides. Servers that set none, such as
// a2a-go 0.3, send text/plain, so a body of that type is JSON if it parses.
func (c *Client) isJSON(resp *http.Response) bool {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && t == "text/plain" {
		limit := c.maxBytes()
		body, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
		return err != nil || len(body) > limit || rawjson.Check(body, maxDepth) == nil // readJSON reports the first two
	}
	return err == nil && (t == "application/json" || strings.HasSuffix(t, "+json"))
}

type readCloser struct {
	io.Reader
	io.Closer
}

func isEventStream(resp *http.Response) bool {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && t == "text/event-stream"
}
