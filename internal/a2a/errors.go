package a2a

import (
	"errors"
	"fmt"
)

// ErrorCode is the kind of an error, in the terms of the protocol. Each codec maps every code to a number of
// its generation.
type ErrorCode uint8

// The errors that a caller may see.
const (
	CodeInternal ErrorCode = iota // zero: an unexpected error, whose text is never sent to a client
	CodeParse
	CodeInvalidRequest
	CodeMethodNotFound
	CodeInvalidParams
	CodeTaskNotFound
	CodeTaskNotCancelable
	CodeTaskTerminal // a message to a finished task
	CodePushNotSupported
	CodeUnsupportedOperation
	CodeContentTypeNotSupported
	CodeInvalidAgentResponse
	CodeExtendedCardNotConfigured
	CodeExtensionRequired
	CodeVersionNotSupported
	CodeUnauthenticated
	CodeForbidden
	CodeRateLimited
	CodeUnavailable // the server is draining or overloaded, or its database is unreachable
	CodeTooLarge
	CodeMediaType // the HTTP media type of a request
	codeCount
)

// ErrorCodes returns all codes, so that tests can check that every code is mapped.
func ErrorCodes() []ErrorCode {
	all := make([]ErrorCode, codeCount)
	for i := range all {
		all[i] = ErrorCode(i)
	}
	return all
}

var reasons = [codeCount]string{
	CodeInternal: "INTERNAL", CodeParse: "PARSE_ERROR", CodeInvalidRequest: "INVALID_REQUEST",
	CodeMethodNotFound: "METHOD_NOT_FOUND", CodeInvalidParams: "INVALID_PARAMS",
	CodeTaskNotFound: "TASK_NOT_FOUND", CodeTaskNotCancelable: "TASK_NOT_CANCELABLE",
	CodeTaskTerminal: "UNSUPPORTED_OPERATION", CodePushNotSupported: "PUSH_NOTIFICATION_NOT_SUPPORTED",
	CodeUnsupportedOperation: "UNSUPPORTED_OPERATION", CodeContentTypeNotSupported: "CONTENT_TYPE_NOT_SUPPORTED",
	CodeInvalidAgentResponse:      "INVALID_AGENT_RESPONSE",
	CodeExtendedCardNotConfigured: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
	CodeExtensionRequired:         "EXTENSION_SUPPORT_REQUIRED", CodeVersionNotSupported: "VERSION_NOT_SUPPORTED",
	CodeUnauthenticated: "UNAUTHENTICATED", CodeForbidden: "FORBIDDEN", CodeRateLimited: "RATE_LIMITED",
	CodeUnavailable: "UNAVAILABLE", CodeTooLarge: "REQUEST_TOO_LARGE", CodeMediaType: "CONTENT_TYPE_NOT_SUPPORTED",
}

// Reason returns the stable word that clients may branch on.
func (c ErrorCode) Reason() string {
	if c < codeCount {
		return reasons[c]
	}
	return reasons[CodeInternal]
}

// Error is an error for the client: Message may be shown to anyone.
type Error struct {
	Code    ErrorCode
	Message string
	Field   string // path of the invalid member of the params; empty: no single member
	err     error
}

// Errorf makes an Error. A cause given with %w is kept for logs.
func Errorf(code ErrorCode, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), err: errors.Unwrap(err)}
}

// InvalidParams makes an Error about one member of the params.
func InvalidParams(field, format string, args ...any) *Error {
	e := Errorf(CodeInvalidParams, format, args...)
	e.Field = field
	if field != "" {
		e.Message = field + ": " + e.Message
	}
	return e
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, if there is one.
func (e *Error) Unwrap() error { return e.err }

// Explain returns the text of err for logs and operators. Unlike the text for callers it says why the server
// was unavailable.
func Explain(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Code == CodeUnavailable && e.err != nil {
		return err.Error() + ": " + e.err.Error()
	}
	return err.Error()
}

// CodeOf returns the code of the first Error in err's chain, else CodeInternal.
func CodeOf(err error) ErrorCode {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// Errors that more than one package returns as they are.
var (
	ErrTaskNotFound = &Error{Code: CodeTaskNotFound, Message: "task not found"}
)

// With returns e with a cause for logs.
func (e Error) With(cause error) *Error {
	e.err = cause
	return &e
}
