// Package jsonrpc is the envelope of JSON-RPC 2.0 for a server: it reads one request object, and
// writes one response object.
//
// It keeps ids and params as received bytes, so that an id goes back exactly as it was sent. It
// accepts nothing that two readers could understand differently. It knows no methods, and no errors
// beyond the two of the envelope itself.
package jsonrpc

import (
	"errors"
	"fmt"
	"strings"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// MaxID is how many bytes an id may have, quotes included.
const MaxID = 256

// Request is one call. ID and Params are parts of the parsed body.
type Request struct {
	ID     []byte // a string, a number or null as sent; nil when absent
	Method string
	Params []byte // any JSON value; nil when absent or null
}

// Kind is what is wrong with a body.
type Kind uint8

// The two errors of an envelope: -32700 and -32600.
const (
	ParseError Kind = iota + 1
	InvalidRequest
)

// Fault says why a body is no request. Text is written for the caller. ID belongs into the answer:
// the id of the request if it has a valid one, else nil.
type Fault struct {
	Kind Kind
	ID   []byte
	Text string
}

func (f *Fault) Error() string { return f.Text }

// Parse reads the body of one request, nested at most depth levels.
//
// It returns a ParseError for what is not JSON, including an empty body and a byte order mark. It returns an
// InvalidRequest for other JSON that is not a request. That is a value that is not an object, including batches. It is
// also a key that occurs twice at any level, because readers differ in which one they use, and a key that differs from
// one of ours only by case. Unknown members are ignored.
//
// Params may be any value. The method decides whether they must be an object, so that an unknown
// method is reported before its params. A request without an id is answered with a null id, as the
// A2A conformance kits expect.
func Parse(body []byte, depth int) (Request, *Fault) {
	if err := rawjson.Check(body, depth); err != nil {
		return Request{}, unreadable(body, err)
	}
	body = rawjson.Trim(body)
	switch rawjson.KindOf(body) {
	case rawjson.KindObject:
	case rawjson.KindArray:
		return Request{}, &Fault{Kind: InvalidRequest, Text: "batches are not supported: send one request object"}
	default:
		return Request{}, &Fault{Kind: InvalidRequest, Text: "the request must be a JSON object"}
	}
	var req Request
	var version, method []byte
	var stray string
	for key, value := range rawjson.Members(body) {
		switch string(key) {
		case "jsonrpc":
			version = value
		case "id":
			req.ID = value
		case "method":
			method = value
		case "params":
			if rawjson.KindOf(value) != rawjson.KindNull {
				req.Params = value
			}
		default:
			if name := lookalike(key); name != "" {
				stray = name
			}
		}
	}
	if text := checkID(req.ID); text != "" {
		return Request{}, &Fault{Kind: InvalidRequest, Text: text}
	}
	invalid := func(text string) (Request, *Fault) {
		return Request{}, &Fault{Kind: InvalidRequest, ID: req.ID, Text: text}
	}
	if stray != "" {
		return invalid(fmt.Sprintf("a member differs from %q only in its case", stray))
	}
	if v, ok := rawjson.String(version); !ok || v != "2.0" {
		return invalid(`jsonrpc must be "2.0"`)
	}
	m, ok := rawjson.String(method)
	if !ok {
		return invalid("method must be a string")
	}
	req.Method = m
	return req, nil
}

// unreadable turns an error of rawjson.Check into a fault.
func unreadable(body []byte, err error) *Fault {
	f := &Fault{Kind: ParseError, Text: "the body is not valid JSON: " + err.Error()}
	var e *rawjson.Error
	switch {
	case errors.As(err, &e) && e.Fault == rawjson.FaultDuplicate:
		f.Kind = InvalidRequest
		f.Text = "the body is ambiguous: " + err.Error()
	case len(rawjson.Trim(body)) == 0:
		f.Text = "the body is empty"
	}
	return f
}

func checkID(id []byte) string {
	switch rawjson.KindOf(id) {
	case rawjson.KindObject, rawjson.KindArray, rawjson.KindBool:
		return "id must be a string, a number or null"
	}
	if len(id) > MaxID {
		return fmt.Sprintf("id is longer than %d bytes", MaxID)
	}
	return ""
}

// lookalike returns the member that equals key under Unicode case folding, if any. A reader that
// ignores the case of keys would confuse the two.
func lookalike(key []byte) string {
	for _, name := range [...]string{"jsonrpc", "id", "method", "params"} {
		if strings.EqualFold(string(key), name) {
			return name
		}
	}
	return ""
}

// ResultSuffix ends what AppendResultPrefix starts.
const ResultSuffix = "}"

// AppendResultPrefix appends a response up to its result, so that a stream can send prefix, result
// and ResultSuffix from three buffers and share the result with other streams. A nil id is written
// as null.
func AppendResultPrefix(dst, id []byte) []byte {
	return append(appendID(dst, id), `,"result":`...)
}

// AppendResult appends a response with result, which is one JSON value.
func AppendResult(dst, id, result []byte) []byte {
	dst = append(AppendResultPrefix(dst, id), result...)
	return append(dst, ResultSuffix...)
}

// AppendError appends a response with an error object.
func AppendError(dst, id, object []byte) []byte {
	dst = append(append(appendID(dst, id), `,"error":`...), object...)
	return append(dst, '}')
}

func appendID(dst, id []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	if id == nil {
		return append(dst, "null"...)
	}
	return append(dst, id...)
}
