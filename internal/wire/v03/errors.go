package v03

import (
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// number returns the JSON-RPC error code of a domain error.
func number(code a2a.ErrorCode) int {
	switch code {
	case a2a.CodeTaskTerminal:
		return -32602 // T-12 in docs/reference/protocol.md
	case a2a.CodeExtensionRequired:
		return -32600 // 0.3 has no code for this
	}
	return encode.Number(code)
}

// AppendError appends a JSON-RPC error. Its data is an object with the reason, and the member with
// the error if there is one.
func (Codec) AppendError(dst []byte, err *a2a.Error, requestID string) []byte {
	message, field, internal := encode.Visible(err)
	dst = strconv.AppendInt(append(dst, `{"code":`...), int64(number(err.Code)), 10)
	dst = rawjson.AppendString(append(dst, `,"message":`...), message)
	dst = rawjson.AppendString(append(dst, `,"data":{"reason":`...), err.Code.Reason())
	dst = encode.Text(dst, `,"field":`, field)
	if internal {
		dst = encode.Text(dst, `,"requestId":`, requestID)
	}
	return append(dst, "}}"...)
}
