package answer

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/decode"
)

// Error is a JSON-RPC error as the server wrote it.
type Error struct {
	Code    int
	Message string
	Reason  string // from its data, in either generation's form; "" if there is none
}

func (e *Error) Error() string { return fmt.Sprintf("error %d: %.300s", e.Code, e.Message) }

// Error codes that clients act on.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeTaskNotFound   = -32001
	CodeNotCancelable  = -32002
	CodeUnsupported    = -32004
	CodeVersion        = -32009
)

// Response returns the result of a JSON-RPC response to request id, or its error, which is an
// *Error. Any other error says why body is no such response. The result is a part of body.
func Response(body []byte, id int64) (result []byte, err error) {
	if err := rawjson.Check(body, MaxDepth); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	body = rawjson.Trim(body)
	if e := rawjson.Get(body, "error"); rawjson.KindOf(e) == rawjson.KindObject {
		return nil, decodeError(e)
	}
	result = rawjson.Get(body, "result")
	if result == nil {
		return nil, errors.New("not a JSON-RPC response: it has neither result nor error")
	}
	if got := rawjson.Get(body, "id"); !isID(got, id) {
		return nil, fmt.Errorf("the response belongs to another request: its id is %.40s, not %d", got, id)
	}
	return result, nil
}

// isID reports whether v is the id, also as a string. Some servers omit it.
func isID(v []byte, id int64) bool {
	if text, ok := rawjson.String(v); ok {
		return text == strconv.FormatInt(id, 10)
	}
	n, ok := rawjson.Int(v)
	return decode.Absent(v) || ok && n == id
}

func decodeError(v []byte) *Error {
	code, _ := rawjson.Int(rawjson.Get(v, "code"))
	text, _ := rawjson.String(rawjson.Get(v, "message"))
	e := &Error{Code: int(code), Message: text}
	data := rawjson.Get(v, "data")
	e.Reason, _ = rawjson.String(rawjson.Get(data, "reason"))
	for detail := range rawjson.Elements(data) {
		if s, ok := rawjson.String(rawjson.Get(detail, "reason")); ok && e.Reason == "" {
			e.Reason = s
		}
	}
	return e
}
