package rpc

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// The tables of error codes to choose from.
const (
	Profile101 = "1.0.1"
	Profile100 = "1.0.0"
)

// errorDomain is the domain of the reasons in ErrorInfo.
const errorDomain = "a2a-protocol.org"

// grpcCode returns the status code of an error in a version of the protocol. profile selects the
// table for 1.0: the tables differ in the codes for operations that a server does not support.
func grpcCode(code a2a.ErrorCode, version, profile string) codes.Code {
	old, unsupported := version == "0.3", codes.FailedPrecondition
	if old || profile == Profile100 {
		unsupported = codes.Unimplemented
	}
	switch code {
	case a2a.CodeParse, a2a.CodeInvalidRequest, a2a.CodeInvalidParams,
		a2a.CodeContentTypeNotSupported, a2a.CodeMediaType:
		return codes.InvalidArgument
	case a2a.CodeMethodNotFound:
		return codes.Unimplemented
	case a2a.CodeTaskNotFound:
		return codes.NotFound
	case a2a.CodeTaskNotCancelable, a2a.CodeExtendedCardNotConfigured:
		return codes.FailedPrecondition
	case a2a.CodePushNotSupported, a2a.CodeUnsupportedOperation:
		return unsupported
	case a2a.CodeTaskTerminal:
		if old {
			return codes.InvalidArgument // T-12 in docs/reference/protocol.md
		}
		return unsupported
	case a2a.CodeExtensionRequired:
		if old {
			return codes.InvalidArgument
		}
		return codes.FailedPrecondition
	case a2a.CodeVersionNotSupported:
		if profile == Profile100 {
			return codes.Unimplemented
		}
		return codes.FailedPrecondition
	case a2a.CodeUnauthenticated:
		return codes.Unauthenticated
	case a2a.CodeForbidden:
		return codes.PermissionDenied
	case a2a.CodeRateLimited, a2a.CodeTooLarge:
		return codes.ResourceExhausted
	case a2a.CodeUnavailable:
		return codes.Unavailable
	case a2a.CodeInternal, a2a.CodeInvalidAgentResponse:
		return codes.Internal
	}
	return codes.Internal
}

// statusOf returns an error as a gRPC status, with its reason in an ErrorInfo and further details
// if there are any.
func statusOf(e *a2a.Error, version, profile, requestID string) *status.Status {
	message, field, internal := encode.Visible(e)
	details := []protoadapt.MessageV1{protoadapt.MessageV1Of(&errdetails.ErrorInfo{Reason: e.Code.Reason(),
		Domain: errorDomain})}
	if field != "" {
		details = append(details, protoadapt.MessageV1Of(&errdetails.BadRequest{
			FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: message}},
		}))
	}
	if internal {
		details = append(details, protoadapt.MessageV1Of(&errdetails.RequestInfo{RequestId: requestID}))
	}
	if e.Code == a2a.CodeRateLimited || e.Code == a2a.CodeUnavailable {
		details = append(details, protoadapt.MessageV1Of(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}))
	}
	return withDetails(status.New(grpcCode(e.Code, version, profile), message), details...)
}

// interrupted is the status of a stream that the client may resume.
func interrupted(message string, retry time.Duration) *status.Status {
	return withDetails(status.New(codes.Unavailable, message),
		protoadapt.MessageV1Of(&errdetails.ErrorInfo{Reason: a2a.CodeUnavailable.Reason(), Domain: errorDomain}),
		protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)}))
}

func withDetails(s *status.Status, details ...protoadapt.MessageV1) *status.Status {
	if detailed, err := s.WithDetails(details...); err == nil {
		return detailed
	}
	return s // without details rather than no status
}
