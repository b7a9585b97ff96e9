package v1

import (
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// AppendError appends a JSON-RPC error whose data are typed details: an ErrorInfo with the
// reason, and what else there is to say of the request, as google.rpc has it.
func (Codec) AppendError(dst []byte, err *a2a.Error, requestID string) []byte {
	message, field, internal := encode.Visible(err)
	dst = strconv.AppendInt(append(dst, `{"code":`...), int64(encode.Number(err.Code)), 10)
	dst = rawjson.AppendString(append(dst, `,"message":`...), message)
	dst = append(dst, `,"data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":`...)
	dst = rawjson.AppendString(dst, err.Code.Reason())
	dst = append(dst, `,"domain":"a2a-protocol.org"}`...)
	if field != "" {
		dst = append(dst, `,{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":`...)
		dst = rawjson.AppendString(dst, field)
		dst = rawjson.AppendString(append(dst, `,"description":`...), message)
		dst = append(dst, "}]}"...)
	}
	if internal && requestID != "" {
		dst = append(dst, `,{"@type":"type.googleapis.com/google.rpc.RequestInfo","requestId":`...)
		dst = append(rawjson.AppendString(dst, requestID), '}')
	}
	return append(dst, "]}"...)
}
